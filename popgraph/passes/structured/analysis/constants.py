"""Constants of a program: values that are known when it is loaded."""

from __future__ import annotations

from xdsl.ir import Block, Operation, SSAValue

from popgraph.dialects import tile
from popgraph.dialects.program import ConstantOp


class Constants:
    """
    Which values are known when the program is loaded?

    To be asked in the order of the program: answers are remembered, and lead to the next ones.
    """

    def __init__(self) -> None:
        self._known: dict[SSAValue, bool] = {}

    def holds(self, value: SSAValue) -> bool:
        if value not in self._known:
            self._known[value] = self._find(value.owner)
        return self._known[value]

    def factors(self, op: tile.ReduceOp) -> tuple[bool, bool]:
        """Which of the two factors of a contraction are known."""
        return self.holds(op.lhs), self.holds(op.rhs)

    def note(self, op: Operation) -> None:
        """Remembers the results of the next operation of the program."""
        for result in op.results:
            self.holds(result)

    def _find(self, owner: Operation | Block) -> bool:
        if isinstance(owner, Block):
            return False
        if isinstance(owner, ConstantOp):
            return True
        operands = owner.operands
        return owner.name.startswith("tile.") and bool(operands) and all(map(self.holds, operands))
