"""
Operators that write updates at indices: Scatter, ScatterND, TensorScatter, PopART's ScatterReduce.

Each becomes one scatter into flattened data, or of whole slices along one axis.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, dtype_of, shape_of
from popgraph.dialects.onnx.record import Conflicts
from popgraph.dialects.onnx.type_errors import TypeConflict
from popgraph.dialects.onnx.view import NodeView
from popgraph.operators.complaints import at_least, differ, in_range, of_rank, of_shape, shown
from popgraph.operators.lookups import (
    from_start,
    i64_scalar,
    indices_along_axis,
    indices_of_rows,
    leading,
    never_negative,
    places_along,
    places_of_rows,
    require_gather_elements,
    require_gather_nd,
    within,
)
from popgraph.operators.movement import I64, reshaped, sliced
from popgraph.operators.node import Node
from popgraph.operators.record import GRAPHCORE, Bounds, Lowered, bounds, chooses, lowers, requires
from popgraph.operators.reductions import limit
from popgraph.support import shapes
from popgraph.support.errors import TypeMismatchError
from popgraph.support.shapes import Shape, prod

OF_TRUTHS = {"add": "max", "mul": "min"}
"""The reductions of bools: a sum is OR, a product is AND."""


bounds("Scatter", "ScatterElements")(indices_along_axis)
bounds("ScatterND")(indices_of_rows)
chooses("ScatterElements", "ScatterND", reduction=("none", "add", "mul", "max", "min"))


@requires("Scatter", "ScatterElements")
def require_scatter_elements(node: NodeView) -> Conflicts:
    yield from require_gather_elements(node)
    indices = node.shape_of(1)
    if indices is not None:
        yield from of_shape(node, 2, *indices)


@lowers("Scatter", "ScatterElements")
def scatter_elements(node: Node) -> Lowered:
    """Scatters into flattened data: `indices` along the axis, an iota along the others."""
    axis = node.axis(node.integer("axis"))
    along = from_start(node, 1, node.shape[axis])
    places = places_along(node, node.shape, axis, along)
    count = (prod(shape_of(node[1])),)
    return _scattered(node, (prod(node.shape),), node[2], reshaped(places, count), count)


@requires("ScatterND")
def require_scatter_nd(node: NodeView) -> Conflicts:
    yield from require_gather_nd(node)
    data, indices = node.shape_of(0), node.shape_of(1)
    if data is not None and indices is not None and isinstance(indices[-1], int):
        yield from of_shape(node, 2, *indices[:-1], *data[indices[-1] :])


@lowers("ScatterND")
def scatter_nd(node: Node) -> Lowered:
    """Scatters slices into data whose indexed axes are merged into one."""
    lead, rest = leading(node)
    places = places_of_rows(node)
    return _scattered(node, (prod(lead), *rest), node[2], places, (*shape_of(places), *rest))


def _scattered(
    node: Node, shape: Shape, updates: SSAValue, places: SSAValue, wanted: Shape
) -> Operand:
    """Scatters updates of shape `wanted` along axis 0 into the first input of shape `shape`."""
    data, updates = reshaped(node[0], shape), reshaped(updates, wanted)
    reduction = _of_type(node, node.text("reduction", "none"))
    result = gc.ScatterOp(data, updates, places, axis=0, reduction=reduction)
    return reshaped(result, node.shape)


def _of_type(node: Node, reduction: str) -> str:
    return OF_TRUTHS.get(reduction, reduction) if node.dtype.name == "bool" else reduction


@requires("TensorScatter")
def require_tensor_scatter(node: NodeView) -> Conflicts:
    cache, axis = node.shape_of(0), node.integer("axis", -2)
    yield from at_least(node, 0, 2)
    yield from in_range("axis", [axis], node.rank_of(0))
    if cache is None:
        return
    axis %= len(cache)
    if axis == 0:
        yield TypeConflict("`axis` is 0, the batch", "use the axis of the sequence")
    yield from of_rank(node, 1, len(cache))
    update = node.shape_of(1) or ()
    for place, (have, wanted) in enumerate(zip(cache, update, strict=False)):
        if place != axis and differ(have, wanted):
            yield TypeConflict(
                f"the cache is {shown(cache)}, but the update {shown(update)}",
                f"their sizes may only differ along axis {axis}",
            )
    room, wanted = cache[axis], update[axis] if axis < len(update) else None
    if isinstance(room, int) and isinstance(wanted, int) and wanted > room:
        yield TypeConflict(
            f"an update of length {wanted} does not fit a cache of length {room}",
            "use a cache at least as long as the update",
        )
    yield from of_shape(node, 2, cache[0])


@bounds("TensorScatter")
def starts_in_cache(node: NodeView) -> Iterator[Bounds]:
    """Bounds of starts, so that updates end inside the cache; a circular cache has none."""
    cache, update = node.static_shape_of(0), node.static_shape_of(1)
    axis = node.integer("axis", -2)
    if cache and update and node.text("mode") != "circular":
        yield Bounds(2, "index", (-cache[axis],), (cache[axis] - update[axis],))


chooses("TensorScatter", mode=("linear", "circular"))


@lowers("TensorScatter")
def tensor_scatter(node: Node) -> Lowered:
    """Writes the sequences of a batch into a cache, each from its own start."""
    axis = node.axis(node.integer("axis", -2))
    size, update = node.shape[axis], shape_of(node[1])
    lead, rest = node.shape[: axis + 1], node.shape[axis + 1 :]
    shape = update[: axis + 1]
    along: Operand = gc.IotaOp(shape=shape, axis=axis, dtype=I64)
    if node.optional(2) is not None:
        first = gc.ReshapeOp(node[2], shape=(shape[0], *[1] * axis))
        along = _wrapped(node, gc.AddOp(first, along), size)
    places = places_along(node, lead, axis, along)
    return _scattered(node, (prod(lead), *rest), node[1], places, (*shape, *rest))


def _wrapped(node: Node, places: Operand, size: int) -> Operand:
    """Indices into a cache: clamped, or wrapped around in a circular one."""
    if node.text("mode", "linear") != "circular":
        return within(node, places, size)
    length = i64_scalar(node, max(1, size))
    return gc.RemOp(gc.AddOp(gc.RemOp(places, length), length), length)


REDUCTIONS = {"sum": "add", "mul": "mul", "max": "max", "min": "min", "none": "none"}
"""graphcore's reductions by PopART's names."""


@bounds("ScatterReduce", domain=GRAPHCORE)
def places_of_results(node: NodeView) -> Iterator[Bounds]:
    """Indices into the initial values, or below `axis_size`."""
    initial, axis = node.static_shape_of(2), node.integer("axis", -1)
    size = node.integer("axis_size", 1)
    if initial is not None and -len(initial) <= axis < len(initial):
        size = initial[axis]
    if size > 0:
        yield Bounds(1, "index", (0,), (size - 1,))


@lowers("ScatterReduce", domain=GRAPHCORE)
def scatter_reduce(node: Node) -> Lowered:
    """
    Scatters with a reduction; elements without updates are 1 for "mul", else 0.

    Initial values, if given, replace these. With groups, axis 0 is a batch of independent scatters.
    """
    word = node.text("reduction", "sum").lower()
    axis, group = node.axis(node.integer("axis", -1)), node.integer("group_size", 1)
    if word not in REDUCTIONS:
        raise _wrong(f"reduction {word!r}", f"use one of {', '.join(REDUCTIONS)}")
    if not dtype_of(node[1]).is_integer:
        raise _wrong(f"indices of {dtype_of(node[1]).name}", "indices must be integers")
    if node.integer("axis_size") < 1 or group < 1 or (group > 1 and axis == 0):
        sizes = f"axis_size {node.integer('axis_size')}, group_size {group} and axis {axis}"
        raise _wrong(sizes, "sizes must be 1 or more; with groups, axis 0 is the group")
    return _reduced(node, word, axis, group > 1)


def _wrong(what: str, hint: str) -> TypeMismatchError:
    return TypeMismatchError(f"ScatterReduce does not support {what}", hint=hint)


def _reduced(node: Node, word: str, axis: int, grouped: bool) -> Lowered:
    scattering = Scattering.of(node, axis, grouped)
    reduction = _of_type(node, REDUCTIONS[word])
    initial = node.optional(2)
    if initial is not None:
        return scattering.into(initial, reduction)
    ones = {"mul": 1, "max": limit(node.dtype, largest=False), "min": limit(node.dtype, True)}
    start = scattering.filled(node.scalar(ones.get(reduction, 0)))
    result = scattering.into(start, reduction)
    if reduction not in ("max", "min") or word == "mul":
        return result
    return gc.WhereOp(scattering.touched(), result, node.scalar(0))


def _check_room(data: Shape, initial: Shape, axis: int) -> None:
    pairs = zip(data, initial, strict=False)
    if len(data) != len(initial) or any(
        have > room for place, (have, room) in enumerate(pairs) if place != axis
    ):
        raise _wrong(
            f"initial values of shape {shapes.text(initial)} for {shapes.text(data)}",
            f"no axis but {axis} may be shorter than that of the data",
        )


def _side_by_side(node: Node, axis: int, grouped: bool) -> tuple[SSAValue, Shape]:
    """The data and the shape of its indices, aligned: equal, or a vector along the axis."""
    shape = shapes.expanded_indices_shape(shape_of(node[1]), node.rank, axis, grouped)
    pairs = list(zip(shape, node.shape, strict=False))
    stretched = bool(node.integer("enable_index_broadcast", 1))
    fits = (one in (1, other) if stretched else one <= other for one, other in pairs)
    if len(shape) != node.rank or not all(fits):
        raise _wrong(
            f"indices of shape {shapes.text(shape_of(node[1]))} for data of shape "
            f"{shapes.text(node.shape)}",
            "indices must have the data's shape, or be a vector along the axis",
        )
    if stretched:
        return node[0], shape
    return sliced(node[0], {at: (0, size, 1) for at, size in enumerate(shape)}), shape


@dataclass(frozen=True)
class Scattering:
    """Data, the shape of its indices (which broadcasts to the data's), and the result's shape."""

    node: Node
    data: SSAValue
    indices: Shape
    axis: int
    shape: Shape

    @classmethod
    def of(cls, node: Node, axis: int, grouped: bool) -> Scattering:
        """A scatter into the shape of the initial values, or of the data with `axis_size`."""
        data, indices = _side_by_side(node, axis, grouped)
        initial = node.optional(2)
        shape = list(shape_of(data))
        shape[axis] = node.integer("axis_size")
        if initial is not None:
            _check_room(shape_of(data), shape_of(initial), axis)
            shape = list(shape_of(initial))
        return cls(node, data, indices, axis, tuple(shape))

    def filled(self, value: SSAValue) -> SSAValue:
        return gc.BroadcastOp(value, shape=self.shape).result

    def touched(self) -> Operand:
        """The mask of elements that have updates."""
        false, true = (self.node.literal(np.array(truth)) for truth in (False, True))
        ones = gc.BroadcastOp(true, shape=shape_of(self.data)).result
        return replace(self, data=ones).into(self.filled(false), "max")

    @property
    def is_of_slices(self) -> bool:
        """Whether each index moves a whole slice of the data, so that nothing is flattened."""
        data, axis = shape_of(self.data), self.axis
        sizes = enumerate(zip(data, self.shape, strict=True))
        alike = all(one == other for at, (one, other) in sizes if at != axis)
        return alike and prod(self.indices) == self.indices[axis] == data[axis]

    def into(self, start: SSAValue, reduction: str) -> Operand:
        """`start`, with the data scattered into it."""
        along = from_start(self.node, 1, self.shape[self.axis])
        if self.is_of_slices:
            vector = never_negative(reshaped(along, (prod(self.indices),)))
            return gc.ScatterOp(start, self.data, vector, axis=self.axis, reduction=reduction)
        each = gc.BroadcastOp(reshaped(along, self.indices), shape=shape_of(self.data))
        places = places_along(self.node, self.shape, self.axis, each)
        count = (prod(shape_of(places)),)
        flat = reshaped(start, (prod(self.shape),))
        updates, where = reshaped(self.data, count), reshaped(places, count)
        result = gc.ScatterOp(flat, updates, where, axis=0, reduction=reduction)
        return reshaped(result, self.shape)
