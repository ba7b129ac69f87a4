"""Lowers gathers by elements and groups, ReverseSequence, TopK, and cumulative sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, dtype_of, shape_of
from popgraph.dialects.graphcore.lookup import positions
from popgraph.dialects.onnx.custom import CHECK_INDICES
from popgraph.passes.onnx.to_graphcore.arithmetic import cast, computing, whole_numbers
from popgraph.passes.onnx.to_graphcore.movement import I64, reshaped, sliced
from popgraph.passes.onnx.to_graphcore.node import Node
from popgraph.passes.onnx.to_graphcore.registry import GRAPHCORE, Lowered, lowers
from popgraph.support import dtypes, shapes
from popgraph.support.errors import TypeMismatchError, UnsupportedError
from popgraph.support.shapes import Shape, prod

WIDE = dtypes.BY_NAME["i64"]


def whole(node: Node, number: int) -> SSAValue:
    return node.literal(np.array(number, np.int64))


def from_start(node: Node, index: int, size: int) -> Operand:
    """The indices of an input, counted from the start of an axis."""
    return _from_start(node, node[index], size, _is_checked(node[index]))


def within(node: Node, places: Operand, size: int) -> Operand:
    """Computed places, counted from the start of an axis and kept inside."""
    return _from_start(node, SSAValue.get(places), size, is_checked=False)


def _from_start(node: Node, indices: SSAValue, size: int, is_checked: bool) -> Operand:
    """
    Indices as i64, negative ones counted from the end, those outside the nearest inside.

    Only so they mean an element of their own row once they are places in flat data. Where a check
    ends the run, it does not matter.
    """
    known = node.lowering.array(indices)
    if known is not None:
        return node.literal(positions(known, size))
    wide = cast(indices, dtypes.BY_NAME["i64"])
    negative = gc.CompareOp(wide, whole(node, 0), predicate="lt")
    place = gc.WhereOp(negative, gc.AddOp(wide, whole(node, size)), wide)
    if is_checked:
        return place
    last = whole(node, max(0, size - 1))
    return gc.MinOp(gc.MaxOp(place, whole(node, 0)), last)


def never_negative(place: Operand) -> SSAValue:
    """Places that are never negative, as numbers of which a gather knows that."""
    return cast(place, dtypes.BY_NAME["u64"])


def _is_checked(indices: SSAValue) -> bool:
    return isinstance(indices.owner, gc.CheckIndicesOp)


def _stride(shape: Shape, axis: int) -> int:
    return prod(shape[axis + 1 :])


@lowers("GroupedGather", domain=GRAPHCORE)
def grouped_gather(node: Node) -> Lowered:
    """Each group of the data by the indices of its own: all groups are one axis of places."""
    axis, indices = node.axis(node.integer("axis")), shape_of(node[1])
    groups, size = node.integer("group_size", 1), node.shape[axis]
    if axis == 0 or node.shape[0] != groups or indices[:1] != (groups,):
        raise TypeMismatchError(
            f"{groups} groups along axis {axis} of {shapes.text(node.shape)} "
            f"by indices of {shapes.text(indices)}",
            hint="groups are the first axis of data and indices; another axis is looked up",
        )
    others = [at for at in range(1, node.rank) if at != axis]
    front = gc.TransposeOp(node[0], perm=(0, axis, *others)).result
    rest = [node.shape[at] for at in others]
    rows = reshaped(front, (groups * size, *rest))
    column = (groups, *(1 for _ in indices[1:]))
    first = node.literal((np.arange(groups) * size).reshape(column).astype(np.int64))
    whole_numbers(node, 1)
    places = never_negative(gc.AddOp(from_start(node, 1, size), first))
    taken = gc.GatherOp(rows, places, axis=0)
    return _with_axis_back(taken, len(indices), axis)


def _with_axis_back(taken: gc.GatherOp, count: int, axis: int) -> Operand:
    """Axes 1 to `count` to where `axis` was."""
    rank = len(shape_of(taken))
    moved = list(range(1, count))
    behind = list(range(count, rank))
    return gc.TransposeOp(taken, perm=(0, *behind[: axis - 1], *moved, *behind[axis - 1 :]))


@lowers(CHECK_INDICES[1], domain=CHECK_INDICES[0])
def check_indices(node: Node) -> Lowered:
    """What `normalize` puts before indices that are to be checked."""
    return gc.CheckIndicesOp(
        node[0],
        low=node.integers("low"),
        last=node.integers("last"),
        what=node.text("what"),
        place=node.text("place"),
        ignored=node.integer("ignored") if node.has("ignored") else None,
    )


@lowers("GatherElements")
def gather_elements(node: Node) -> Lowered:
    """A lookup in the flat data: the place along the axis from the indices, else their own."""
    axis = node.axis(node.integer("axis"))
    along = from_start(node, 1, node.shape[axis])
    if node.lowering.data_sizes.of(node[0]):
        return _compared_along(node, axis, along)
    return taken_along(node, axis, along)


def _compared_along(node: Node, axis: int, along: Operand) -> Operand:
    """The same as a sum over all places, which leaves every axis the axis that it is."""
    data, indices = node.shape, shape_of(along)
    before, after = data[:axis], data[axis + 1 :]
    if (before, after) != (indices[:axis], indices[axis + 1 :]):
        raise UnsupportedError("GatherElements from a part of what data select has no gradient")
    places = gc.IotaOp(shape=(data[axis], *(1 for _ in after)), axis=0, dtype=I64)
    wanted = gc.ReshapeOp(cast(along, WIDE), shape=(*before, indices[axis], 1, *after))
    chosen = gc.CompareOp(wanted, places, predicate="eq")
    values = gc.ReshapeOp(node[0], shape=(*before, 1, data[axis], *after))
    kept = gc.WhereOp(chosen, values, node.scalar(0))
    return gc.ReduceSumOp(kept, axes=[axis + 1], keepdims=False)


def taken_along(node: Node, axis: int, along: Operand) -> Operand:
    """The elements of the first input at these places along an axis."""
    places = places_along(node, node.shape, axis, along)
    return gc.GatherOp(reshaped(node[0], (prod(node.shape),)), places, axis=0)


def places_along(node: Node, data: Shape, axis: int, along: Operand) -> SSAValue:
    """Places in flat data: along one axis these, along the others their own."""
    indices = shape_of(along)
    place: Operand = gc.MulOp(along, whole(node, _stride(data, axis)))
    for other in range(len(data)):
        if other != axis and indices[other] > 1:
            counted = gc.IotaOp(shape=indices, axis=other, dtype=I64)
            place = gc.AddOp(place, gc.MulOp(counted, whole(node, _stride(data, other))))
    return never_negative(place)


@lowers("TopK", structural=[1])
def top_k(node: Node) -> Lowered:
    """Where the elements stand, and the elements that stand there; always sorted."""
    axis = node.axis(node.integer("axis", -1))
    count = node.integer("k") if node.has("k") else node.numbers(1, "the number k")[0]
    largest = bool(node.integer("largest", 1))
    places = gc.ArgTopKOp(node[0], axis=axis, count=count, largest=largest)
    return [taken_along(node, axis, places), places]


@lowers("GatherND")
def gather_nd(node: Node) -> Lowered:
    """A lookup in data whose leading axes are one: a row of indices is a place along it."""
    lead, rest = leading(node)
    return gc.GatherOp(reshaped(node[0], (prod(lead), *rest)), places_of_rows(node), axis=0)


def leading(node: Node) -> tuple[Shape, Shape]:
    """The sizes of the axes that rows of indices lead into, and those of the others."""
    end = node.integer("batch_dims") + shape_of(node[1])[-1]
    return node.shape[:end], node.shape[end:]


def places_of_rows(node: Node) -> SSAValue:
    """Where rows of indices lead, in data whose leading axes are one."""
    data, indices = node.shape, shape_of(node[1])
    batch, depth = node.integer("batch_dims"), indices[-1]
    lead, _ = leading(node)
    last = len(indices) - 1
    is_checked = _is_checked(node[1])
    terms: list[Operand] = []
    for axis in range(batch):
        counted = gc.IotaOp(shape=indices[:-1], axis=axis, dtype=I64)
        terms.append(gc.MulOp(counted, whole(node, _stride(lead, axis))))
    for column in range(depth):
        index = gc.ReshapeOp(sliced(node[1], {last: (column, 1, 1)}), shape=indices[:-1])
        start = _from_start(node, index.result, data[batch + column], is_checked)
        terms.append(gc.MulOp(start, whole(node, _stride(lead, batch + column))))
    nowhere = gc.BroadcastOp(whole(node, 0), shape=indices[:-1])
    return never_negative(reduce(gc.AddOp, terms) if terms else nowhere)


@lowers("ReverseSequence")
def reverse_sequence(node: Node) -> Lowered:
    """Of both leading axes as one: the place in time from the end of the own sequence."""
    lead, rest = node.shape[:2], node.shape[2:]
    time = node.integer("time_axis", 0)
    steps, column = lead[time], (lead[0], 1) if time else (1, lead[1])
    given = cast(node[1], dtypes.BY_NAME["i64"])
    longest, zero = whole(node, steps), whole(node, 0)
    lengths = gc.ReshapeOp(gc.MinOp(gc.MaxOp(given, zero), longest), shape=column)
    own = gc.IotaOp(shape=lead, axis=time, dtype=I64)
    mirrored = gc.SubOp(gc.SubOp(lengths, whole(node, 1)), own)
    is_inside = gc.CompareOp(own, lengths, predicate="lt")
    places = places_along(node, lead, time, gc.WhereOp(is_inside, mirrored, own))
    taken = gc.GatherOp(reshaped(node[0], (prod(lead), *rest)), places, axis=0)
    return reshaped(taken.result, node.shape)


def running(join: Callable[[Operand, Operand], Operand], neutral: int) -> Callable[[Node], Lowered]:
    """
    A lowering of CumSum and its like: each round joins what is a few times as far away.

    All that a round joins is read out of one copy with `neutral` in front.
    """

    def lower(node: Node) -> Lowered:
        axis = node.axis(node.numbers(1, "the axis")[0])
        size, shape = node.shape[axis], node.shape
        backwards = {axis: (size - 1, size, -1)}
        value = cast(node[0], computing(node))
        if node.integer("reverse"):
            value = SSAValue.get(sliced(value, backwards))
        if node.integer("exclusive"):
            (value,) = _moved(value, axis, [1], neutral)
        step, joined = 1, node.lowering.tuning.joined_results
        while step < size:
            ways = [step * count for count in range(1, joined) if step * count < size]
            value = in_pairs(join, [value, *_moved(value, axis, ways, neutral)])
            step *= joined
        assert shape_of(value) == shape
        value = cast(value, node.dtype)
        return sliced(value, backwards) if node.integer("reverse") else value

    return lower


def in_pairs(join: Callable[[Operand, Operand], Operand], values: Sequence[SSAValue]) -> SSAValue:
    """Neighbours joined, and again, until one is left."""
    values = list(values)
    while len(values) > 1:
        pairs = zip(values[::2], values[1::2], strict=False)
        rest = values[len(values) - len(values) % 2 :]
        values = [SSAValue.get(join(*pair)) for pair in pairs] + rest
    return values[0]


def _moved(value: SSAValue, axis: int, ways: Sequence[int], neutral: int) -> list[SSAValue]:
    """The elements moved so far along an axis, `neutral` where none came; the last way is most."""
    shape, most = shape_of(value), min(ways[-1], shape_of(value)[axis])
    kept = sliced(value, {axis: (0, shape[axis] - min(ways), 1)}) if shape[axis] else value
    low = [most if at == axis else 0 for at in range(len(shape))]
    zeros = [0] * len(shape)
    number = float(neutral) if dtype_of(value).is_float else neutral
    padded = gc.PadOp(kept, low=low, high=zeros, interior=zeros, value=number).result
    return [SSAValue.get(sliced(padded, {axis: (most - by, shape[axis], 1)})) for by in ways]


lowers("CumSum", structural=[1])(running(gc.AddOp, 0))
lowers("CumProd", structural=[1])(running(gc.MulOp, 1))
