"""What lookups ask of their indices, and of the axes along which they look."""

from __future__ import annotations

from popgraph.dialects.onnx.requirements.frame import (
    Complaints,
    Seen,
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


@asks("OneHot")
def one_hot(node: Seen) -> Complaints:
    yield from one_element(node, 1)
    yield from of_shape(node, 2, 2)
    rank = node.rank(0)
    yield from in_range("axis", [node.integer("axis", -1)], None if rank is None else rank + 1)
    depth = node.array(1)
    if depth is not None and depth.size and not 1 <= float(depth.reshape(-1)[0]) < 2**31:
        yield TypeConflict(f"`depth` is {depth.reshape(-1)[0]}", "there is one class at least")
