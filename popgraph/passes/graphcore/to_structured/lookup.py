"""Lowers gather to `tile.map`, scatter and the gradient of gather to `tile.scatter`, and iota."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.dialects import arith
from xdsl.dialects.builtin import IndexType, i64
from xdsl.ir import Attribute, Region, SSAValue
from xdsl.ir.affine import AffineMap

from popgraph.dialects import tile
from popgraph.dialects.graphcore import GatherGradOp, GatherOp, IotaOp, ScatterOp
from popgraph.dialects.graphcore.base import Tensor, integer, shape_of, tensor_of
from popgraph.dialects.program.interned import tensor_type
from popgraph.dialects.tile.affine import selection
from popgraph.dialects.tile.scalars import Kind
from popgraph.dialects.tile.structured.ops import element
from popgraph.passes.graphcore.to_structured.elements import (
    Operand,
    body,
    computing_type,
    kind_of,
    number,
    to_computing,
    to_element,
)
from popgraph.passes.graphcore.to_structured.elementwise import each, mapped
from popgraph.passes.graphcore.to_structured.scalars import TABLES, cast


def place_of(index: SSAValue, source: Attribute, size: int) -> Operand:
    """
    The position of an index: negative ones count from the end; all are clamped to the axis.

    Unsigned indices are positions already, so one minimum clamps them. Clamping keeps reads inside
    the tensor even before a run reports invalid indices.
    """
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
    """The map of a tensor indexed by `count` dimensions of a domain, starting at `first`."""
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
    return _narrowed(_scatter(op.dy, op.indices, integer(op.axis), tensor_of(op.result)), op.result)


def lower_scatter(op: ScatterOp) -> SSAValue:
    """
    scatter(data, updates, indices)  ->  tile.scatter updates to [d0, place(indices[d1]), d2].

    The result is initialized with data, in the computing type of a reduction.
    """
    source, reduction = element(op.data), op.reduction.data
    inner = source if reduction == "none" else computing_type(source)
    initial, combine = op.data, None
    if inner != source:
        initial = each(initial, inner, lambda x: to_computing(x, source))
    if reduction != "add":
        combine = body([inner, inner], _combination(reduction, source))
    total = _scatter(
        op.updates, op.indices, integer(op.axis), tensor_of(op.result), inner, initial, combine
    )
    return _narrowed(total, op.result)


def _combination(reduction: str, source: Attribute) -> Callable[..., Operand]:
    """The scalar function that combines the old and the new element."""
    return TABLES[kind_of(source)].get(reduction, lambda old, value: value)


def _scatter(
    updates: SSAValue,
    indices: SSAValue,
    axis: int,
    result: Tensor,
    inner: Attribute | None = None,
    initial: SSAValue | None = None,
    combine: Region | None = None,
) -> SSAValue:
    """Scatters slices of updates to indexed positions of a tensor with elements of type `inner`."""
    domain, count = shape_of(updates), len(shape_of(indices))
    source, index_source, shape = element(updates), element(indices), result.get_shape()
    kind = computing_type(source) if inner is None else inner

    def write(index: SSAValue, value: SSAValue) -> list[Operand]:
        place = place_of(index, index_source, shape[axis])
        after = indices_at(range(axis + count, len(domain)))
        entering = value if kind == source else to_computing(value, source)
        return [*indices_at(range(axis)), place, *after, entering]

    return tile.ScatterOp(
        [indices, updates],
        [index_map(axis, count, len(domain)), AffineMap.identity(len(domain))],
        domain,
        axis,
        body([index_source, source], write),
        tensor_type(kind, shape),
        initial,
        combine,
    ).output


def _narrowed(total: SSAValue, result: SSAValue) -> SSAValue:
    """Converts totals from their wider computing type to the element type of the result."""
    target = element(result)
    return (
        total if element(total) == target else each(total, target, lambda x: to_element(x, target))
    )


def lower_iota(op: IotaOp) -> SSAValue:
    """iota  ->  tile.map index d_axis"""
    element_ = tensor_of(op.result).element_type

    def write() -> Operand:
        index = arith.IndexCastOp(tile.IndexOp(integer(op.axis)), i64)
        return cast(index.result, i64, element_)

    return mapped([], [], op.shape.data, element_, write)
