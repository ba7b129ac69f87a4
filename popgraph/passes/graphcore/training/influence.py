"""Influence on a loss: values with a differentiable path to it on which no gradient is zero."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set

from xdsl.ir import Block, Operation, SSAValue

from popgraph.dialects.graphcore import BroadcastOp, CondOp, DetachOp, LoopOp, MulOp, ReshapeOp
from popgraph.dialects.graphcore.base import is_float
from popgraph.dialects.graphcore.control import yield_of
from popgraph.dialects.graphcore.functions import CastOp, Step
from popgraph.dialects.locations import origin
from popgraph.dialects.program import ConstantOp, WeightStore


def influential(block: Block, targets: Iterable[SSAValue], weights: WeightStore) -> set[SSAValue]:
    """
    Float values that targets depend on through float operations that are not flat.

    Flat operations round, detach, or multiply by a constant zero.
    """
    found = {value for value in targets if is_float(value)}
    for op in reversed(list(block.ops)):
        if any(result in found for result in op.results):
            found.update(value for value in _sources(op, found, weights) if is_float(value))
    return found


def _sources(op: Operation, found: Set[SSAValue], weights: WeightStore) -> Iterable[SSAValue]:
    match op:
        case CondOp():
            return _sources_of_branches(op, found, weights)
        case LoopOp():
            return _sources_of_loop(op, found, weights)
        case _:
            return () if is_flat(op, weights) else op.operands


def _sources_of_branches(
    op: CondOp, found: Set[SSAValue], weights: WeightStore
) -> Iterator[SSAValue]:
    for block in op.bodies():
        pairs = zip(op.outputs, yield_of(block).values, strict=True)
        inside = influential(block, [value for result, value in pairs if result in found], weights)
        arguments = zip(block.args, op.captured, strict=True)
        yield from (operand for argument, operand in arguments if argument in inside)


def _sources_of_loop(op: LoopOp, found: Set[SSAValue], weights: WeightStore) -> list[SSAValue]:
    """Operands that influence a result in any iteration, as a fixed point."""
    results = [*op.finals, *op.stacked]
    pairs = list(zip(results, [*op.yielded_carried, *op.yielded_rows], strict=True))
    targets = {value for result, value in pairs if result in found}
    carried = list(zip(op.carried_arguments, op.yielded_carried, strict=True))
    while True:
        inside = influential(op.block, targets, weights)
        more = {last for argument, last in carried if argument in inside} - targets
        if not more:
            break
        targets |= more
    operands = [*op.carried, *op.scanned, *op.captured]
    arguments = zip(op.block.args[1:], operands, strict=False)
    straight = zip(op.carried, op.finals, strict=True)  # The results if no iteration runs.
    return [
        *(operand for argument, operand in arguments if argument in inside),
        *(operand for operand, final in straight if final in found),
    ]


def is_flat(op: Operation, weights: WeightStore) -> bool:
    """Whether small changes of the operands leave the results unchanged."""
    match op:
        case Step() | DetachOp():
            return True
        case MulOp():
            return any(_is_zero(operand, weights) for operand in op.operands)
        case _:
            return not any(map(is_float, op.results))


def _is_zero(value: SSAValue, weights: WeightStore) -> bool:
    match value.owner:
        case ConstantOp() as constant:
            return not weights.array(constant.literal).any()
        case BroadcastOp() | ReshapeOp() as op:
            return _is_zero(op.operands[0], weights)
        case _:
            return False


def is_only_detached(value: SSAValue) -> bool:
    """Whether every reader detaches a value: a ratio, running statistics, a user's Detach."""
    readers = [use.operation for use in value.uses]
    return bool(readers) and all(
        isinstance(op, DetachOp)
        or (isinstance(op, BroadcastOp | CastOp | ReshapeOp) and is_only_detached(op.results[0]))
        for op in readers
    )


def flat_location(value: SSAValue, needed: Set[Operation], weights: WeightStore) -> str:
    """
    The source location of the first flat operation on a path to the results; "" without one.

    Breadth-first, so the operation nearest to the value is reported.
    """
    waiting, seen = [value], {value}
    while waiting:
        for use in waiting.pop(0).uses:
            op = use.operation
            if op in needed and is_flat(op, weights) and origin(op):
                return origin(op)
            fresh = [result for result in op.results if result not in seen]
            if op in needed:
                waiting += fresh
                seen.update(fresh)
    return ""
