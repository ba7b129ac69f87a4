"""Canonicalizes lookups of constant indices into slices."""

from __future__ import annotations

from popgraph.dialects.graphcore import GatherOp, ReshapeOp
from popgraph.dialects.graphcore.base import Operand, integer, shape_of
from popgraph.dialects.graphcore.lookup import positions
from popgraph.dialects.graphcore.runs import in_pieces
from popgraph.passes.graphcore.canonicalize.rewriting import Rule


class SliceLookup(Rule[GatherOp]):
    """
    gather x, [1, 3, 5]  ->  slice x

    Only when the indices are constant with a constant step. Several slices would need a
    concatenation, which does not fuse into readers as a lookup does.
    """

    ROOTS = (GatherOp,)

    def rewrite(self, op: GatherOp) -> Operand | None:
        indices, axis = self.array(op.indices), integer(op.axis)
        shape = shape_of(op.result)
        if indices is None or 0 in (*shape, *shape_of(op.data)):
            return None
        places = positions(indices, shape_of(op.data)[axis]).reshape(-1)
        found = in_pieces(op.data, places, axis, 1)
        return found if found is None or indices.ndim == 1 else ReshapeOp(found, shape=shape)


RULES = (SliceLookup,)
