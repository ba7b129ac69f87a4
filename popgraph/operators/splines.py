"""PopART's SplineBasis and SplineWeighting, for spline convolutions on graphs."""

from __future__ import annotations

from functools import reduce

import numpy as np

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, dtype_of, shape_of
from popgraph.operators.arithmetic import as_i64, cast, computing
from popgraph.operators.movement import I64, reshaped, sliced
from popgraph.operators.node import Node
from popgraph.operators.record import GRAPHCORE, Lowered, lowers
from popgraph.support import dtypes
from popgraph.support.errors import TypeMismatchError
from popgraph.support.shapes import prod

COEFFICIENTS: dict[int, tuple[tuple[float, ...], ...]] = {
    1: ((1, -1), (0, 1)),
    2: ((0.5, -1, 0.5), (0.5, 1, -1), (0, 0, 0.5)),
    3: (
        (1 / 6, -1 / 2, 1 / 2, -1 / 6),
        (4 / 6, 0, -1, 1 / 2),
        (1 / 6, 1 / 2, 1 / 2, -1 / 2),
        (0, 0, 0, 1 / 6),
    ),
}
"""By degree, the pieces of a uniform B-spline, as coefficients of 1, v, v^2, ..."""


@lowers("SplineBasis", domain=GRAPHCORE)
def spline_basis(node: Node) -> Lowered:
    """The tensor-product basis at each point, and the index of each basis function's weight."""
    degree = node.integer("degree", 1)
    if degree not in COEFFICIENTS or node.rank != 2:
        raise TypeMismatchError(
            f"degree {degree} for points of {node.rank} axes",
            hint="use degree 1, 2 or 3, and points as rows of coordinates",
        )
    axes = node.shape[1]
    for index in (1, 2):
        if prod(shape_of(node[index])) != axes:
            raise TypeMismatchError(
                f"input {index} has the shape {list(shape_of(node[index]))} for {axes} coordinates",
                hint="give one element per coordinate",
            )
    digits = np.array(list(np.ndindex(*(degree + 1,) * axes))).reshape(-1, axes)[:, ::-1]
    factors: list[Operand] = []
    number: Operand | None = None
    step: Operand = node.literal(np.array(1, np.int64))
    for axis in range(axes):
        kernel = _number(node, 1, axis)
        first, part = _placed(node, axis, degree, kernel)
        piece = node.literal(np.ascontiguousarray(digits[:, axis]).astype(np.int64))
        factors.append(gc.GatherOp(_pieces(node, part, degree), piece, axis=1))
        own = gc.MulOp(gc.RemOp(gc.AddOp(first, piece), kernel), step)
        number = own if number is None else gc.AddOp(number, own)
        step = gc.MulOp(step, kernel)
    assert number is not None, "points have coordinates"
    basis = cast(reduce(gc.MulOp, factors), node.dtype)
    return [basis, cast(number, dtypes.BY_NAME["i32"])]


def _number(node: Node, index: int, axis: int) -> Operand:
    flat = as_i64(node, index)
    return reshaped(sliced(flat, {0: (axis, 1, 1)}), ())


def _placed(node: Node, axis: int, degree: int, kernel: Operand) -> tuple[Operand, Operand]:
    """The knot below a coordinate, and the distance from it, in [0, 1)."""
    wide = computing(node)
    open_ = _number(node, 2, axis)
    knots = gc.SubOp(kernel, gc.MulOp(open_, node.literal(np.array(degree, np.int64))))
    coordinate = cast(sliced(node[0], {1: (axis, 1, 1)}), wide)
    place = gc.MulOp(coordinate, cast(knots, wide))
    floor = gc.FloorOp(place)
    return cast(floor, dtypes.BY_NAME["i64"]), gc.SubOp(place, floor)


def _pieces(node: Node, part: Operand, degree: int) -> Operand:
    """The value of each piece, one per column, by Horner's rule."""
    kind = dtype_of(part)
    columns = []
    for terms in COEFFICIENTS[degree]:
        value: Operand = node.scalar(terms[-1], kind)
        for term in reversed(terms[:-1]):
            value = gc.AddOp(gc.MulOp(value, part), node.scalar(term, kind))
        columns.append(value)
    return gc.ConcatOp(columns, axis=1)


@lowers("SplineWeighting", domain=GRAPHCORE)
def spline_weighting(node: Node) -> Lowered:
    """
    y[r] = x[r] @ sum(basis[r, k] * weight[index[r, k]])

    One matmul: [rows, weights * channels] of each row scaled by each weight's share.
    """
    (rows, channels), (count, inputs, outputs) = node.shape, shape_of(node[1])
    wide = computing(node)
    basis, numbers = shape_of(node[2]), shape_of(node[3])
    if inputs != channels or basis != numbers or basis[:1] != (rows,):
        raise TypeMismatchError(
            "the inputs of SplineWeighting do not fit together",
            hint="weights must have the channels of x; basis and indices must have its rows",
        )
    shape = (*basis, count)
    weight = gc.IotaOp(shape=shape, axis=2, dtype=I64)
    number = gc.ReshapeOp(as_i64(node, 3), shape=(*basis, 1))
    share = gc.ReshapeOp(cast(node[2], wide), shape=(*basis, 1))
    taken = gc.WhereOp(gc.CompareOp(number, weight, predicate="eq"), share, node.scalar(0, wide))
    mixed = gc.ReshapeOp(gc.ReduceSumOp(taken, axes=(1,), keepdims=False), shape=(rows, count, 1))
    spread = gc.MulOp(mixed, gc.ReshapeOp(cast(node[0], wide), shape=(rows, 1, channels)))
    flat = reshaped(spread, (rows, count * channels))
    weights = reshaped(cast(node[1], wide), (count * channels, outputs))
    return cast(gc.MatMulOp(flat, weights), node.dtype)
