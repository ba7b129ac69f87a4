"""Data dependence for differentiation: values that a gradient can reach, bodies included."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set

from xdsl.ir import Block, Operation, SSAValue

from popgraph.dialects.graphcore import Composite, CondOp, LoopOp
from popgraph.dialects.graphcore.base import dtype_of, is_float, is_number
from popgraph.dialects.graphcore.control import yield_of
from popgraph.dialects.values import backward_slice
from popgraph.passes.analysis.graph import expanded


def dependent(block: Block, sources: Iterable[SSAValue]) -> set[SSAValue]:
    """
    Values that depend on a source and that gradients flow through.

    These are floats, and integers that have the type of an integer source.
    """
    found = {value for value in sources if is_number(value)}
    integers = {dtype_of(value) for value in found if not is_float(value)}
    for op in block.ops:
        if any(operand in found for operand in op.operands):
            found.update(
                result
                for result in _moved(op, found)
                if is_float(result) or dtype_of(result) in integers
            )
    return found


def _moved(op: Operation, sources: Set[SSAValue]) -> Iterable[SSAValue]:
    """Results of an operation that depend on the sources."""
    match op:
        case CondOp():
            return _moved_by_branches(op, sources)
        case LoopOp():
            inside = dependent_in_loop(op, sources)
            outside = zip(op.finals, op.carried, op.yielded_carried, strict=True)
            rows = zip(op.stacked, op.yielded_rows, strict=True)
            return [
                *(final for final, first, last in outside if first in sources or last in inside),
                *(stacked for stacked, row in rows if row in inside),
            ]
        case _:
            return op.results


def _moved_by_branches(op: CondOp, sources: Set[SSAValue]) -> Iterator[SSAValue]:
    for block in op.bodies():
        inside = dependent(block, arguments_of(block.args, op.captured, sources))
        yielded = zip(op.outputs, yield_of(block).values, strict=True)
        yield from (result for result, value in yielded if value in inside)


def dependent_in_loop(loop: LoopOp, sources: Set[SSAValue]) -> set[SSAValue]:
    """Values of a body that depend on a source outside in any iteration, as a fixed point."""
    operands = [*loop.carried, *loop.scanned, *loop.captured]
    arguments = set(arguments_of(loop.block.args[1:], operands, sources))
    while True:
        found = dependent(loop.block, arguments)
        carried = zip(loop.carried_arguments, loop.yielded_carried, strict=True)
        more = {argument for argument, value in carried if value in found} - arguments
        if not more:
            return found
        arguments |= more


def arguments_of(
    arguments: Sequence[SSAValue], operands: Sequence[SSAValue], sources: Set[SSAValue]
) -> list[SSAValue]:
    """Arguments whose operand is a source."""
    return [
        argument
        for argument, operand in zip(arguments, operands, strict=False)
        if operand in sources
    ]


def needed(values: Iterable[SSAValue]) -> set[Operation]:
    """All operations that these values depend on, transitively."""
    owners = (value.owner for value in backward_slice(values))
    return {owner for owner in owners if isinstance(owner, Operation)}


def expand_on_path(
    block: Block,
    results: Callable[[], Iterable[SSAValue]],
    reached: Callable[[], Set[SSAValue]],
) -> None:
    """
    Expands composites without a gradient rule that are on a path from sources to results.

    `results` and `reached` are called again in each round: expansion may have replaced a value.
    """
    while True:
        on_the_way, found = needed(results()), reached()
        blocking = [
            op
            for op in block.ops
            if op in on_the_way
            and isinstance(op, Composite)
            and not op.is_differentiable()
            and any(result in found for result in op.results)
        ]
        if not blocking:
            return
        for op in blocking:
            expanded(op)
