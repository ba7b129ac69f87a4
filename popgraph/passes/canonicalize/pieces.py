"""Which sums only put pieces side by side?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects.graphcore import AddOp, ConcatOp, PadOp
from popgraph.dialects.graphcore.base import Operand, integer, shape_of
from popgraph.passes.rewriting import Rule
from popgraph.support.shapes import Shape


def _leaves(value: SSAValue) -> Iterator[SSAValue]:
    """What is added up, through sums that nobody else reads."""
    owner = value.owner
    if isinstance(owner, AddOp) and value.has_one_use():
        yield from _leaves(owner.lhs)
        yield from _leaves(owner.rhs)
    else:
        yield value


def _piece(value: SSAValue, shape: Shape) -> PadOp | None:
    """What stands among zeros in a tensor of this shape."""
    op = value.owner
    if not isinstance(op, PadOp) or shape_of(value) != shape or any(op.interior):
        return None
    return op if np.all(op.fill == 0) else None


def _axis(pieces: Sequence[PadOp]) -> int | None:
    """The only axis along which pieces stand at different places; None if there is no such."""
    places = list(zip(*[zip(op.low, shape_of(op.x), strict=True) for op in pieces], strict=True))
    differing = [axis for axis, found in enumerate(places) if len(set(found)) > 1]
    return differing[0] if len(differing) == 1 else None


class JoinPieces(Rule[AddOp]):
    """
    pad a + pad b  ->  pad (concat a, b)

    Only when the pads add zeros, and a ends where b begins. So sum up the gradients of the parts
    that a tensor was split into. -0 stays -0, of which a sum with 0 would make 0.
    """

    ROOTS = (AddOp,)

    def rewrite(self, op: AddOp) -> Operand | None:
        shape = shape_of(op.result)
        found = [_piece(leaf, shape) for side in op.operands for leaf in _leaves(side)]
        pieces = [piece for piece in found if piece is not None]
        axis = _axis(pieces) if len(pieces) == len(found) else None
        if axis is None:
            return None
        pieces.sort(key=lambda piece: (piece.low.data[axis], shape_of(piece.x)[axis]))
        ends = [piece.low.data[axis] + shape_of(piece.x)[axis] for piece in pieces]
        starts = [piece.low.data[axis] for piece in pieces]
        if any(end != start for end, start in zip(ends, starts[1:], strict=False)):
            return None
        whole = ConcatOp([piece.x for piece in pieces], axis=axis)
        low, high = list(pieces[0].low), list(pieces[0].high)
        high[axis] = pieces[-1].high.data[axis]
        return PadOp(whole, low=low, high=high, interior=[0] * len(low), value=0.0)


class JoinConcats(Rule[ConcatOp]):
    """
    concat (concat a, b), c  ->  concat a, b, c

    Only when both go along the same axis.
    """

    ROOTS = (ConcatOp,)

    def rewrite(self, op: ConcatOp) -> Operand | None:
        parts = [list(self._parts(op, x)) for x in op.xs]
        if all(len(part) == 1 for part in parts):
            return None
        return ConcatOp([x for part in parts for x in part], axis=integer(op.axis))

    @staticmethod
    def _parts(op: ConcatOp, x: SSAValue) -> Sequence[SSAValue]:
        inner = x.owner
        if isinstance(inner, ConcatOp) and inner.axis == op.axis and x.has_one_use():
            return list(inner.xs)
        return [x]


RULES = (JoinPieces, JoinConcats)
