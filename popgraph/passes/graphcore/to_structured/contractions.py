"""Lowers matmuls, convolutions and their gradients to contractions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr, StringAttr, i32
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap

from popgraph.dialects import tile
from popgraph.dialects.graphcore import (
    ConvInPairsOp,
    ConvInputGradOp,
    ConvOp,
    ConvWeightGradOp,
    DotConvInputGradOp,
    DotConvOp,
    DotConvWeightGradOp,
    DotMatMulOp,
    MatMulInPairsOp,
    MatMulOp,
    PartsOp,
)
from popgraph.dialects.graphcore.base import integer, shape_of, tensor_of
from popgraph.dialects.tile.affine import selection
from popgraph.dialects.tile.structured.ops import element
from popgraph.dialects.tile.structured.product import accumulator_type, product_body
from popgraph.passes.graphcore.to_structured.elements import (
    body,
    computing_type,
    to_computing,
    to_element,
)
from popgraph.passes.graphcore.to_structured.elementwise import each, mapped
from popgraph.passes.graphcore.to_structured.lower_movement import viewed
from popgraph.passes.graphcore.to_structured.sliding import (
    collect_at,
    dimensions,
    padded,
    read_at,
    reversed_places,
    spread,
)
from popgraph.support.shapes import Shape
from popgraph.support.words import IN_PAIRS

AnyInputGrad: TypeAlias = ConvInputGradOp | DotConvInputGradOp


def factor(value: SSAValue) -> SSAValue:
    """An operand in its computing type: f16 and bf16 as f32, unsigned integers as signless ones."""
    source = element(value)
    if computing_type(source) == source:
        return value
    return each(value, computing_type(source), lambda x: to_computing(x, source))


def contract(
    lhs: SSAValue,
    rhs: SSAValue,
    places: tuple[Sequence[AffineExpr], Sequence[AffineExpr]],
    domain: Sequence[int],
    parallel: int,
    result: Attribute,
    words: StringAttr | None = None,
) -> SSAValue:
    """The contraction of both operands, indexed by `places`; loops after `parallel` are summed."""
    lhs, rhs = factor(lhs), factor(rhs)
    maps = [AffineMap(len(domain), 0, tuple(place)) for place in places]
    epilogue = body(
        [accumulator_type(element(lhs), words)], lambda total: to_element(total, result)
    )
    return tile.contraction(
        lhs, rhs, maps, domain, parallel, epilogue, [result], words=words
    ).outputs[0]


def words_of(op: Operation) -> StringAttr | None:
    """The packed words of an operation; None if it multiplies numbers."""
    dots = DotMatMulOp | DotConvOp | DotConvInputGradOp | DotConvWeightGradOp
    return op.words if isinstance(op, dots) else None


def lower_mat_mul(op: MatMulOp | DotMatMulOp) -> SSAValue:
    """mat_mul(a, b)  ->  sum of a[batch, i, k] * b[batch, k, j] over k"""
    left_shape, right_shape = shape_of(op.lhs), shape_of(op.rhs)
    result = shape_of(op.result)
    domain = (*result, left_shape[-1])
    batch, (i, j, k) = dimensions(len(result) - 2, 3)

    def stretched(shape: Shape) -> list[AffineExpr]:
        """Index expressions of an operand's batch axes; axes of size 1 broadcast."""
        own = shape[:-2]
        aligned = zip(own, batch[len(batch) - len(own) :], strict=True)
        return [AffineExpr.constant(0) if size == 1 else at for size, at in aligned]

    places = ([*stretched(left_shape), i, k], [*stretched(right_shape), k, j])
    element_ = tensor_of(op.result).element_type
    return contract(op.lhs, op.rhs, places, domain, len(result), element_, words_of(op))


def lower_parts(op: PartsOp) -> SSAValue:
    """parts(x)  ->  tile.map (x >> d1 * bits) & mask over d0, d1"""
    shape, axis, count = shape_of(op.x), integer(op.axis), integer(op.count)
    domain = (*shape[: axis + 1], count, *shape[axis + 1 :])
    dims = [dim for dim in range(len(domain)) if dim != axis + 1]
    map_ = AffineMap(len(domain), 0, selection(dims).results)

    def part(x: SSAValue) -> Operation:
        place = arith.IndexCastOp(tile.IndexOp(axis + 1), i32)
        bits = arith.MuliOp(place, arith.ConstantOp(IntegerAttr(integer(op.bits), i32)))
        shifted = arith.ShRSIOp(x, bits)
        return arith.AndIOp(shifted, arith.ConstantOp(IntegerAttr(integer(op.mask), i32)))

    return viewed(mapped([op.x], [map_], domain, element(op.x), part), shape_of(op.result))


def split(value: SSAValue, axis: int, groups: int) -> SSAValue:
    """`value` with an axis split into [groups, size / groups], if there are several groups."""
    shape = shape_of(value)
    if groups == 1:
        return value
    return viewed(value, (*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :]))


