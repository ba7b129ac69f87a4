"""What lookups ask of their indices, and of the axes along which they look."""

from __future__ import annotations

from popgraph.dialects.onnx.record import Complaints
from popgraph.dialects.onnx.type_errors import TypeConflict
from popgraph.dialects.onnx.view import NodeView, PartialShape
from popgraph.operators.complaints import (
    at_least,
    differ,
    in_range,
    of_rank,
    of_shape,
    one_element,
    shown,
)
from popgraph.operators.record import requires


@requires("Gather")
def gather(node: NodeView) -> Complaints:
    yield from in_range("axis", [node.integer("axis")], node.rank_of(0))


@requires("Scatter", "ScatterElements")
def scatter_elements(node: NodeView) -> Complaints:
    yield from gather_elements(node)
    indices = node.shape_of(1)
    if indices is not None:
        yield from of_shape(node, 2, *indices)


@requires("ScatterND")
def scatter_nd(node: NodeView) -> Complaints:
    yield from gather_nd(node)
    data, indices = node.shape_of(0), node.shape_of(1)
    if data is not None and indices is not None and isinstance(indices[-1], int):
        yield from of_shape(node, 2, *indices[:-1], *data[indices[-1] :])


@requires("TensorScatter")
def tensor_scatter(node: NodeView) -> Complaints:
    cache, axis = node.shape_of(0), node.integer("axis", -2)
    yield from at_least(node, 0, 2)
    yield from in_range("axis", [axis], node.rank_of(0))
    if cache is None:
        return
    axis %= len(cache)
    if axis == 0:
        yield TypeConflict("axis 0 counts the batch", "the axis of the sequence comes behind it")
    yield from of_rank(node, 1, len(cache))
    update = node.shape_of(1) or ()
    for place, (have, wanted) in enumerate(zip(cache, update, strict=False)):
        if place != axis and differ(have, wanted):
            yield TypeConflict(
                f"a cache {shown(cache)} gets an update {shown(update)}",
                f"but for axis {axis} they have the same sizes",
            )
    yield from longer_than(cache, update, axis)
    yield from of_shape(node, 2, cache[0])


def longer_than(cache: PartialShape, update: PartialShape, axis: int) -> Complaints:
    """A cache has room for the whole update."""
    room, wanted = cache[axis], update[axis] if axis < len(update) else None
    if isinstance(room, int) and isinstance(wanted, int) and wanted > room:
        yield TypeConflict(
            f"{wanted} places of an update go into {room} of a cache",
            "the cache is as long as the update at least",
        )


@requires("GatherElements")
def gather_elements(node: NodeView) -> Complaints:
    data, indices, axis = node.shape_of(0), node.shape_of(1), node.integer("axis")
    yield from at_least(node, 0, 1)
    yield from in_range("axis", [axis], node.rank_of(0))
    if data is None or indices is None:
        return
    yield from of_rank(node, 1, len(data))
    for place, (have, wanted) in enumerate(zip(data, indices, strict=True)):
        both = isinstance(have, int) and isinstance(wanted, int)
        if place != axis % len(data) and both and int(wanted or 0) > int(have or 0):
            yield TypeConflict(
                f"indices {shown(indices)} reach beyond data {shown(data)} at axis {place}",
                f"only along axis {axis} may there be more of them",
            )


@requires("GatherND")
def gather_nd(node: NodeView) -> Complaints:
    data, indices, batch = node.shape_of(0), node.shape_of(1), node.integer("batch_dims")
    yield from at_least(node, 0, 1)
    yield from at_least(node, 1, 1)
    if data is None or indices is None:
        return
    least = min(len(data), len(indices))
    if not 0 <= batch < least:
        yield TypeConflict(f"`batch_dims` is {batch}", f"it is 0 to {least - 1}")
        return
    if any(map(differ, data[:batch], indices[:batch])):
        yield TypeConflict(
            f"the first {batch} axes of data {shown(data)} and indices {shown(indices)} differ",
            "they count batches, of which both have as many",
        )
    depth = indices[-1]
    if isinstance(depth, int) and not 1 <= depth <= len(data) - batch:
        yield TypeConflict(
            f"{depth} indices lead into {len(data) - batch} axes",
            "the last axis of the indices holds one number for each axis that it chooses from",
        )


@requires("ReverseSequence")
def reverse_sequence(node: NodeView) -> Complaints:
    data, axes = node.shape_of(0), [node.integer("time_axis", 0), node.integer("batch_axis", 1)]
    yield from at_least(node, 0, 2)
    if sorted(axes) != [0, 1]:
        yield TypeConflict(
            f"`time_axis` is {axes[0]} and `batch_axis` is {axes[1]}", "one is 0, the other 1"
        )
    elif data is not None:
        yield from of_shape(node, 1, data[axes[1]])


@requires("OneHot")
def one_hot(node: NodeView) -> Complaints:
    yield from one_element(node, 1)
    yield from of_shape(node, 2, 2)
    rank = node.rank_of(0)
    yield from in_range("axis", [node.integer("axis", -1)], None if rank is None else rank + 1)
    depth = node.elements_of(1)
    if depth is not None and depth.size and not 1 <= float(depth.reshape(-1)[0]) < 2**31:
        yield TypeConflict(f"`depth` is {depth.reshape(-1)[0]}", "there is one class at least")
