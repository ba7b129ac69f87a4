"""Canonicalizes sums of zero-padded disjoint pieces into concatenations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects.graphcore import AddOp, ConcatOp, PadOp
from popgraph.dialects.graphcore.base import Operand, integer, shape_of
from popgraph.passes.graphcore.canonicalize.rewriting import Rule
from popgraph.support.index_laws import CONCATENATION
from popgraph.support.laws import Law, Proof, variable
from popgraph.support.shapes import Shape

X = variable("x")


def _is_inner(value: SSAValue, kind: type[AddOp | ConcatOp]) -> bool:
    """Whether the only use of a value is in an operation of this kind."""
    return value.has_one_use() and all(isinstance(use.operation, kind) for use in value.uses)


def _piece(value: SSAValue, shape: Shape) -> PadOp | None:
    """The operation that pads a piece with zeros to this shape, if a value is one."""
    op = value.owner
    if not isinstance(op, PadOp) or shape_of(value) != shape or any(op.interior):
        return None
    return op if np.all(op.fill == 0) else None


def _sums(root: AddOp) -> list[AddOp]:
    """A sum and the nested sums without other uses, root first."""
    found, waiting = list[AddOp](), [root]
    while waiting:
        op = waiting.pop()
        found.append(op)
        owners = [side.owner for side in op.operands if side.has_one_use()]
        waiting += [owner for owner in owners if isinstance(owner, AddOp)]
    return found


def _adds_pieces(root: AddOp) -> bool:
    """Whether a sum pads any addend, a quick test: most sums have no pieces."""
    return any(isinstance(side.owner, PadOp) for op in _sums(root) for side in op.operands)


@dataclass(frozen=True)
class Intervals:
    """
    Extents of pieces along one axis, summarized so that a sum of sums is checked in O(1).

    Pieces [b, e) that tile [first, end) satisfy sum(e^3 - b^3) = end^3 - first^3. The converse does
    not hold, so a match is only a candidate, which `_side_by_side` checks exactly.
    """

    first: int
    end: int
    cubes: int
    """Sum of end^3 - begin^3 over the pieces."""
    same: bool = True
    """Whether all pieces have the same extent."""

    @staticmethod
    def of(low: int, size: int) -> Intervals:
        return Intervals(low, low + size, (low + size) ** 3 - low**3)

    def __add__(self, other: Intervals) -> Intervals:
        first, end = min(self.first, other.first), max(self.end, other.end)
        same = self.same and other.same and (self.first, self.end) == (other.first, other.end)
        return Intervals(first, end, self.cubes + other.cubes, same)

    @property
    def may_meet(self) -> bool:
        return self.cubes == self.end**3 - self.first**3


@dataclass(frozen=True)
class Total:
    """The extents of a sum of pieces on each axis."""

    axes: tuple[Intervals, ...]

    @staticmethod
    def of(piece: PadOp) -> Total:
        return Total(tuple(map(Intervals.of, piece.low, shape_of(piece.x))))

    def __add__(self, other: Total) -> Total:
        return Total(tuple(a + b for a, b in zip(self.axes, other.axes, strict=True)))

    @property
    def axis(self) -> int | None:
        """The only axis along which pieces differ, if they may be contiguous there."""
        differing = [axis for axis, intervals in enumerate(self.axes) if not intervals.same]
        if len(differing) != 1 or not self.axes[differing[0]].may_meet:
            return None
        return differing[0]


class Tree:
    """A sum of nested sums without other uses."""

    def __init__(self, root: AddOp) -> None:
        self.root = root
        self.shape = shape_of(root.result)
        self.totals: dict[SSAValue, Total | None] = {}
        """Extents of each sum and addend; None unless it consists of pieces only."""
        for op in reversed(_sums(root)):
            for side in op.operands:
                if side not in self.totals:
                    piece = _piece(side, self.shape)
                    self.totals[side] = Total.of(piece) if piece else None
            lhs, rhs = (self.totals[side] for side in op.operands)
            self.totals[op.result] = lhs + rhs if lhs and rhs else None

    def joined(self) -> Operand | None:
        """The sum with contiguous pieces concatenated; None if no pieces are contiguous."""
        made: dict[SSAValue, Operand] = {}
        within: set[AddOp] = set()
        above: list[AddOp] = []
        for op in _sums(self.root):
            if op in within:
                continue
            whole = self._whole(op)
            if whole is None:
                above.append(op)
            else:
                within.update(_sums(op))
                made[op.result] = whole
        for op in reversed(above):
            sides = [made.get(side, side) for side in op.operands]
            if any(side in made for side in op.operands):
                made[op.result] = AddOp(*sides)
        return made.get(self.root.result)

    def _whole(self, op: AddOp) -> Operand | None:
        """The concatenation of all pieces of a sum; None if they are not contiguous."""
        total = self.totals[op.result]
        axis = total.axis if total else None
        if axis is None:
            return None
        sums = dict.fromkeys(_sums(op))
        leaves = [side for each in sums for side in each.operands if side.owner not in sums]
        pieces = [piece for leaf in leaves if (piece := _piece(leaf, self.shape))]
        return _side_by_side(pieces, axis)


def _side_by_side(pieces: list[PadOp], axis: int) -> Operand | None:
    # Empty pieces sort before the piece that starts at the same position.
    pieces = sorted(pieces, key=lambda piece: (piece.low.data[axis], shape_of(piece.x)[axis]))
    ends = [piece.low.data[axis] + shape_of(piece.x)[axis] for piece in pieces]
    starts = [piece.low.data[axis] for piece in pieces]
    if any(end != start for end, start in zip(ends, starts[1:], strict=False)):
        return None
    whole = ConcatOp([piece.x for piece in pieces], axis=axis)
    low, high = list(pieces[0].low), list(pieces[0].high)
    high[axis] = pieces[-1].high.data[axis]
    return PadOp(whole, low=low, high=high, interior=[0] * len(low), value=0.0)


class ConcatDisjointPieces(Rule[AddOp]):
    """
    pad a + pad b  ->  pad (concat a, b)

    Only when the pads add zeros and a ends where b begins. Gradients of a split tensor have this
    form. A -0.0 stays -0.0, which the sum with 0.0 would make 0.0. A tree of sums is matched once,
    at its root.
    """

    ROOTS = (AddOp,)
    PROOF = Proof(
        (*CONCATENATION, Law(X + -0.0, X)),
        approximate="a -0.0 that is added to padding stays -0.0",
    )

    def rewrite(self, op: AddOp) -> Operand | None:
        return None if _is_inner(op.result, AddOp) or not _adds_pieces(op) else Tree(op).joined()


class MergeConcats(Rule[ConcatOp]):
    """
    concat (concat a, b), c  ->  concat a, b, c

    Only along the same axis. The outermost concatenation absorbs all nested ones at once.
    """

    ROOTS = (ConcatOp,)
    PROOF = Proof(CONCATENATION)

    def rewrite(self, op: ConcatOp) -> Operand | None:
        if self._is_within_another(op):
            return None
        parts = self._parts(op)
        return ConcatOp(parts, axis=integer(op.axis)) if len(parts) != len(op.xs) else None

    @staticmethod
    def _is_within_another(op: ConcatOp) -> bool:
        return op.result.has_one_use() and all(
            isinstance(use.operation, ConcatOp) and use.operation.axis == op.axis
            for use in op.result.uses
        )

    @staticmethod
    def _parts(op: ConcatOp) -> Sequence[SSAValue]:
        found: list[SSAValue] = []
        waiting = [*op.xs][::-1]
        while waiting:
            x = waiting.pop()
            inner = x.owner
            if isinstance(inner, ConcatOp) and inner.axis == op.axis and x.has_one_use():
                waiting += [*inner.xs][::-1]
            else:
                found.append(x)
        return found


RULES = (ConcatDisjointPieces, MergeConcats)
