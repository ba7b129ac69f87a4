"""Lowers ScatterElements, ScatterND and TensorScatter to scatters into flat data."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, shape_of
from popgraph.dialects.onnx.view import NodeView
from popgraph.operators.indexing import (
    from_start,
    leading,
    places_along,
    places_of_rows,
    within,
)
from popgraph.operators.movement import I64, reshaped
from popgraph.operators.node import Node
from popgraph.operators.record import Bounds, Lowered, bounds, chooses, lowers
from popgraph.support.shapes import Shape, prod

OF_TRUTHS = {"add": "max", "mul": "min"}
"""What a sum and a product of truths are."""


@lowers("Scatter", "ScatterElements")
def scatter_elements(node: Node) -> Lowered:
    """To the place along the axis that an index says, along the others to their own."""
    axis = node.axis(node.integer("axis"))
    indices, updates = shape_of(node[1]), node[2]
    along = from_start(node, 1, node.shape[axis])
    places = places_along(node, node.shape, axis, along)
    count = prod(indices)
    return _scattered(
        node, (prod(node.shape),), updates, reshaped_value(places, (count,)), (count,)
    )


@lowers("ScatterND")
def scatter_nd(node: Node) -> Lowered:
    """Slices of data whose leading axes are one: a row of indices is a place along it."""
    lead, rest = leading(node)
    places = places_of_rows(node)
    shape = (prod(lead), *rest)
    return _scattered(node, shape, node[2], places, (*shape_of(places), *rest))


def _scattered(
    node: Node, shape: Shape, updates: SSAValue, places: SSAValue, wanted: Shape
) -> Operand:
    """The first input, seen in a shape, with updates in that of the places, before what is left."""
    data, reduction = reshaped_value(node[0], shape), node.text("reduction", "none")
    updates = reshaped_value(updates, wanted)
    if node.dtype.name == "bool":
        reduction = OF_TRUTHS.get(reduction, reduction)
    result = gc.ScatterOp(data, updates, places, axis=0, reduction=reduction)
    return reshaped(result.result, node.shape)


@lowers("TensorScatter")
def tensor_scatter(node: Node) -> Lowered:
    """Sequences of a batch into a cache, each from a place of its own on."""
    axis = node.axis(node.integer("axis", -2))
    size, update = node.shape[axis], shape_of(node[1])
    lead, rest = node.shape[: axis + 1], node.shape[axis + 1 :]
    shape = update[: axis + 1]
    along: Operand = gc.IotaOp(shape=shape, axis=axis, dtype=I64)
    if node.optional(2) is not None:
        first = gc.ReshapeOp(node[2], shape=(shape[0], *[1] * axis))
        along = _turned(node, gc.AddOp(first, along), size)
    places = places_along(node, lead, axis, along)
    return _scattered(node, (prod(lead), *rest), node[1], places, (*shape, *rest))


def _turned(node: Node, places: Operand, size: int) -> Operand:
    """Places within a cache: those behind its end are at its start, if it is circular."""
    if node.text("mode", "linear") != "circular":
        return within(node, places, size)
    whole = node.literal(np.array(max(1, size)))
    left = gc.RemOp(places, whole)
    return gc.RemOp(gc.AddOp(left, whole), whole)


def reshaped_value(value: SSAValue, shape: Shape) -> SSAValue:
    return SSAValue.get(reshaped(value, shape))


chooses("ScatterElements", "ScatterND", reduction=("none", "add", "mul", "max", "min"))


chooses("TensorScatter", mode=("linear", "circular"))


@bounds("TensorScatter")
def starts_in_cache(node: NodeView) -> Iterator[Bounds]:
    """Where updates begin, so that they end in the cache; of a circular one, anywhere."""
    cache, update = node.static_shape_of(0), node.static_shape_of(1)
    axis = node.integer("axis", -2)
    if cache and update and node.text("mode") != "circular":
        yield Bounds(2, "index", (-cache[axis],), (cache[axis] - update[axis],))
