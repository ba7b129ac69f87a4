"""Lowers ONNX's data movement operators to graphcore."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects import element_types
from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, shape_of
from popgraph.passes.graphcore.canonicalize.lookups import in_pieces
from popgraph.passes.graphcore.fold_constants import constant_array
from popgraph.passes.onnx.to_graphcore.linear_forms import LinearForm, computed, linear_form
from popgraph.passes.onnx.to_graphcore.node import Node
from popgraph.passes.onnx.to_graphcore.registry import GRAPHCORE, Lowered, lowers
from popgraph.passes.onnx.to_graphcore.sized_by_data import reshaped_by_data
from popgraph.support import shapes
from popgraph.support.errors import TypeMismatchError
from popgraph.support.shapes import Shape, prod

I64 = element_types.BY_NAME["i64"]
U64 = element_types.BY_NAME["u64"]

MOST_PIECES = 4
"""Where padding leaves more pieces along an axis, each place is looked up."""


def reshaped(value: SSAValue, shape: Sequence[int]) -> Operand:
    return value if shape_of(value) == tuple(shape) else gc.ReshapeOp(value, shape=shape)


@lowers("Reshape", structural=[1])
@lowers("Reshape", domain=GRAPHCORE, structural=[1])
def reshape(node: Node) -> Lowered:
    given = node.optional(1)
    by_data = None if given is None else reshaped_by_data(node, given)
    wanted = by_data[0] if by_data else list(node.numbers_or_ints("shape", 1) or ())
    if not node.integer("allowzero"):
        for axis, size in enumerate(wanted):
            if size == 0 and axis < node.rank:
                wanted[axis] = node.shape[axis]
    shape = _with_rest(wanted, prod(node.shape), node.shape)
    if by_data is None:
        return reshaped(node[0], shape)
    made = gc.ReshapeOp(node[0], shape=shape)
    node.lowering.data_sizes.varying[made.result] = by_data[1]
    return made


def _with_rest(wanted: list[int], total: int, shape: Shape) -> Shape:
    """`wanted` with the size that -1 stands for."""
    known = prod(size for size in wanted if size != -1)
    if wanted.count(-1) == 1 and known and total % known == 0:
        wanted = [total // known if size == -1 else size for size in wanted]
    if prod(wanted) != total or min(wanted, default=0) < 0:
        raise TypeMismatchError(
            f"a tensor of shape {shapes.text(shape)} cannot become {shapes.text(wanted)}"
        )
    return tuple(wanted)


@lowers("Flatten")
def flatten(node: Node) -> Lowered:
    axis = node.integer("axis", 1)
    axis = axis + node.rank if axis < 0 else axis
    return reshaped(node[0], (prod(node.shape[:axis]), prod(node.shape[axis:])))


@lowers("Transpose")
def transpose(node: Node) -> Lowered:
    backwards = tuple(reversed(range(node.rank)))
    return gc.TransposeOp(node[0], perm=node.axes(node.integers("perm", backwards)))


@lowers("Concat")
def concat(node: Node) -> Lowered:
    return gc.ConcatOp(node.inputs, axis=node.axis(node.integer("axis", 1)))


@lowers("Split", structural=[1])
def split(node: Node) -> Lowered:
    axis = node.axis(node.integer("axis"))
    sizes = node.numbers_or_ints("split", 1) or _even_parts(node, node.shape[axis])
    starts = [0, *accumulate(sizes)]
    return [
        sliced(node[0], {axis: (start, size, 1)})
        for start, size in zip(starts, sizes, strict=False)
    ]


def _even_parts(node: Node, size: int) -> tuple[int, ...]:
    """Equal parts, the last one smaller where it does not come out even."""
    count = node.integer("num_outputs") or node.output_count
    part = -(-size // count)
    return tuple(max(0, min(part, size - part * index)) for index in range(count))


def sliced(value: SSAValue, ranges: dict[int, tuple[int, int, int]]) -> Operand:
    """Part of a tensor: per axis the start, the number of elements and the step."""
    whole = [ranges.get(axis, (0, size, 1)) for axis, size in enumerate(shape_of(value))]
    if not whole:
        return value
    starts, sizes, steps = zip(*whole, strict=True)
    return gc.SliceOp(value, starts=starts, sizes=sizes, steps=steps)


@lowers("Slice", structural=[1, 2, 3, 4])
@lowers("Slice", domain=GRAPHCORE, structural=[1, 2, 3, 4])
def slice_(node: Node) -> Lowered:
    moving = _moving_slice(node)
    if moving is not None:
        return moving
    starts = node.numbers_or_ints("starts", 1) or ()
    ends = node.numbers_or_ints("ends", 2) or ()
    axes = node.axes(node.numbers_or_ints("axes", 3) or tuple(range(len(starts))))
    steps = node.numbers_or_ints("steps", 4) or (1,) * len(starts)
    if {len(starts)} != {len(axes), len(ends), len(steps)} or 0 in steps:
        raise TypeMismatchError(
            f"starts {list(starts)}, ends {list(ends)}, axes {list(axes)} and steps {list(steps)} "
            "do not belong together",
            hint="each has one number for every axis; no step is 0",
        )
    ranges = {}
    for axis, *bounds in zip(axes, starts, ends, steps, strict=True):
        places = range(*slice(*bounds).indices(node.shape[axis]))
        ranges[axis] = (places.start if places else 0, len(places), places.step)
    return sliced(node[0], ranges) if node.rank else node[0]


def _moving_slice(node: Node) -> Operand | None:
    """
    A Slice of known size that begins where the number of the turn says: a lookup.

    None unless no turn's part leaves the tensor: where it does, its size would be another one.
    """
    if node.has("starts") or all(node.lowering.array(node[index]) is not None for index in (1, 2)):
        return None
    count = prod(shape_of(node[1]))
    axes = node.axes(node.numbers_or_ints("axes", 3) or tuple(range(count)))
    steps = node.numbers_or_ints("steps", 4) or (1,) * count
    if {count} != {len(axes), len(steps), prod(shape_of(node[2]))}:
        return None
    result: SSAValue = node[0]
    for place, (axis, step) in enumerate(zip(axes, steps, strict=True)):
        start, end = (linear_form(node[index], place, node.lowering) for index in (1, 2))
        part = _part(node, result, axis, start, end, step)
        if part is None:
            return None
        result = SSAValue.get(part)
    return result


def _part(
    node: Node, value: SSAValue, axis: int, start: LinearForm, end: LinearForm, step: int
) -> Operand | None:
    """From `start` to before `end` along an axis, where that is inside in all turns."""
    size, first, last = shape_of(value)[axis], start.known(), end.known()
    if first is not None and last is not None and step:
        places = range(*slice(first, last, step).indices(size))
        return sliced(value, {axis: (places.start if places else 0, len(places), places.step)})
    length, bounds = end.plus(start, -1).known(), start.bounds(node.lowering.trips)
    if length is None or bounds is None or length < 1 or step < 1:
        return None
    if bounds[0] < 0 or bounds[1] + length > size:
        return None
    counted = gc.IotaOp(shape=(-(-length // step),), axis=0, dtype=I64)
    offsets = gc.MulOp(counted, node.literal(np.array(step)))
    return gc.GatherOp(value, gc.AddOp(offsets, computed(start, node.lowering)), axis=axis)


@lowers("Subsample", domain=GRAPHCORE)
def subsample(node: Node) -> Lowered:
    strides = node.integers("strides")
    if len(strides) != node.rank or min(strides, default=1) < 1:
        raise TypeMismatchError(
            f"strides {list(strides)} for {node.rank} axes", hint="one for each, all 1 or more"
        )
    return sliced(
        node[0],
        {
            axis: (0, -(-size // step), step)
            for axis, (size, step) in enumerate(zip(node.shape, strides, strict=True))
        },
    )


@lowers("Reverse", domain=GRAPHCORE)
def reverse(node: Node) -> Lowered:
    axes = node.axes(node.integers("dimensions"))
    return sliced(node[0], {axis: (node.shape[axis] - 1, node.shape[axis], -1) for axis in axes})


@lowers("Pad", structural=[1, 3])
def pad(node: Node) -> Lowered:
    given = node.integers("paddings") if node.has("paddings") else node.numbers_or_ints("pads", 1)
    assert given is not None, "every version of Pad has its pads somewhere"
    axes: tuple[int, ...] = tuple(range(node.rank))
    if node.optional(3) is not None:
        axes = node.axes(node.numbers(3, "axes"))
    low, high = [0] * node.rank, [0] * node.rank
    for place, axis in enumerate(axes):
        low[axis], high[axis] = given[place], given[place + len(axes)]
    mode = node.text("mode", "constant")
    cut = _cut(node[0], low, high)
    low, high = [max(0, size) for size in low], [max(0, size) for size in high]
    if mode == "constant":
        return _filled(node, cut, low, high)
    for axis in range(node.rank):
        cut = _continued(node, cut, axis, (low[axis], high[axis]), mode)
    return cut


def _cut(value: SSAValue, low: list[int], high: list[int]) -> SSAValue:
    """Negative padding takes away."""
    ranges = {
        axis: (max(0, -before), size + min(0, before) + min(0, after), 1)
        for axis, (size, before, after) in enumerate(zip(shape_of(value), low, high, strict=True))
        if before < 0 or after < 0
    }
    return SSAValue.get(sliced(value, ranges)) if ranges else value


def _filled(node: Node, value: SSAValue, low: list[int], high: list[int]) -> Operand:
    """What is padded with a number; one that is a variable moves, and has a gradient."""
    number = 0.0
    given = node.optional(2)
    known = None if given is None else constant_array(given, node.lowering.weights)
    if known is not None:
        number = known.reshape(-1)[0].item()
    elif "value" in node.op.onnx_attributes():
        number = node.real("value")
    if not any(low) and not any(high):
        return value
    interior = [0] * node.rank
    wide = gc.PadOp(value, low=low, high=high, interior=interior, value=number)
    if given is None or known is not None:
        return wide
    inside = gc.BroadcastOp(node.literal(np.array(True)), shape=shape_of(value))
    kept = gc.PadOp(inside, low=low, high=high, interior=interior, value=False)
    return gc.WhereOp(kept, wide, reshaped(given, ()))


def _continued(
    node: Node, value: SSAValue, axis: int, pads: tuple[int, int], mode: str
) -> SSAValue:
    """The other modes repeat elements: along each axis, pieces, or places that are looked up."""
    if pads == (0, 0):
        return value
    places = np.pad(np.arange(shape_of(value)[axis]), pads, mode=mode)  # type: ignore[call-overload]
    found = in_pieces(value, places, axis, MOST_PIECES)
    return SSAValue.get(found or gc.GatherOp(value, node.literal(places), axis=axis))


@lowers("Squeeze", structural=[1])
def squeeze(node: Node) -> Lowered:
    ones = tuple(axis for axis, size in enumerate(node.shape) if size == 1)
    axes = node.axes(node.numbers_or_ints("axes", 1, ones) or ())
    if any(node.shape[axis] != 1 for axis in axes):
        raise TypeMismatchError(f"axes {list(axes)} of {shapes.text(node.shape)} are not all 1")
    return reshaped(node[0], [size for axis, size in enumerate(node.shape) if axis not in axes])


@lowers("Unsqueeze", structural=[1])
def unsqueeze(node: Node) -> Lowered:
    given = node.numbers_or_ints("axes", 1) or ()
    rank = node.rank + len(given)
    axes = node.axes(given, rank)
    rest = iter(node.shape)
    return reshaped(node[0], [1 if axis in axes else next(rest) for axis in range(rank)])


@lowers("Expand", structural=[1])
def expand(node: Node) -> Lowered:
    shape = shapes.broadcast(node.shape, node.numbers(1, "the shape"))
    return node[0] if shape == node.shape else gc.BroadcastOp(node[0], shape=shape)


@lowers("Tile", structural=[1, 2])
def tile(node: Node) -> Lowered:
    repeats = [1] * node.rank
    if node.version == 1:
        (axis,) = node.numbers(2, "the axis")
        (repeats[node.axis(axis)],) = node.numbers(1, "the number of tiles")
    else:
        repeats = list(node.numbers(1, "the number of repeats"))
    split = [size for pair in node.shape for size in (1, pair)]
    spread = [size for pair in zip(repeats, node.shape, strict=True) for size in pair]
    joined = [count * size for count, size in zip(repeats, node.shape, strict=True)]
    wide = gc.BroadcastOp(gc.ReshapeOp(node[0], shape=split), shape=spread)
    return gc.ReshapeOp(wide, shape=joined)


@lowers("Gather")
def gather(node: Node) -> Lowered:
    return gc.GatherOp(node[0], node[1], axis=node.axis(node.integer("axis")))


def _block(node: Node) -> int:
    """The size of the blocks of images; there are images to have blocks."""
    block = node.integer("blocksize")
    if node.rank != 4 or block < 1:
        raise TypeMismatchError(
            f"blocks of {block} in a tensor of {node.rank} axes",
            hint="images are [N, channels, height, width]; `blocksize` is 1 or more",
        )
    return block


@lowers("DepthToSpace")
@lowers("DepthToSpace", domain=GRAPHCORE)
def depth_to_space(node: Node) -> Lowered:
    block = _block(node)
    count, depth, height, width = node.shape
    left = depth // block**2
    if depth % block**2:
        raise TypeMismatchError(f"{depth} channels do not fall into blocks of {block**2}")
    if node.text("mode", "DCR") == "CRD":
        split, perm = (count, left, block, block, height, width), (0, 1, 4, 2, 5, 3)
    else:
        split, perm = (count, block, block, left, height, width), (0, 3, 4, 1, 5, 2)
    moved = gc.TransposeOp(gc.ReshapeOp(node[0], shape=split), perm=perm)
    return gc.ReshapeOp(moved, shape=(count, left, height * block, width * block))


@lowers("SpaceToDepth")
def space_to_depth(node: Node) -> Lowered:
    block = _block(node)
    count, depth, height, width = node.shape
    split = (count, depth, height // block, block, width // block, block)
    channels_first = node.text("mode", "DCR") == "CRD"
    perm = (0, 1, 3, 5, 2, 4) if channels_first else (0, 3, 5, 1, 2, 4)
    moved = gc.TransposeOp(gc.ReshapeOp(node[0], shape=split), perm=perm)
    return gc.ReshapeOp(moved, shape=(count, depth * block**2, height // block, width // block))


@lowers("Trilu")
def trilu(node: Node) -> Lowered:
    upper = bool(node.integer("upper", 1))
    given = node.optional(1)
    known = np.zeros(1, np.int64) if given is None else node.lowering.array(given)
    if given is not None and known is None:
        return gc.WhereOp(_beyond(node, given, upper), node[0], node.scalar(0))
    assert known is not None
    rows, columns = node.shape[-2:]
    # Beyond all rows and columns, the diagonal is where it is at their end.
    diagonal = min(max(int(known.reshape(-1)[0]), -rows - 1), columns + 1)
    below = np.tri(rows, columns, diagonal - 1 if upper else diagonal).astype(bool)
    kept = node.literal(~below if upper else below)
    return gc.WhereOp(kept, node[0], node.scalar(0))


def _beyond(node: Node, diagonal: SSAValue, upper: bool) -> Operand:
    """Which elements of a matrix are on a diagonal that is known at run time only, or beyond it."""
    shape = node.shape[-2:]
    row, column = (gc.IotaOp(shape=shape, axis=axis, dtype=I64) for axis in (0, 1))
    number = gc.CastOp(reshaped(diagonal, ()), to=I64)
    return gc.CompareOp(gc.SubOp(column, row), number, predicate="ge" if upper else "le")


@lowers("OneHot", structural=[1])
def one_hot(node: Node) -> Lowered:
    depth = node.numbers(1, "the depth")[0]
    axis = node.axis(node.integer("axis", -1), node.rank + 1)
    shape = [*node.shape[:axis], 1, *node.shape[axis:]]
    wide = [*node.shape[:axis], depth, *node.shape[axis:]]
    number: Operand = gc.ReshapeOp(gc.CastOp(node[0], to=I64), shape=shape)
    negative = gc.CompareOp(number, node.literal(np.array(0, np.int64)), predicate="lt")
    counted = gc.AddOp(number, node.literal(np.array(depth, np.int64)))
    number = gc.WhereOp(negative, counted, number)
    places = gc.IotaOp(shape=wide, axis=axis, dtype=I64)
    off, on = (gc.ReshapeOp(sliced(node[2], {0: (place, 1, 1)}), shape=()) for place in (0, 1))
    return gc.WhereOp(gc.CompareOp(number, places, predicate="eq"), on, off)
