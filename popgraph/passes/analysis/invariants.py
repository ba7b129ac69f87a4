"""Invariants of loops: operations of a body that compute the same in every iteration."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import Rewriter

from popgraph.dialects.program import ConstantOp

May = Callable[[Operation], bool]


def unchanging(block: Block, known: Iterable[SSAValue], may_move: May) -> list[Operation]:
    """
    Operations that depend on `known` values and literals only, in their order.

    All of them, except literals, satisfy `may_move`. Without known values, they are constants of
    the whole program.
    """
    same = set(known)
    found: list[Operation] = []
    for op in block.ops:
        if (isinstance(op, ConstantOp) or may_move(op)) and same.issuperset(_read_by(op)):
            same.update(op.results)
            found.append(op)
    return found


def invariants(body: Block, captured: Iterable[SSAValue], may_move: May) -> list[Operation]:
    """Unchanging operations that depend on captured values, without the program's constants."""
    constants = set(unchanging(body, (), may_move))
    return [op for op in unchanging(body, captured, may_move) if op not in constants]


def _read_by(op: Operation) -> Iterator[SSAValue]:
    """The values that an operation depends on: operands, and values captured by its regions."""
    yield from op.operands
    if op.regions:
        own = {value for block in op.walk_blocks() for value in block.args}
        inner = [each for block in op.walk_blocks() for each in block.ops]
        own.update(value for each in inner for value in each.results)
        yield from (value for each in inner for value in each.operands if value not in own)


def hoist(
    moved: Collection[Operation],
    outer: dict[SSAValue, SSAValue],
    put: Callable[[Operation], object],
    capture: Callable[[SSAValue, SSAValue], SSAValue],
    erase: Callable[[Operation], object] = Rewriter.erase_op,
) -> None:
    """
    Moves invariants out of a body; `put` inserts them, `outer` maps captured values to outer ones.

    For each result that the body still reads, `capture` is passed the result and its outer value,
    and returns the argument that replaces it. Constants of the body, literals or computed from
    literals, are copied.
    """

    def copy(op: Operation) -> None:
        for value in _read_by(op):
            if value not in outer:
                assert isinstance(value.owner, Operation), "captured values have outer ones"
                copy(value.owner)
        put(op.clone(outer))

    for op in moved:
        copy(op)
    inside = set(moved)
    for value in [result for op in moved for result in op.results]:
        if any(use.operation not in inside for use in value.uses):
            value.replace_all_uses_with(capture(value, outer[value]))
    for op in reversed([*moved]):
        erase(op)
