"""Copies of the operations that replaced an equal operation: networks repeat their layers."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from popgraph.dialects.graphcore.base import shape_of
from popgraph.dialects.program import ConstantOp
from popgraph.dialects.unchecked import cloned
from popgraph.passes.analysis.structural_hash import StructuralHasher
from popgraph.support.shapes import prod


@dataclass(frozen=True)
class Replacement:
    """The operations that replaced an operation with these operands, and its new results."""

    operands: Sequence[SSAValue]
    made: Sequence[Operation]
    results: Sequence[SSAValue]

    @property
    def is_closed(self) -> bool:
        """Whether the operations read the operands only."""
        known = {*self.operands}
        for op in self.made:
            if not known.issuperset(op.operands):
                return False
            known.update(op.results)
        return known.issuperset(self.results)


class Repeats:
    """
    The replacements of earlier operations, copied for equal ones: a third of the time.

    Only for operations of `kinds`. Their replacement depends on properties, types and constants of
    one element only. Earlier replacements must still be in the module.
    """

    def __init__(self, kinds: tuple[type[Operation], ...]) -> None:
        self._kinds = kinds
        self._hasher = StructuralHasher()
        self._known: dict[Hashable, Replacement] = {}

    def copied(self, op: Operation) -> Sequence[SSAValue] | None:
        """The results of copies, inserted before an operation; None without an equal one."""
        earlier = self._known.get(self._form(op)) if isinstance(op, self._kinds) else None
        if earlier is None:
            return None
        values = dict(zip(earlier.operands, op.operands, strict=True))
        point = InsertPoint.before(op)
        for first in earlier.made:
            copy = cloned(first, [values[operand] for operand in first.operands], op.location)
            Rewriter.insert_op(copy, point)
            values.update(zip(first.results, copy.results, strict=True))
        return [values[result] for result in earlier.results]

    def note(self, op: Operation, made: Sequence[Operation], results: Sequence[SSAValue]) -> None:
        """Remembers the operations that compute the results of `op`."""
        replacement = Replacement(tuple(op.operands), made, results)
        if isinstance(op, self._kinds) and replacement.is_closed:
            self._known[self._form(op)] = replacement

    def _form(self, op: Operation) -> Hashable:
        """Equal for operations with equal replacements."""
        # Bodies of maps contain constants of one element.
        constants = [
            owner.literal
            if isinstance(owner := operand.owner, ConstantOp) and prod(shape_of(operand)) == 1
            else None
            for operand in op.operands
        ]
        return self._hasher.of(op), *constants
