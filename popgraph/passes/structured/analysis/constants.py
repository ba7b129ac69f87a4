"""Constants of a program: values that are known when it is loaded."""

from __future__ import annotations

from xdsl.ir import Block, Operation, SSAValue

from popgraph.dialects import tile
from popgraph.dialects.program import ConstantOp


class Constants:
    """
    Constant values: results of `pg.constant`, and of `tile` operations on constants.

    Callers visit operations in program order, as each answer follows from cached ones.
    """

    # Without answers about its operands, a deep chain of operations overflows the stack.

    def __init__(self) -> None:
        self._known: dict[SSAValue, bool] = {}

    def holds(self, value: SSAValue) -> bool:
        if value not in self._known:
            self._known[value] = self._find(value.owner)
        return self._known[value]

    def factors(self, op: tile.ReduceOp) -> tuple[bool, bool]:
        """Whether each of the two operands of a contraction is constant."""
        return self.holds(op.lhs), self.holds(op.rhs)

    def note(self, op: Operation) -> None:
        """Caches the answers for the results of the next operation."""
        for result in op.results:
            self.holds(result)

    def _find(self, owner: Operation | Block) -> bool:
        if isinstance(owner, Block):
            return False
        if isinstance(owner, ConstantOp):
            return True
        operands = owner.operands
        return owner.name.startswith("tile.") and bool(operands) and all(map(self.holds, operands))
