"""The kernel of a `tile.assemble`."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.ir.affine import AffineExpr, AffineMap

from popgraph.dialects import tile
from popgraph.dialects.tile.affine import offset
from popgraph.passes.structured.analysis.loops import Group, tensor
from popgraph.passes.structured.analysis.parallel_loops import Loop
from popgraph.passes.structured.to_loops.copy.copies import (
    CopySource,
    Piece,
    alternating_groups,
    copy,
    copy_alternating,
    cut_of_chunk,
    innermost,
    loops_of_box,
    shared_loops,
)
from popgraph.passes.structured.to_loops.emit.emitter import Body, Emitter
from popgraph.support.shapes import prod
from popgraph.support.tuning import Target


class AssembleLoops(Emitter):
    """Writes the fill, if pieces do not cover the result, then the pieces."""

    def __init__(self, op: tile.AssembleOp, target: Target) -> None:
        super().__init__(op, target)
        self.op, self.inputs, self.outputs = op, op.pieces, [op.output]
        self.shape, self.kind = tensor(op.output).get_shape(), tensor(op.output).element_type
        self.groups = [
            Group((dim,), self.shape[dim], self.running.get(dim)) for dim in _common_dims(op)
        ]
        self.work = prod(self.shape)

    @property
    def loops(self) -> list[Loop]:
        along = {innermost(tensor(piece).get_shape()) for piece in self.op.pieces}
        dims = [group.last for group in self.groups]
        loops = loops_of_box(dims, self.shape, self.kind, self.target, along=along)
        return shared_loops(self.groups, loops)

    def write(self, body: Body) -> None:
        writer, output, (result,) = body.writer, tensor(self.op.output), body.outputs
        mine, identity = cut_of_chunk(self, body), AffineMap.identity(len(self.shape))
        # The fill covers the whole result, as the rest is not one box.
        if sum(prod(tensor(piece).get_shape()) for piece in self.op.pieces) < prod(self.shape):
            form = offset(output, identity, self.shape)
            source = CopySource(writer.literal(self.op.fill))
            copy(writer, self.shape, source, (result, form), self.kind, mine)
        for together in alternating_groups(
            list(self._pieces(body)), self.target.tuning.most_interleaved
        ):
            first = together[0]
            if len(together) > 1:
                copy_alternating(writer, together, result, self.kind, mine)
            else:
                source = CopySource(first.source, first.source_form)
                copy(writer, first.sizes, source, (result, first.form), self.kind, mine)

    def _pieces(self, body: Body) -> Iterator[Piece]:
        output, placements = tensor(self.op.output), self.op.placements()
        for memory, (piece, offsets, steps) in zip(body.inputs, placements, strict=True):
            sizes = tensor(piece).get_shape()
            indices = tuple(
                AffineExpr.dimension(dim) * step + start
                for dim, (start, step) in enumerate(zip(offsets, steps, strict=True))
            )
            if 0 not in sizes:
                read = offset(tensor(piece), AffineMap.identity(len(sizes)), sizes)
                written = offset(output, AffineMap(len(sizes), 0, indices), sizes)
                yield Piece(sizes, memory, read, written)


def _common_dims(op: tile.AssembleOp) -> list[int]:
    """The dimensions along which every piece covers the whole result."""
    # Along these, the range of a chunk is the same in the result and in all pieces.
    shape = tensor(op.output).get_shape()
    return [
        dim
        for dim, size in enumerate(shape)
        if all(
            offsets[dim] == 0 and steps[dim] == 1 and tensor(piece).get_shape()[dim] == size
            for piece, offsets, steps in op.placements()
        )
    ]
