"""
Operators that gather elements by index: Gather, GatherElements, GatherND, OneHot and the like.

GatherElements and GatherND become one gather from flattened data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, dtype_of, shape_of
from popgraph.dialects.graphcore.lookup import positions
from popgraph.dialects.onnx.custom import CHECK_INDICES
from popgraph.dialects.onnx.record import Conflicts
from popgraph.dialects.onnx.type_errors import TypeConflict
from popgraph.dialects.onnx.view import NodeView
from popgraph.operators.arithmetic import as_i64, cast
from popgraph.operators.complaints import (
    at_least,
    differ,
    in_range,
    of_rank,
    of_shape,
    one_element,
    shown,
)
from popgraph.operators.movement import I64, reshaped, sliced
from popgraph.operators.node import Node
from popgraph.operators.record import (
    GRAPHCORE,
    Bounds,
    Lowered,
    bounds,
    follows_data_sizes,
    lowers,
    requires,
)
from popgraph.support import dtypes, shapes
from popgraph.support.arrays import Array
from popgraph.support.errors import TypeMismatchError, UnsupportedError
from popgraph.support.shapes import Shape, prod


def i64_scalar(node: Node, number: int) -> SSAValue:
    return node.literal(np.array(number, np.int64))


def from_start(node: Node, index: int, size: int) -> Operand:
    """The indices of an input, with negative ones counted from the end of an axis of `size`."""
    return within(node, node[index], size, _is_checked(node[index]))


def within(node: Node, places: Operand, size: int, is_checked: bool = False) -> Operand:
    """
    Indices as i64, with negative ones counted from the end, and clamped to the axis.

    Unclamped, they would read other rows of the flattened data. Checked indices need no clamp:
    one out of range ends the run.
    """
    indices = SSAValue.get(places)
    known = node.lowering.array(indices)
    if known is not None:
        return node.literal(positions(known, size))
    wide = cast(indices, dtypes.BY_NAME["i64"])
    negative = gc.CompareOp(wide, i64_scalar(node, 0), predicate="lt")
    place = gc.WhereOp(negative, gc.AddOp(wide, i64_scalar(node, size)), wide)
    if is_checked:
        return place
    last = i64_scalar(node, max(0, size - 1))
    return gc.MinOp(gc.MaxOp(place, i64_scalar(node, 0)), last)


def never_negative(place: Operand) -> SSAValue:
    """Indices cast to u64, so that a gather omits the test for negative ones."""
    return cast(place, dtypes.BY_NAME["u64"])


def _is_checked(indices: SSAValue) -> bool:
    return isinstance(indices.owner, gc.CheckIndicesOp)


@lowers(CHECK_INDICES[1], domain=CHECK_INDICES[0])
def check_indices(node: Node) -> Lowered:
    """The operation that `normalize` inserts before indices to check their bounds."""
    return gc.CheckIndicesOp(
        node[0],
        low=node.integers("low"),
        last=node.integers("last"),
        what=node.text("what"),
        place=node.text("place"),
        ignored=node.integer("ignored") if node.has("ignored") else None,
    )


@bounds("Gather", "GatherElements")
def indices_along_axis(node: NodeView) -> Iterator[Bounds]:
    data, axis = node.static_shape_of(0), node.integer("axis")
    if data is not None and -len(data) <= axis < len(data):
        yield Bounds.into(1, [data[axis]])


@requires("Gather")
def require_gather(node: NodeView) -> Conflicts:
    yield from in_range("axis", [node.integer("axis")], node.rank_of(0))


@lowers("Gather")
def gather(node: Node) -> Lowered:
    return gc.GatherOp(node[0], node[1], axis=node.axis(node.integer("axis")))


@requires("GatherElements")
def require_gather_elements(node: NodeView) -> Conflicts:
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
                f"indices {shown(indices)} are larger than data {shown(data)} along axis {place}",
                f"they may only be larger along axis {axis}",
            )


@lowers("GatherElements")
def gather_elements(node: Node) -> Lowered:
    """A gather from flattened data: `indices` along the axis, an iota along the other axes."""
    axis = node.axis(node.integer("axis"))
    along = from_start(node, 1, node.shape[axis])
    if node.lowering.data_sizes.of(node[0]):
        return _compared_along(node, axis, along)
    return taken_along(node, axis, along)


def _compared_along(node: Node, axis: int, along: Operand) -> Operand:
    """
    GatherElements as a masked sum: sum(where(index == iota, x, 0)) along the axis.

    Unlike flattening, this keeps axes of data-dependent size separate.
    """
    data, indices = node.shape, shape_of(along)
    before, after = data[:axis], data[axis + 1 :]
    if (before, after) != (indices[:axis], indices[axis + 1 :]):
        raise UnsupportedError(
            "GatherElements from a slice of a tensor of data-dependent size has no gradient"
        )
    places = gc.IotaOp(shape=(data[axis], *(1 for _ in after)), axis=0, dtype=I64)
    wanted = gc.ReshapeOp(
        cast(along, dtypes.BY_NAME["i64"]), shape=(*before, indices[axis], 1, *after)
    )
    chosen = gc.CompareOp(wanted, places, predicate="eq")
    values = gc.ReshapeOp(node[0], shape=(*before, 1, data[axis], *after))
    kept = gc.WhereOp(chosen, values, node.scalar(0))
    return gc.ReduceSumOp(kept, axes=[axis + 1], keepdims=False)


def taken_along(node: Node, axis: int, along: Operand) -> Operand:
    """The elements of the first input at these indices along an axis."""
    places = places_along(node, node.shape, axis, along)
    return gc.GatherOp(reshaped(node[0], (prod(node.shape),)), places, axis=0)


def places_along(node: Node, data: Shape, axis: int, along: Operand) -> SSAValue:
    """Flat indices: `along` along one axis, an iota along the others."""
    indices = shape_of(along)
    place: Operand = gc.MulOp(along, i64_scalar(node, prod(data[axis + 1 :])))
    for other in range(len(data)):
        if other != axis and indices[other] > 1:
            counted = gc.IotaOp(shape=indices, axis=other, dtype=I64)
            place = gc.AddOp(place, gc.MulOp(counted, i64_scalar(node, prod(data[other + 1 :]))))
    return never_negative(place)


@requires("GatherND")
def require_gather_nd(node: NodeView) -> Conflicts:
    data, indices, batch = node.shape_of(0), node.shape_of(1), node.integer("batch_dims")
    yield from at_least(node, 0, 1)
    yield from at_least(node, 1, 1)
    if data is None or indices is None:
        return
    least = min(len(data), len(indices))
    if not 0 <= batch < least:
        yield TypeConflict(f"`batch_dims` is {batch}", f"use 0 to {least - 1}")
        return
    if any(map(differ, data[:batch], indices[:batch])):
        yield TypeConflict(
            f"the first {batch} axes of data {shown(data)} and indices {shown(indices)} differ",
            "both must have the same batch axes",
        )
    depth = indices[-1]
    if isinstance(depth, int) and not 1 <= depth <= len(data) - batch:
        yield TypeConflict(
            f"the indices have {depth} columns for {len(data) - batch} axes",
            "the last axis of the indices must have 1 to that many elements",
        )


@bounds("GatherND")
def indices_of_rows(node: NodeView) -> Iterator[Bounds]:
    data, indices = node.static_shape_of(0), node.static_shape_of(1)
    batch = node.integer("batch_dims")
    if data is not None and indices:
        yield Bounds.into(1, data[batch : batch + indices[-1]])


@lowers("GatherND")
def gather_nd(node: Node) -> Lowered:
    """A gather from data whose indexed axes are merged into one."""
    lead, rest = leading(node)
    return gc.GatherOp(reshaped(node[0], (prod(lead), *rest)), places_of_rows(node), axis=0)


def leading(node: Node) -> tuple[Shape, Shape]:
    """The sizes of the batch and indexed axes, and of the other axes."""
    end = node.integer("batch_dims") + shape_of(node[1])[-1]
    return node.shape[:end], node.shape[end:]


def places_of_rows(node: Node) -> SSAValue:
    """The flat index of each row of indices, in the merged leading axes."""
    data, indices = node.shape, shape_of(node[1])
    batch, depth = node.integer("batch_dims"), indices[-1]
    lead, _ = leading(node)
    last = len(indices) - 1
    is_checked = _is_checked(node[1])
    terms: list[Operand] = []
    for axis in range(batch):
        counted = gc.IotaOp(shape=indices[:-1], axis=axis, dtype=I64)
        terms.append(gc.MulOp(counted, i64_scalar(node, prod(lead[axis + 1 :]))))
    for column in range(depth):
        index = gc.ReshapeOp(sliced(node[1], {last: (column, 1, 1)}), shape=indices[:-1])
        start = within(node, index, data[batch + column], is_checked)
        terms.append(gc.MulOp(start, i64_scalar(node, prod(lead[batch + column + 1 :]))))
    nowhere = gc.BroadcastOp(i64_scalar(node, 0), shape=indices[:-1])
    return never_negative(reduce(gc.AddOp, terms) if terms else nowhere)


@lowers("GroupedGather", domain=GRAPHCORE)
def grouped_gather(node: Node) -> Lowered:
    """Gathers from each group by its own indices, in one gather over all groups."""
    axis, indices = node.axis(node.integer("axis")), shape_of(node[1])
    groups, size = node.integer("group_size", 1), node.shape[axis]
    if axis == 0 or node.shape[0] != groups or indices[:1] != (groups,):
        raise TypeMismatchError(
            f"{groups} groups do not fit axis {axis} of {shapes.text(node.shape)} "
            f"and indices of {shapes.text(indices)}",
            hint="the first axis of data and indices has `group_size` elements; `axis` is another",
        )
    others = [at for at in range(1, node.rank) if at != axis]
    front = gc.TransposeOp(node[0], perm=(0, axis, *others)).result
    rest = [node.shape[at] for at in others]
    rows = reshaped(front, (groups * size, *rest))
    column = (groups, *[1] * len(indices[1:]))
    first = node.literal((np.arange(groups) * size).reshape(column).astype(np.int64))
    as_i64(node, 1)
    places = never_negative(gc.AddOp(from_start(node, 1, size), first))
    taken = gc.GatherOp(rows, places, axis=0)
    moved, after = range(1, len(indices)), range(len(indices), len(shape_of(taken)))
    return gc.TransposeOp(taken, perm=(0, *after[: axis - 1], *moved, *after[axis - 1 :]))


@requires("ReverseSequence")
def require_reverse_sequence(node: NodeView) -> Conflicts:
    data, axes = node.shape_of(0), [node.integer("time_axis", 0), node.integer("batch_axis", 1)]
    yield from at_least(node, 0, 2)
    if sorted(axes) != [0, 1]:
        yield TypeConflict(
            f"`time_axis` is {axes[0]} and `batch_axis` is {axes[1]}", "set one to 0, one to 1"
        )
    elif data is not None:
        yield from of_shape(node, 1, data[axes[1]])


@bounds("ReverseSequence")
def lengths_of_sequences(node: NodeView) -> Iterator[Bounds]:
    data, time = node.static_shape_of(0), node.integer("time_axis")
    if data is not None and 0 <= time < len(data):
        yield Bounds(1, "length", (0,), (data[time],))


@lowers("ReverseSequence")
def reverse_sequence(node: Node) -> Lowered:
    """A gather from the merged leading axes: time t < length reads length - 1 - t."""
    lead, rest = node.shape[:2], node.shape[2:]
    time = node.integer("time_axis", 0)
    steps, column = lead[time], (lead[0], 1) if time else (1, lead[1])
    given = cast(node[1], dtypes.BY_NAME["i64"])
    longest, zero = i64_scalar(node, steps), i64_scalar(node, 0)
    lengths = gc.ReshapeOp(gc.MinOp(gc.MaxOp(given, zero), longest), shape=column)
    own = gc.IotaOp(shape=lead, axis=time, dtype=I64)
    mirrored = gc.SubOp(gc.SubOp(lengths, i64_scalar(node, 1)), own)
    is_inside = gc.CompareOp(own, lengths, predicate="lt")
    places = places_along(node, lead, time, gc.WhereOp(is_inside, mirrored, own))
    taken = gc.GatherOp(reshaped(node[0], (prod(lead), *rest)), places, axis=0)
    return reshaped(taken, node.shape)


@requires("OneHot")
def require_one_hot(node: NodeView) -> Conflicts:
    yield from one_element(node, 1)
    yield from of_shape(node, 2, 2)
    rank = node.rank_of(0)
    yield from in_range("axis", [node.integer("axis", -1)], None if rank is None else rank + 1)
    depth = node.elements_of(1)
    if depth is not None and depth.size and not 1 <= float(depth.reshape(-1)[0]) < 2**31:
        yield TypeConflict(f"`depth` is {depth.reshape(-1)[0]}", "use at least one class")


@lowers("OneHot", structural=[1])
def one_hot(node: Node) -> Lowered:
    depth = node.numbers(1, "the depth")[0]
    axis = node.axis(node.integer("axis", -1), node.rank + 1)
    shape = [*node.shape[:axis], 1, *node.shape[axis:]]
    wide = [*node.shape[:axis], depth, *node.shape[axis:]]
    number: Operand = gc.ReshapeOp(gc.CastOp(node[0], to=I64), shape=shape)
    negative = gc.CompareOp(number, i64_scalar(node, 0), predicate="lt")
    number = gc.WhereOp(negative, gc.AddOp(number, i64_scalar(node, depth)), number)
    places = gc.IotaOp(shape=wide, axis=axis, dtype=I64)
    off, on = (gc.ReshapeOp(sliced(node[2], {0: (place, 1, 1)}), shape=()) for place in (0, 1))
    return gc.WhereOp(gc.CompareOp(number, places, predicate="eq"), on, off)


# Rows of channels at computed positions


@dataclass(frozen=True)
class Tap:
    """An interpolation tap along one axis: clamped index, weight, and whether it is in range."""

    place: Operand
    weight: Operand | None
    inside: Operand | None


def looked_up(
    node: Node, rows: SSAValue, start: Operand, space: Sequence[int], taps: Sequence[Tap]
) -> Operand:
    """The rows at one tap per axis, times the taps' weights; 0 for rows out of range."""
    place = start
    for axis, tap in enumerate(taps):
        place = gc.AddOp(place, gc.MulOp(tap.place, i64_scalar(node, prod(space[axis + 1 :]))))
    found: Operand = gc.GatherOp(rows, never_negative(place), axis=0)
    inside = [tap.inside for tap in taps if tap.inside is not None]
    if inside:
        condition = _beside_channels(reduce(gc.AndOp, inside))
        found = gc.WhereOp(condition, found, node.scalar(0, dtype_of(rows)))
    weights = [tap.weight for tap in taps if tap.weight is not None]
    if weights:
        found = gc.MulOp(found, _beside_channels(reduce(gc.MulOp, weights)))
    return found