def lower_conv(op: ConvOp | DotConvOp) -> SSAValue:
    """conv(x, w)  ->  sum of padded x[n, g, c, s*o + d*k] * w[g, m, c, k] over c, k"""
    groups, weight, result = integer(op.groups), shape_of(op.w), shape_of(op.result)
    geometry, sizes = op.geometry(weight), result[2:]
    grouped = [groups] if groups > 1 else []
    parallel = [result[0], *grouped, weight[0] // groups, *sizes]
    n, g, m, o, c, k = dimensions(1, len(grouped), 1, len(sizes), 1, len(sizes))
    x = split(padded(factor(op.x), geometry, sizes), 1, groups)
    w = split(op.w, 0, groups)
    places = ([*n, *g, *c, *read_at(o, k, geometry)], [*g, *m, *c, *k])
    domain, element_ = (*parallel, *weight[1:]), tensor_of(op.result).element_type
    y = contract(x, w, places, domain, len(parallel), element_, words_of(op))
    return viewed(y, result)


def lower_mat_mul_in_pairs(op: MatMulInPairsOp) -> SSAValue:
    """
    mat_mul_in_pairs(a, b, offset)  ->  sum over blocks of f(sum of a[i, k] * b[k, j], offset)
    """
    result, (terms, _) = shape_of(op.result), shape_of(op.rhs)
    batch, (i, j, at, k) = dimensions(len(result) - 2, 4)
    place = at * integer(op.block) + k
    places = ([*batch, i, place], [place, j], [at, j])
    return _in_pairs(op, places, result, [terms // integer(op.block)])


def lower_conv_in_pairs(op: ConvInPairsOp) -> SSAValue:
    """
    conv_in_pairs(x, w, offset)  ->  sum over k and blocks of f(sum of x[n, c, o + k] * w[m, c, k])
    """
    weight, result = shape_of(op.w), shape_of(op.result)
    geometry, sizes = op.geometry(weight), result[2:]
    n, m, o, k, (at, c) = dimensions(1, 1, len(sizes), len(sizes), 2)
    place = at * integer(op.block) + c
    x = padded(op.x, geometry, sizes)
    places = ([*n, place, *read_at(o, k, geometry)], [*m, place, *k], [*k, at, *m])
    return _in_pairs(op, places, result, [*weight[2:], weight[1] // integer(op.block)], x)


def _in_pairs(
    op: MatMulInPairsOp | ConvInPairsOp,
    places: Sequence[Sequence[AffineExpr]],
    parallel: Shape,
    blocks: Sequence[int],
    lhs: SSAValue | None = None,
) -> SSAValue:
    """The contraction whose blocks of terms are summed in 16 bits."""
    lhs, rhs = lhs or op.operands[0], op.operands[1]
    domain = (*parallel, *blocks, integer(op.block))
    ranks = (len(domain), len(domain), len(domain) - 1)
    first, second, third = (
        AffineMap(rank, 0, tuple(place)) for rank, place in zip(ranks, places, strict=True)
    )
    offsets, maps = ([], []) if op.offset is None else ([op.offset], [third])
    finish = body(
        [i32, *(i32 for _ in offsets)],
        lambda pairs, offset=None: tile.SumPairsOp(
            pairs, offset or arith.ConstantOp(IntegerAttr(0, i32))
        ),
    )
    words = StringAttr(IN_PAIRS.name)
    return tile.ReduceOp(
        [lhs, rhs],
        [first, second],
        domain,
        len(parallel),
        [IntegerAttr(0, i32)],
        product_body([i32, i32, i32], words),
        body([i32], lambda total: total),
        [i32],
        contracts=True,
        blocks=tile.Blocks(len(blocks), finish, offsets, maps),
    ).outputs[0]


def lower_conv_input_grad(op: AnyInputGrad) -> SSAValue:
    """
    conv_input_grad(dy, w)  ->  sum of spread dy[n, g, m, i + d*k] * w[g, m, c, K-1-k].

    dy is dilated by the strides, with zeros in between, and the kernel is flipped.
    """
    groups, weight, result = integer(op.groups), shape_of(op.w), op.shape.data
    geometry, space = op.geometry(weight), result[2:]
    grouped = [groups] if groups > 1 else []
    parallel = [result[0], *grouped, weight[1], *space]
    n, g, c, i, m, k = dimensions(1, len(grouped), 1, len(space), 1, len(space))
    dilated, shifts = spread(factor(op.dy), geometry, space)
    dy, w = split(dilated, 1, groups), split(op.w, 0, groups)
    places = (
        [*n, *g, *m, *collect_at(i, k, geometry, shifts)],
        [*g, *m, *c, *reversed_places(k, weight[2:])],
    )
    domain = (*parallel, weight[0] // groups, *weight[2:])
    element_ = tensor_of(op.result).element_type
    sums = contract(dy, w, places, domain, len(parallel), element_, words_of(op))
    return viewed(sums, result)


def lower_conv_weight_grad(op: ConvWeightGradOp | DotConvWeightGradOp) -> SSAValue:
    """conv_weight_grad(x, dy)  ->  sum of padded x[n, g, c, s*o + d*k] * dy[n, g, m, o]"""
    groups, result, windows = integer(op.groups), op.shape.data, shape_of(op.dy)
    geometry, sizes = op.geometry(result), windows[2:]
    grouped = [groups] if groups > 1 else []
    parallel = [*grouped, result[0] // groups, *result[1:]]
    g, m, c, k, n, o = dimensions(len(grouped), 1, 1, len(sizes), 1, len(sizes))
    x = split(padded(factor(op.x), geometry, sizes), 1, groups)
    dy = split(op.dy, 1, groups)
    places = ([*n, *g, *c, *read_at(o, k, geometry)], [*n, *g, *m, *o])
    domain = (*parallel, windows[0], *sizes)
    element_ = tensor_of(op.result).element_type
    sums = contract(x, dy, places, domain, len(parallel), element_, words_of(op))
    return viewed(sums, result)
