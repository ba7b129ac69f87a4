"""The kernel of a `tile.assemble`."""

from __future__ import annotations

from xdsl.ir import SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap

from popgraph.dialects import tile
from popgraph.dialects.tile.affine import offset
from popgraph.dialects.tile.cut import CutAttr, chunks_of, cut_of
from popgraph.passes.structured.analysis.loops import has_gaps, tensor
from popgraph.passes.structured.analysis.parallel_loops import ParallelLoops
from popgraph.passes.structured.to_loops.copy.copies import (
    Cut,
    Piece,
    Source,
    copy,
    cut_span,
    innermost,
    shared_out,
    weave,
    woven,
)
from popgraph.passes.structured.to_loops.emit.writer import Writer
from popgraph.passes.structured.to_loops.emit.zero_padding import zero_unwritten
from popgraph.passes.tuning import Target
from popgraph.support.shapes import Shape, prod


def assemble_kernel(op: tile.AssembleOp, target: Target) -> tile.KernelOp:
    """The fill where pieces leave room, then the pieces."""
    output = tensor(op.output)
    shape = output.get_shape()
    dims = _common_dims(op)
    cut = cut_of(op)
    kernel = tile.KernelOp(op.pieces, [output], chunks_of(cut))
    writer = Writer(kernel.body.block, target)
    chunk, *sources, result = kernel.body.block.args
    zero_unwritten(writer, [op.output], [result], cut)
    mine = _part(writer, cut, dims, shape, chunk)
    rank = len(shape)
    if sum(prod(tensor(piece).get_shape()) for piece in op.pieces) < prod(shape):
        form = offset(output, AffineMap.identity(rank), shape)
        source = Source(writer.literal(op.fill))
        copy(writer, shape, source, (result, form), output.element_type, mine)
    pieces = list[Piece]()
    for memory, (piece, offsets, steps) in zip(sources, op.placements(), strict=True):
        sizes = tensor(piece).get_shape()
        indices = AffineMap(
            rank,
            0,
            tuple(
                AffineExpr.dimension(dim) * step + start
                for dim, (start, step) in enumerate(zip(offsets, steps, strict=True))
            ),
        )
        if 0 not in sizes:
            read = offset(tensor(piece), AffineMap.identity(rank), sizes)
            pieces.append(Piece(sizes, memory, read, offset(output, indices, sizes)))
    for together in woven(pieces, target.tuning.most_interleaved):
        first = together[0]
        if len(together) > 1:
            weave(writer, together, result, output.element_type, mine)
        else:
            source = Source(first.source, first.source_form)
            copy(writer, first.sizes, source, (result, first.form), output.element_type, mine)
    return kernel


def assemble_parallel_loops(op: tile.AssembleOp, target: Target) -> ParallelLoops | None:
    """What threads may share of it."""
    output = tensor(op.output)
    if has_gaps(op.output):
        return None
    along = {innermost(tensor(piece).get_shape()) for piece in op.pieces}
    shape, kind = output.get_shape(), output.element_type
    return shared_out(_common_dims(op), shape, kind, target, along=along)


def _common_dims(op: tile.AssembleOp) -> list[int]:
    """The dimensions along which every piece covers the whole result."""
    shape = tensor(op.output).get_shape()
    return [
        dim
        for dim, size in enumerate(shape)
        if all(
            offsets[dim] == 0 and steps[dim] == 1 and tensor(piece).get_shape()[dim] == size
            for piece, offsets, steps in op.placements()
        )
    ]


def _part(
    writer: Writer, cut: CutAttr | None, dims: list[int], shape: Shape, chunk: SSAValue
) -> Cut | None:
    if cut is None:
        return None
    dim = dims[cut.only.loop]
    return Cut(dim, cut_span(writer, cut, shape[dim], chunk))
