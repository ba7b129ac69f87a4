"""Which values move a loss: those that a differentiable path leads from, none of it flat."""

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
    The float values that targets depend on but by what is flat, or no float.

    Flat is what rounds, detaches, or multiplies by zeros that are known.
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
    """The operands by which a result moves, in whichever turn."""
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
    straight = zip(op.carried, op.finals, strict=True)  # As they are after no turn at all.
    return [
        *(operand for argument, operand in arguments if argument in inside),
        *(operand for operand, final in straight if final in found),
    ]


def is_flat(op: Operation, weights: WeightStore) -> bool:
    """Whether the results stay where they are however little the operands move."""
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


def is_setting(value: SSAValue) -> bool:
    """Whether all that reads it detaches it: a ratio, running statistics, what a user detached."""
    readers = [use.operation for use in value.uses]
    return bool(readers) and all(
        isinstance(op, DetachOp)
        or (isinstance(op, BroadcastOp | CastOp | ReshapeOp) and is_setting(op.results[0]))
        for op in readers
    )


def barrier(value: SSAValue, needed: Set[Operation], weights: WeightStore) -> str:
    """The place of the first operation, on the way to the results, behind which nothing moves."""
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
