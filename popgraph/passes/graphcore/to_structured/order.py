"""Lowers top-k, compression, box suppression and segment reductions."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerType, f32, f64, i32, i64
from xdsl.ir import Attribute, SSAValue
from xdsl.ir.affine import AffineMap

from popgraph.dialects import tile
from popgraph.dialects.graphcore import ArgTopKOp, CompressOp, ReduceSegmentsOp, SuppressOp
from popgraph.dialects.graphcore.base import flag, integer, shape_of, tensor_of
from popgraph.dialects.tile.affine import permutation
from popgraph.dialects.tile.scalars import Kind
from popgraph.passes.graphcore.to_structured.elements import (
    Operand,
    attribute,
    body,
    computing_type,
    extended,
    kind_of,
    number,
    to_computing,
    to_element,
)
from popgraph.passes.graphcore.to_structured.elementwise import mapped
from popgraph.passes.graphcore.to_structured.lower_movement import moved, viewed
from popgraph.passes.graphcore.to_structured.lower_reductions import INITIAL
from popgraph.passes.graphcore.to_structured.scalars import TABLES
from popgraph.support.shapes import prod


def lower_arg_top_k(op: ArgTopKOp) -> SSAValue:
    """y = arg_top_k(x)  ->  y = tile.top_k of the rows of x along `axis`"""
    shape, axis, count = shape_of(op.x), integer(op.axis), integer(op.count)
    order = [*(at for at in range(len(shape)) if at != axis), axis]
    lead = [shape[at] for at in order[:-1]]
    rows = viewed(_in_order(op.x, order), (prod(lead), shape[axis]))
    found = tile.TopKOp(rows, count, body([tensor_of(op.x).element_type], _key(op)))
    back = sorted(range(len(shape)), key=order.__getitem__)
    return _in_order(viewed(found.output, (*lead, count)), back)


def _key(op: ArgTopKOp) -> Callable[[SSAValue], Operand]:
    """
    Maps an element to an unsigned key; the largest key is selected first.

    NaNs come first if the largest are selected, else last; -0.0 equals 0.0.
    """
    source = tensor_of(op.x).element_type
    kind = kind_of(source)

    def write(element: SSAValue) -> Operand:
        x = to_computing(element, source)
        if kind is Kind.FLOAT:
            key = _bits_in_order(x)
        else:
            wide = x if x.type in (i32, i64) else extended(x, kind, i32)
            key = _without_sign(wide) if kind is Kind.SIGNED else wide
        return key if flag(op.largest) else arith.XOrIOp(key, number(-1, key.type))

    return write


def _bits_in_order(x: SSAValue) -> SSAValue:
    """
    An unsigned integer in the order of floats; NaNs are the largest.

    Negative floats have all other bits inverted, since their order by bits is descending.
    """
    whole = i64 if x.type == f64 else i32
    bits = arith.BitcastOp(arith.AddfOp(x, number(0, x.type)), whole).result
    sign = arith.ShRSIOp(bits, number(whole.bitwidth - 1, whole)).result
    order = arith.XOrIOp(_without_sign(bits), arith.AndIOp(sign, number(_most(whole), whole)))
    return arith.SelectOp(arith.CmpfOp(x, x, "uno"), number(-1, whole), order).result


def _without_sign(x: SSAValue) -> SSAValue:
    """An unsigned integer in the order of signed ones: the smallest becomes 0."""
    assert isinstance(x.type, IntegerType)
    return arith.XOrIOp(x, number(-_most(x.type) - 1, x.type)).result


def _most(type_: IntegerType) -> int:
    return (1 << (type_.bitwidth - 1)) - 1


def _in_order(value: SSAValue, order: list[int]) -> SSAValue:
    if order == sorted(order):
        return value
    return moved(value, permutation(order), [shape_of(value)[axis] for axis in order])


def lower_compress(op: CompressOp) -> SSAValue:
    """y = compress(mask, data)  ->  p, n = tile.positions mask; y = tile.compress data, p, n"""
    found = tile.PositionsOp(op.mask)
    if op.data is None:
        return found.output
    return tile.CompressOp(op.data, found.output, found.count, integer(op.axis)).output


def lower_suppress(op: SuppressOp) -> SSAValue:
    """y = suppress(boxes, keys, limit, threshold)  ->  tile.suppress, which computes overlaps"""
    corners = body([f32] * 4, _centered if flag(op.centered) else _sorted)
    overlaps = body([f32] * 9, _overlaps)
    return tile.SuppressOp([*op.operands], integer(op.count), corners, overlaps).positions


def _sorted(*box: SSAValue) -> list[Operand]:
    """Sorts two corners into the low and the high one."""
    return [
        join(box[axis], box[axis + 2])
        for join in (arith.MinimumfOp, arith.MaximumfOp)
        for axis in (0, 1)
    ]


def _centered(*box: SSAValue) -> list[Operand]:
    """The corners of a box with a center and a size."""
    halves = [arith.MulfOp(size, number(0.5, f32)) for size in box[2:]]
    return [
        join(center, half)
        for join in (arith.SubfOp, arith.AddfOp)
        for center, half in zip(box[:2], halves, strict=True)
    ]


def _overlaps(*numbers: SSAValue) -> Operand:
    """intersection / union > threshold for two boxes (y0, x0, y1, x1); false if one is empty."""
    *sides, threshold = numbers
    first, second = sides[:4], sides[4:]
    zero = number(0, f32)
    spans, edges = [], []
    for low, high in ((0, 2), (1, 3)):
        start = arith.MaximumfOp(first[low], second[low])
        end = arith.MinimumfOp(first[high], second[high])
        spans.append(arith.SubfOp(end, start))
        edges.append(arith.CmpfOp(end, start, "ogt"))
    common = arith.MulfOp(spans[0], spans[1])
    areas = [
        arith.MulfOp(arith.SubfOp(box[2], box[0]), arith.SubfOp(box[3], box[1]))
        for box in (first, second)
    ]
    whole = arith.SubfOp(arith.AddfOp(areas[0], areas[1]), common)
    tests: list[Operand] = [
        *edges,
        *(arith.CmpfOp(area, zero, "ogt") for area in (*areas, whole)),
        arith.CmpfOp(arith.DivfOp(common, whole), threshold, "ogt"),
    ]
    return reduce(_both, tests)


def _both(one: Operand, other: Operand) -> Operand:
    return arith.AndIOp(one, other)


def lower_reduce_segments(op: ReduceSegmentsOp) -> SSAValue:
    """y = reduce_segments(rows, starts, ends)  ->  tile.segments with the combining function"""
    kind, combine = tensor_of(op.rows).element_type, op.combine.data
    join, inner = TABLES[kind_of(kind)][combine], computing_type(kind)
    fold = body([inner, inner], lambda element, total: join(total, element))
    start = attribute(INITIAL[combine](kind), inner)
    rows = op.rows
    if inner != kind:
        rows = _each(rows, inner, lambda x: to_computing(x, kind))
    made = tile.SegmentsOp([rows, op.starts, op.ends], start, fold).output
    return made if inner == kind else _each(made, kind, lambda x: to_element(x, kind))


def _each(value: SSAValue, kind: Attribute, write: Callable[[SSAValue], Operand]) -> SSAValue:
    """Applies `write` to every element, with another element type."""
    shape = shape_of(value)
    return mapped([value], [AffineMap.identity(len(shape))], shape, kind, write)
