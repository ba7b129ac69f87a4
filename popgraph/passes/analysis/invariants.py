"""Invariants of loops: the operations of a body that compute the same in every iteration."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from xdsl.ir import Block, Operation, SSAValue

from popgraph.dialects.program import ConstantOp


def invariants(
    body: Block, captured: Iterable[SSAValue], may_move: Callable[[Operation], bool]
) -> list[Operation]:
    """
    The operations made of captured values, and perhaps literals, in their order.

    Only those that `may_move`, and depend on nothing that may not. Operations on literals alone are
    constants of the whole program.
    """
    same, literals = set(captured), set[SSAValue]()
    found: list[Operation] = []
    for op in body.ops:
        if isinstance(op, ConstantOp):
            literals.update(op.results)
        elif (
            any(value in same for value in op.operands)
            and all(value in same or value in literals for value in op.operands)
            and may_move(op)
        ):
            same.update(op.results)
            found.append(op)
    return found
