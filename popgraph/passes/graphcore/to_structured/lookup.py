"""Lowers gather to `tile.map`, its gradient to `tile.scatter`, and iota to loop indices."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith
from xdsl.dialects.builtin import IndexType, i64
from xdsl.ir import Attribute, SSAValue
from xdsl.ir.affine import AffineMap

from popgraph.dialects import tile
from popgraph.dialects.graphcore import GatherGradOp, GatherOp, IotaOp
from popgraph.dialects.graphcore.base import integer, shape_of, tensor_of
from popgraph.dialects.program.interned import tensor_type
from popgraph.dialects.tile.affine import selection
from popgraph.dialects.tile.scalars import Kind
from popgraph.dialects.tile.structured.ops import element
from popgraph.passes.graphcore.to_structured.elements import (
    Operand,
    body,
    computing,
    entered,
    kind_of,
    left,
    number,
)
from popgraph.passes.graphcore.to_structured.elementwise import each, mapped
from popgraph.passes.graphcore.to_structured.scalars import cast


def place_of(index: SSAValue, source: Attribute, size: int) -> Operand:
    """The place that an index means: negative ones count from the end, all are kept in range."""
    place = SSAValue.get(cast(index, source, i64))
    if kind_of(source) is Kind.UNSIGNED:
        last = number(max(0, size - 1), i64)
        return arith.IndexCastOp(arith.MinUIOp(place, last), IndexType())
    zero = number(0, i64)
    from_end = arith.AddiOp(place, number(size, i64))
    place = arith.SelectOp(arith.CmpiOp(place, zero, "slt"), from_end, place).result
    last = number(max(0, size - 1), i64)
    return arith.IndexCastOp(arith.MinSIOp(arith.MaxSIOp(place, zero), last), IndexType())


def index_map(first: int, count: int, rank: int) -> AffineMap:
    """The map of a tensor that runs along `count` dimensions of a domain, from `first` on."""
    return selection(range(first, first + count), rank)


def indices_at(dims: Sequence[int]) -> list[Operand]:
    return [tile.IndexOp(dim) for dim in dims]


def lower_gather(op: GatherOp) -> SSAValue:
    """gather(data, indices)  ->  tile.map data[d0, place(indices[d1]), d2]"""
    axis, domain, count = integer(op.axis), shape_of(op.result), len(shape_of(op.indices))
    size, source = shape_of(op.data)[axis], element(op.indices)

    def write(index: SSAValue, table: SSAValue) -> Operand:
        place = place_of(index, source, size)
        before, after = range(axis), range(axis + count, len(domain))
        places = [SSAValue.get(at) for at in (*indices_at(before), place, *indices_at(after))]
        return tile.ElementOp(table, places)

    region = body([source, op.data.type], write)
    maps = [index_map(axis, count, len(domain))]
    return tile.MapOp(
        [op.indices], maps, domain, region, [element(op.data)], tables=[op.data]
    ).outputs[0]


def lower_gather_grad(op: GatherGradOp) -> SSAValue:
    """gather_grad(dy, indices)  ->  tile.scatter dy to [d0, place(indices[d1]), d2]"""
    axis, domain, count = integer(op.axis), shape_of(op.dy), len(shape_of(op.indices))
    source, index_source = element(op.dy), element(op.indices)

    def write(index: SSAValue, value: SSAValue) -> list[Operand]:
        place = place_of(index, index_source, integer(op.size))
        after = indices_at(range(axis + count, len(domain)))
        return [*indices_at(range(axis)), place, *after, entered(value, source)]

    total = tile.ScatterOp(
        [op.indices, op.dy],
        [index_map(axis, count, len(domain)), AffineMap.identity(len(domain))],
        domain,
        axis,
        body([index_source, source], write),
        tensor_type(computing(source), shape_of(op.result)),
    ).output
    return total if element(total) == source else each(total, source, lambda x: left(x, source))


def lower_iota(op: IotaOp) -> SSAValue:
    """iota  ->  tile.map index d_axis"""
    element_ = tensor_of(op.result).element_type

    def write() -> Operand:
        index = arith.IndexCastOp(tile.IndexOp(integer(op.axis)), i64)
        return cast(index.result, i64, element_)

    return mapped([], [], op.shape.data, element_, write)
