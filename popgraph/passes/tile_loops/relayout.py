"""How does a tensor change its layout?"""

from __future__ import annotations

from xdsl.ir.affine import AffineMap

from popgraph.dialects import tile
from popgraph.dialects.tile.affine import offset
from popgraph.passes.tile_loops.access import clear_gaps, tensor
from popgraph.passes.tile_loops.copies import Source, copy
from popgraph.passes.tile_loops.writer import Writer


def relayout_kernel(op: tile.PackOp | tile.UnpackOp, vector_bytes: int) -> tile.KernelOp:
    """Every element from its place in the one layout to its place in the other."""
    source, output = tensor(op.source), tensor(op.output)
    shape = output.get_shape()
    kernel = tile.KernelOp([op.source], [output])
    writer = Writer(kernel.body.block)
    _, memory, target = kernel.body.block.args
    clear_gaps(writer, [op.output], [target])
    identity = AffineMap.identity(len(shape))
    copy(
        writer,
        shape,
        Source(memory, offset(source, identity, shape)),
        (target, offset(output, identity, shape)),
        output.element_type,
        vector_bytes,
    )
    return kernel
