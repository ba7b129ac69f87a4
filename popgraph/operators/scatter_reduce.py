"""Lowers PopART's ScatterReduce: elements combined by the places that indices give them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, dtype_of, shape_of
from popgraph.dialects.onnx.view import NodeView
from popgraph.operators.indexing import from_start, never_negative, places_along
from popgraph.operators.movement import reshaped, sliced
from popgraph.operators.node import Node
from popgraph.operators.record import GRAPHCORE, Bounds, Lowered, bounds, lowers
from popgraph.operators.reductions import limit
from popgraph.operators.scattering import OF_TRUTHS, reshaped_value
from popgraph.support import shapes
from popgraph.support.errors import TypeMismatchError
from popgraph.support.shapes import Shape, prod

REDUCTIONS = {"sum": "add", "mul": "mul", "max": "max", "min": "min", "none": "none"}
"""PopART's words for how elements combine."""


@lowers("ScatterReduce", domain=GRAPHCORE)
def scatter_reduce(node: Node) -> Lowered:
    """
    Places that nothing comes to are 1 in a product, else 0, unless there are initial values.

    Groups are one more axis along which every index has its own place.
    """
    word = node.text("reduction", "sum").lower()
    axis, group = node.axis(node.integer("axis", -1)), node.integer("group_size", 1)
    if word not in REDUCTIONS:
        raise _wrong(f"reduction {word!r}", f"one of {', '.join(REDUCTIONS)}")
    if not dtype_of(node[1]).is_integer:
        raise _wrong(f"indices of {dtype_of(node[1]).name}", "indices are whole numbers")
    if node.integer("axis_size") < 1 or group < 1 or (group > 1 and axis == 0):
        sizes = f"axis_size {node.integer('axis_size')}, group_size {group} and axis {axis}"
        raise _wrong(sizes, "sizes are 1 or more; axis 0 counts the groups, if there are any")
    return _reduced(node, word, axis, group > 1)


def _wrong(what: str, hint: str) -> TypeMismatchError:
    return TypeMismatchError(f"ScatterReduce cannot be with {what}", hint=hint)


def _reduced(node: Node, word: str, axis: int, grouped: bool) -> Lowered:
    scattering = _scattering(node, axis, grouped)
    reduction = REDUCTIONS[word]
    if node.dtype.name == "bool":
        reduction = OF_TRUTHS.get(reduction, reduction)
    initial = node.optional(2)
    if initial is not None:
        return scattering.into(initial, reduction)
    is_extreme = reduction in ("max", "min")
    ones = {"mul": 1, "max": limit(node.dtype, largest=False), "min": limit(node.dtype, True)}
    start = scattering.filled(node.scalar(ones.get(reduction, 0)))
    result = scattering.into(start, reduction)
    if not is_extreme or word == "mul":
        return result
    return gc.WhereOp(scattering.touched(), result, node.scalar(0))


def _scattering(node: Node, axis: int, grouped: bool) -> Scattering:
    """Where the elements go, in a result whose shape initial values say, or data and indices."""
    data, indices = _side_by_side(node, axis, grouped)
    initial = node.optional(2)
    shape = list(shape_of(data))
    shape[axis] = node.integer("axis_size")
    if initial is not None:
        _check_room(shape_of(data), shape_of(initial), axis)
        shape = list(shape_of(initial))
    return Scattering(node, data, indices, axis, tuple(shape))


def indices_are_whole(node: Node) -> bool:
    """Whether indices stand for themselves and are not stretched to the data."""
    return not node.integer("enable_index_broadcast", 1)


def _check_room(data: Shape, initial: Shape, axis: int) -> None:
    pairs = zip(data, initial, strict=False)
    if len(data) != len(initial) or any(
        have > room for place, (have, room) in enumerate(pairs) if place != axis
    ):
        raise _wrong(
            f"initial values of shape {shapes.text(initial)} for {shapes.text(data)}",
            f"there is a place for every element; only axis {axis} may be shorter",
        )


def _side_by_side(node: Node, axis: int, grouped: bool) -> tuple[SSAValue, Shape]:
    """The data and the shape of its indices: the same, or that of a vector along the axis."""
    shape = shapes.beside_data(shape_of(node[1]), node.rank, axis, grouped)
    pairs = list(zip(shape, node.shape, strict=False))
    whole = indices_are_whole(node)
    fits = (one <= other if whole else one in (1, other) for one, other in pairs)
    if len(shape) != node.rank or not all(fits):
        raise _wrong(
            f"indices of shape {shapes.text(shape_of(node[1]))} for data of shape "
            f"{shapes.text(node.shape)}",
            "they have the data's shape, or are a vector along the axis",
        )
    if whole:
        parts = {at: (0, size, 1) for at, size in enumerate(shape)}
        return SSAValue.get(sliced(node[0], parts)), shape
    return node[0], shape


@dataclass(frozen=True)
class Scattering:
    """Data, the shape of its indices, which stretches to that of the data, and of the result."""

    node: Node
    data: SSAValue
    indices: Shape
    axis: int
    shape: Shape

    def filled(self, value: SSAValue) -> SSAValue:
        return gc.BroadcastOp(value, shape=self.shape).result

    def touched(self) -> Operand:
        """Whether anything comes to a place."""
        false, true = (self.node.literal(np.array(truth)) for truth in (False, True))
        ones = gc.BroadcastOp(true, shape=shape_of(self.data)).result
        return replace(self, data=ones).into(self.filled(false), "max")

    @property
    def is_of_slices(self) -> bool:
        """Whether whole slices go to one place, for each of which there is one in the result."""
        data, axis = shape_of(self.data), self.axis
        alike = all(one == other for at, one, other in self._sizes(data) if at != axis)
        return alike and prod(self.indices) == self.indices[axis] == data[axis]

    def _sizes(self, data: Shape) -> list[tuple[int, int, int]]:
        return list(zip(range(len(data)), data, self.shape, strict=True))

    def into(self, start: SSAValue, reduction: str) -> Operand:
        """The result, which begins as `start`."""
        along = from_start(self.node, 1, self.shape[self.axis])
        if self.is_of_slices:
            vector = never_negative(reshaped(SSAValue.get(along), (prod(self.indices),)))
            return gc.ScatterOp(start, self.data, vector, axis=self.axis, reduction=reduction)
        return self._one_by_one(start, reshaped_value(SSAValue.get(along), self.indices), reduction)

    def _one_by_one(self, start: SSAValue, along: SSAValue, reduction: str) -> Operand:
        whole = gc.BroadcastOp(along, shape=shape_of(self.data))
        places = places_along(self.node, self.shape, self.axis, whole)
        count = (prod(shape_of(places)),)
        flat = reshaped_value(start, (prod(self.shape),))
        updates, where = reshaped_value(self.data, count), reshaped_value(places, count)
        result = gc.ScatterOp(flat, updates, where, axis=0, reduction=reduction)
        return reshaped(result.result, self.shape)


@bounds("ScatterReduce", domain=GRAPHCORE)
def places_of_results(node: NodeView) -> Iterator[Bounds]:
    """Places of the initial values, or as many as the node says."""
    initial, axis = node.static_shape_of(2), node.integer("axis", -1)
    size = node.integer("axis_size", 1)
    if initial is not None and -len(initial) <= axis < len(initial):
        size = initial[axis]
    if size > 0:
        yield Bounds(1, "index", (0,), (size - 1,))
