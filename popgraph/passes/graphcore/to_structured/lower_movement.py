"""Lowers data movement to views, index maps, `tile.assemble` and `tile.scatter`."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap

from popgraph.dialects import tile
from popgraph.dialects.graphcore import (
    BroadcastOp,
    ConcatOp,
    InsertOp,
    PadOp,
    ReshapeOp,
    SliceOp,
    TransposeOp,
)
from popgraph.dialects.graphcore.base import integer, shape_of
from popgraph.dialects.program.interned import tensor_type
from popgraph.dialects.tile.affine import permutation
from popgraph.dialects.tile.structured.ops import element
from popgraph.passes.graphcore.to_structured.elements import Operand, attribute, body, same
from popgraph.passes.graphcore.to_structured.elementwise import broadcast_map, mapped
from popgraph.support.shapes import Shape


def viewed(value: SSAValue, shape: Sequence[int]) -> SSAValue:
    """A view of `value` with another shape; `value` itself if it has that shape."""
    return value if shape_of(value) == tuple(shape) else tile.ViewOp(value, shape).output


def moved(value: SSAValue, map_: AffineMap, shape: Sequence[int]) -> SSAValue:
    """A tensor of `shape` with result[i] = value[map(i)]."""
    return mapped([value], [map_], shape, element(value), same)


def assembled(
    pieces: Sequence[SSAValue],
    offsets: Sequence[Sequence[int]],
    steps: Sequence[Sequence[int]],
    shape: Sequence[int],
    fill: object = 0,
) -> SSAValue:
    """A tensor of `shape` assembled from pieces; elements outside all pieces are `fill`."""
    kind = element(pieces[0])
    return tile.AssembleOp(
        pieces, offsets, steps, attribute(fill, kind), tensor_type(kind, shape)
    ).output


def lower_reshape(op: ReshapeOp) -> SSAValue:
    """reshape(x)  ->  tile.view x"""
    return tile.ViewOp(op.x, op.shape.data).output


def lower_transpose(op: TransposeOp) -> SSAValue:
    """transpose(x)  ->  tile.map x[d1, d0]"""
    return moved(op.x, permutation(list(op.perm)), shape_of(op.result))


def lower_broadcast(op: BroadcastOp) -> SSAValue:
    """broadcast(x)  ->  tile.map x[d1, 0]"""
    shape = shape_of(op.result)
    return moved(op.x, broadcast_map(shape_of(op.x), shape), shape)


def lower_slice(op: SliceOp) -> SSAValue:
    """slice(x)  ->  tile.map x[start + step * d0]"""
    places = [
        AffineExpr.dimension(axis) * step + start
        for axis, (start, step) in enumerate(zip(op.starts, op.steps, strict=True))
    ]
    return moved(op.x, AffineMap(len(places), 0, tuple(places)), shape_of(op.result))


def lower_concat(op: ConcatOp) -> SSAValue:
    """concat(a, b)  ->  tile.assemble(a, b)"""
    shape: Shape = shape_of(op.result)
    axis, start = integer(op.axis), 0
    offsets = []
    for x in op.xs:
        offsets.append([start if at == axis else 0 for at in range(len(shape))])
        start += shape_of(x)[axis]
    return assembled(list(op.xs), offsets, [[1] * len(shape)] * len(op.xs), shape)


def lower_pad(op: PadOp) -> SSAValue:
    """pad(x)  ->  tile.assemble(x)"""
    steps = [gap + 1 for gap in op.interior]
    return assembled([op.x], [op.low.data], [steps], shape_of(op.result), op.fill.item())


def lower_insert(op: InsertOp) -> SSAValue:
    """
    insert(x, piece)  ->  tile.scatter piece to x[d0 + start]

    The result begins as x, so it is computed in the memory of x where x is dead: only the piece is
    written.
    """
    sizes, kind, rank = shape_of(op.piece), element(op.piece), len(op.starts)
    if sizes == shape_of(op.x):
        return op.piece
    whole = zip(op.starts, sizes, shape_of(op.x), strict=True)
    leading = next((at for at, (_, size, dim) in enumerate(whole) if size != dim), rank)

    def write(value: SSAValue) -> list[Operand]:
        return [*(_shifted(axis, start) for axis, start in enumerate(op.starts)), value]

    return tile.ScatterOp(
        [op.piece],
        [AffineMap.identity(rank)],
        sizes,
        leading,
        body([kind], write),
        tensor_type(kind, shape_of(op.x)),
        op.x,
        body([kind, kind], lambda old, value: value),
    ).output


def _shifted(axis: int, start: int) -> Operand:
    """The index of a loop plus a constant."""
    index = tile.IndexOp(axis)
    if not start:
        return index
    return arith.AddiOp(index, arith.ConstantOp(IntegerAttr.from_index_int_value(start)))