def _beside_channels(value: Operand) -> Operand:
    """One element per row, with an axis that broadcasts over channels."""
    return gc.ReshapeOp(value, shape=(*shape_of(value), 1))


def linear_taps(node: Node, at: SSAValue, size: int) -> list[Tap]:
    """The taps of linear interpolation at positions along an axis; out of range is 0."""
    kind = dtype_of(at)
    one, low, high = (node.scalar(number, kind) for number in (1, 0, size - 1))
    first = gc.FloorOp(at)
    part = gc.SubOp(at, first)
    found = []
    for place, weight in ((first, gc.SubOp(one, part)), (gc.AddOp(first, one), part)):
        inside = gc.AndOp(
            gc.CompareOp(place, low, predicate="ge"), gc.CompareOp(place, high, predicate="le")
        )
        clamped = gc.MinOp(gc.MaxOp(place, low), high)
        found.append(Tap(cast(clamped, dtypes.BY_NAME["i64"]), weight, inside))
    return found


def found_by_key(node: Node, x: SSAValue, keys: Array, values: Array, default: Array) -> SSAValue:
    """`values[i]` where `x == keys[i]`, for the first such i, else the default; NaN equals NaN."""
    is_nan = keys != keys
    sorted_keys, first = np.unique(keys[~is_nan], return_index=True)
    result: SSAValue = gc.BroadcastOp(node.literal(default), shape=shape_of(x)).result
    if len(sorted_keys):
        table, found = node.literal(sorted_keys), node.literal(values[~is_nan][first])
        place = _bisected(node, x, table, len(sorted_keys))
        hit = gc.CompareOp(gc.GatherOp(table, place, axis=0), x, predicate="eq")
        result = gc.WhereOp(hit, gc.GatherOp(found, place, axis=0), result).result
    if is_nan.any():
        value = node.literal(values[is_nan][0])
        result = gc.WhereOp(gc.IsNanOp(x), value, result).result
    return result


def _bisected(node: Node, x: SSAValue, keys: SSAValue, count: int) -> SSAValue:
    """The index of the last key <= x, or 0, by binary search: O(log count) gathers."""

    def u64(number: int) -> SSAValue:
        return node.literal(np.array(number, np.uint64))

    place: SSAValue = gc.BroadcastOp(u64(0), shape=shape_of(x)).result
    for bit in reversed(range((count - 1).bit_length())):
        further = gc.MinOp(gc.AddOp(place, u64(1 << bit)), u64(count - 1))
        key = gc.GatherOp(keys, further, axis=0)
        place = gc.WhereOp(gc.CompareOp(key, x, predicate="le"), further, place).result
    return place


follows_data_sizes("Gather GatherElements GatherND OneHot")

follows_data_sizes("CheckIndices", domain=CHECK_INDICES[0])
