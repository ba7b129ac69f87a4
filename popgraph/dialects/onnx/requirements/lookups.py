"""What lookups ask of their indices, and of the axes along which they look."""

from __future__ import annotations

from popgraph.dialects.onnx.requirements.frame import (
    Complaints,
    Seen,
    Shape,
    asks,
    at_least,
    differ,
    in_range,
    of_rank,
    of_shape,
    one_element,
    shown,
)
from popgraph.dialects.onnx.type_errors import TypeConflict


@asks("Gather")
def gather(node: Seen) -> Complaints:
    yield from in_range("axis", [node.integer("axis")], node.rank(0))


@asks("Scatter", "ScatterElements")
def scatter_elements(node: Seen) -> Complaints:
    yield from gather_elements(node)
    indices = node.shape(1)
    if indices is not None:
        yield from of_shape(node, 2, *indices)


@asks("ScatterND")
def scatter_nd(node: Seen) -> Complaints:
    yield from gather_nd(node)
    data, indices = node.shape(0), node.shape(1)
    if data is not None and indices is not None and isinstance(indices[-1], int):
        yield from of_shape(node, 2, *indices[:-1], *data[indices[-1] :])


@asks("TensorScatter")
def tensor_scatter(node: Seen) -> Complaints:
    cache, axis = node.shape(0), node.integer("axis", -2)
    yield from at_least(node, 0, 2)
    yield from in_range("axis", [axis], node.rank(0))
    if cache is None:
        return
    axis %= len(cache)
    if axis == 0:
        yield TypeConflict("axis 0 counts the batch", "the axis of the sequence comes behind it")
    yield from of_rank(node, 1, len(cache))
    update = node.shape(1) or ()
    for place, (have, wanted) in enumerate(zip(cache, update, strict=False)):
        if place != axis and differ(have, wanted):
            yield TypeConflict(
                f"a cache {shown(cache)} gets an update {shown(update)}",
                f"but for axis {axis} they have the same sizes",
            )
    yield from longer_than(cache, update, axis)
    yield from of_shape(node, 2, cache[0])


def longer_than(cache: Shape, update: Shape, axis: int) -> Complaints:
    """A cache has room for the whole update."""
    room, wanted = cache[axis], update[axis] if axis < len(update) else None
    if isinstance(room, int) and isinstance(wanted, int) and wanted > room:
        yield TypeConflict(
            f"{wanted} places of an update go into {room} of a cache",
            "the cache is as long as the update at least",
        )


@asks("GatherElements")
def gather_elements(node: Seen) -> Complaints:
    data, indices, axis = node.shape(0), node.shape(1), node.integer("axis")
    yield from at_least(node, 0, 1)
    yield from in_range("axis", [axis], node.rank(0))
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


@asks("GatherND")
def gather_nd(node: Seen) -> Complaints:
    data, indices, batch = node.shape(0), node.shape(1), node.integer("batch_dims")
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


@asks("ReverseSequence")
def reverse_sequence(node: Seen) -> Complaints:
    data, axes = node.shape(0), [node.integer("time_axis", 0), node.integer("batch_axis", 1)]
    yield from at_least(node, 0, 2)
    if sorted(axes) != [0, 1]:
        yield TypeConflict(
            f"`time_axis` is {axes[0]} and `batch_axis` is {axes[1]}", "one is 0, the other 1"
        )
    elif data is not None:
        yield from of_shape(node, 1, data[axes[1]])


@asks("OneHot")
def one_hot(node: Seen) -> Complaints:
    yield from one_element(node, 1)
    yield from of_shape(node, 2, 2)
    rank = node.rank(0)
    yield from in_range("axis", [node.integer("axis", -1)], None if rank is None else rank + 1)
    depth = node.array(1)
    if depth is not None and depth.size and not 1 <= float(depth.reshape(-1)[0]) < 2**31:
        yield TypeConflict(f"`depth` is {depth.reshape(-1)[0]}", "there is one class at least")
