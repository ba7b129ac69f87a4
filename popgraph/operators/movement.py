"""
Operators that only move elements: Reshape, Transpose, Concat, Split, Slice, Pad and the like.

Shapes, axes and bounds must be known at compile time, except that a Slice of known size may start
at a position that depends on the iteration of a loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects import element_types
from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, shape_of
from popgraph.dialects.graphcore.runs import gathered_by_slices
from popgraph.dialects.onnx.record import Conflicts
from popgraph.dialects.onnx.type_errors import RESHAPE_HINT, TypeConflict
from popgraph.dialects.onnx.view import NodeView
from popgraph.dialects.program import constant_array
from popgraph.operators.complaints import (
    all_different,
    at_least,
    axes_of,
    differ,
    in_range,
    listed,
    of_rank,
    one_element,
    shown,
    wrong_sizes,
)
from popgraph.operators.linear_forms import LinearForm, computed, linear_form
from popgraph.operators.node import Node
from popgraph.operators.record import (
    GRAPHCORE,
    Lowered,
    chooses,
    follows_data_sizes,
    lowers,
    requires,
)
from popgraph.operators.sized_by_data import reshaped_by_data
from popgraph.support import shapes
from popgraph.support.errors import TypeMismatchError
from popgraph.support.shapes import Shape, prod

I64 = element_types.BY_NAME["i64"]
U64 = element_types.BY_NAME["u64"]

MOST_PIECES = 4
"""Most slices per padded axis before a gather is used; reflected edges need 3."""


def reshaped(value: Operand, shape: Sequence[int]) -> SSAValue:
    if shape_of(value) == tuple(shape):
        return SSAValue.get(value)
    return gc.ReshapeOp(value, shape=shape).result


def sliced(value: Operand, ranges: Mapping[int, tuple[int, int, int]]) -> SSAValue:
    """A slice of a tensor: per axis the start, the number of elements and the step."""
    whole = [ranges.get(axis, (0, size, 1)) for axis, size in enumerate(shape_of(value))]
    if not whole:
        return SSAValue.get(value)
    starts, sizes, steps = zip(*whole, strict=True)
    return gc.SliceOp(value, starts=starts, sizes=sizes, steps=steps).result


def _range_of(size: int, start: int, end: int, step: int) -> tuple[int, int, int]:
    """A Python slice, as start, number of elements and step."""
    places = range(*slice(start, end, step).indices(size))
    return places.start if places else 0, len(places), places.step


@requires("Reshape")
def require_reshape(node: NodeView) -> Conflicts:
    wanted = node.given_integers("shape", 1)
    if node.has(1):
        yield from of_rank(node, 1, 1)
    if wanted is None:
        return
    if wanted.count(-1) > 1:
        yield TypeConflict(f"`shape` {wanted} has multiple -1", "use -1 for one size at most")
    if min(wanted, default=0) < -1:
        yield TypeConflict(f"`shape` is {wanted}", "use sizes of 0 or more, and -1 for one of them")
    if node.integer("allowzero") and -1 in wanted and 0 in wanted:
        yield TypeConflict(
            f"the size -1 in {wanted} is ambiguous beside 0", "leave `allowzero` out"
        )
    rank, before = node.rank_of(0), node.static_shape_of(0)
    zeros = [] if node.integer("allowzero") else [at for at, n in enumerate(wanted) if n == 0]
    if rank is not None and any(at >= rank for at in zeros):
        yield TypeConflict(
            f"`shape` is {wanted} for {rank} axes", "use 0 only to keep the size of an input's axis"
        )
        return
    if before is None:
        return
    sizes = [before[at] if at in zeros else n for at, n in enumerate(wanted)]
    rest = prod(n for n in sizes if n != -1)
    fits = prod(before) % rest == 0 if -1 in sizes and rest else prod(before) == prod(sizes)
    if not fits:
        yield TypeConflict(
            f"{prod(before)} elements do not become {shown(sizes) if -1 in sizes else rest}",
            RESHAPE_HINT,
        )


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
    """`wanted`, with -1 replaced by the inferred size."""
    known = prod(size for size in wanted if size != -1)
    if wanted.count(-1) == 1 and known and total % known == 0:
        wanted = [total // known if size == -1 else size for size in wanted]
    if prod(wanted) != total or min(wanted, default=0) < 0:
        raise TypeMismatchError(
            f"a tensor of shape {shapes.text(shape)} cannot become {shapes.text(wanted)}"
        )
    return tuple(wanted)


@requires("Flatten")
def require_flatten(node: NodeView) -> Conflicts:
    yield from in_range("axis", [node.integer("axis", 1)], node.rank_of(0), end=True)


@lowers("Flatten")
def flatten(node: Node) -> Lowered:
    axis = node.integer("axis", 1)
    axis = axis + node.rank if axis < 0 else axis
    return reshaped(node[0], (prod(node.shape[:axis]), prod(node.shape[axis:])))


@requires("Squeeze")
def require_squeeze(node: NodeView) -> Conflicts:
    yield from axes_of(node, "axes", 1, node.rank_of(0))
    axes, shape = node.given_integers("axes", 1) or (), node.shape_of(0)
    for axis in axes:
        if shape and differ(shape[axis], 1):
            yield TypeConflict(
                f"axis {axis} has {shape[axis]} elements", "only axes of size 1 can be removed"
            )


@lowers("Squeeze", structural=[1])
def squeeze(node: Node) -> Lowered:
    ones = tuple(axis for axis, size in enumerate(node.shape) if size == 1)
    axes = node.axes(node.numbers_or_ints("axes", 1, ones) or ())
    if any(node.shape[axis] != 1 for axis in axes):
        raise TypeMismatchError(f"axes {list(axes)} of {shapes.text(node.shape)} are not all 1")
    return reshaped(node[0], [size for axis, size in enumerate(node.shape) if axis not in axes])


@requires("Unsqueeze")
def require_unsqueeze(node: NodeView) -> Conflicts:
    rank, axes = node.rank_of(0), node.given_integers("axes", 1)
    yield from listed(node, 1)
    if rank is not None and axes is not None:
        yield from in_range("axis", axes, rank + len(axes))
        yield from all_different("`axes`", axes, rank + len(axes))


@lowers("Unsqueeze", structural=[1])
def unsqueeze(node: Node) -> Lowered:
    given = node.numbers_or_ints("axes", 1) or ()
    rank = node.rank + len(given)
    axes = node.axes(given, rank)
    rest = iter(node.shape)
    return reshaped(node[0], [1 if axis in axes else next(rest) for axis in range(rank)])


@requires("Transpose")
def require_transpose(node: NodeView) -> Conflicts:
    perm, rank = node.given_integers("perm"), node.rank_of(0)
    if perm is not None and rank is not None and sorted(perm) != list(range(rank)):
        yield TypeConflict(f"`perm` is {perm} for {rank} axes", "it must list every axis once")


@lowers("Transpose")
def transpose(node: Node) -> Lowered:
    backwards = tuple(reversed(range(node.rank)))
    return gc.TransposeOp(node[0], perm=node.axes(node.integers("perm", backwards)))


@requires("Concat")
def require_concat(node: NodeView) -> Conflicts:
    yield from in_range("axis", [node.integer("axis", 1)], node.rank_of(0))


@lowers("Concat")
def concat(node: Node) -> Lowered:
    return gc.ConcatOp(node.inputs, axis=node.axis(node.integer("axis", 1)))


@requires("Split")
def require_split(node: NodeView) -> Conflicts:
    axis, shape = node.integer("axis"), node.shape_of(0)
    yield from in_range("axis", [axis], node.rank_of(0))
    yield from listed(node, 1)
    size = shape[axis] if shape else None
    parts, outputs = node.given_integers("split", 1), len(node.op.output_names)
    count = node.integer("num_outputs", outputs)
    if count != outputs:
        yield TypeConflict(
            f"`num_outputs` is {count}, but the node has {outputs}", "name all outputs"
        )
    if parts is None and node.version < 18 and isinstance(size, int) and size % outputs:
        yield TypeConflict(
            f"axis {axis} of size {size} cannot be split into {outputs} equal parts", "give `split`"
        )
    if parts is None or (not parts and not node.has(1)):
        return
    if len(parts) != outputs:
        yield TypeConflict(
            f"`split` has {len(parts)} sizes for {outputs} outputs", "give one size per output"
        )
    if min(parts) < 0 or (isinstance(size, int) and sum(parts) != size):
        yield TypeConflict(
            f"the sizes {parts} do not add up to {size}", "use sizes of 0 or more that do"
        )


@lowers("Split", structural=[1])
def split(node: Node) -> Lowered:
    axis = node.axis(node.integer("axis"))
    sizes = node.numbers_or_ints("split", 1) or _even_parts(node, node.shape[axis])
    starts = zip([0, *accumulate(sizes)], sizes, strict=False)
    return [sliced(node[0], {axis: (start, size, 1)}) for start, size in starts]


def _even_parts(node: Node, size: int) -> tuple[int, ...]:
    """Sizes of equal parts; the last one is smaller if the size is not divisible."""
    count = node.integer("num_outputs") or node.output_count
    part = -(-size // count)
    return tuple(max(0, min(part, size - part * index)) for index in range(count))


@requires("Slice")
def require_slice(node: NodeView) -> Conflicts:
    names = ("starts", "ends", "axes", "steps")
    lists = [node.given_integers(name, index) for index, name in enumerate(names, 1)]
    yield from listed(node, 1, 2, 4)
    lengths = {len(one) for one in lists if one is not None and one != []}
    if len(lengths) > 1:
        yield TypeConflict(
            f"the lists have {sorted(lengths)} elements", "give one element per axis in each"
        )
    yield from axes_of(node, "axes", 3, node.rank_of(0))
    rank, starts = node.rank_of(0), lists[0] or []
    if lists[2] is None and rank is not None and len(starts) > rank:
        yield TypeConflict(
            f"`starts` has {len(starts)} elements for {rank} axes", "give one element per axis"
        )
    if 0 in (lists[3] or []):
        yield TypeConflict("a step is 0", "use a positive or a negative step")


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
            "do not fit together",
            hint="give one element per axis in each list; no step may be 0",
        )
    each = zip(axes, starts, ends, steps, strict=True)
    return sliced(node[0], {axis: _range_of(node.shape[axis], *bounds) for axis, *bounds in each})


def _moving_slice(node: Node) -> SSAValue | None:
    """
    A Slice of known size whose start is linear in a loop's iteration number: a gather.

    None unless it is in range in all iterations: clamping would change its size.
    """
    if node.has("starts") or all(node.lowering.array(node[index]) is not None for index in (1, 2)):
        return None
    count = prod(shape_of(node[1]))
    axes = node.axes(node.numbers_or_ints("axes", 3) or tuple(range(count)))
    steps = node.numbers_or_ints("steps", 4) or (1,) * count
    if {count} != {len(axes), len(steps), prod(shape_of(node[2]))}:
        return None
    result = node[0]
    for place, (axis, step) in enumerate(zip(axes, steps, strict=True)):
        start, end = (linear_form(node[index], place, node.lowering) for index in (1, 2))
        part = _part(node, result, axis, start, end, step)
        if part is None:
            return None
        result = part
    return result


def _part(
    node: Node, value: SSAValue, axis: int, start: LinearForm, end: LinearForm, step: int
) -> SSAValue | None:
    """The slice from `start` to `end` along an axis; None unless it is always in range."""
    size, first, last = shape_of(value)[axis], start.known(), end.known()
    if first is not None and last is not None and step:
        return sliced(value, {axis: _range_of(size, first, last, step)})
    length, bounds = end.plus(start, -1).known(), start.bounds(node.lowering.trips)
    if length is None or bounds is None or length < 1 or step < 1:
        return None
    if bounds[0] < 0 or bounds[1] + length > size:
        return None
    counted = gc.IotaOp(shape=(-(-length // step),), axis=0, dtype=I64)
    offsets = gc.MulOp(counted, node.literal(np.array(step)))
    return gc.GatherOp(value, gc.AddOp(offsets, computed(start, node.lowering)), axis=axis).result


@lowers("Subsample", domain=GRAPHCORE)
def subsample(node: Node) -> Lowered:
    strides = node.integers("strides")
    if len(strides) != node.rank or min(strides, default=1) < 1:
        raise TypeMismatchError(
            f"strides {list(strides)} do not fit {node.rank} axes",
            hint="give one stride per axis, of 1 or more",
        )
    each = enumerate(zip(node.shape, strides, strict=True))
    return sliced(node[0], {axis: (0, -(-size // step), step) for axis, (size, step) in each})


@lowers("Reverse", domain=GRAPHCORE)
def reverse(node: Node) -> Lowered:
    axes = node.axes(node.integers("dimensions"))
    return sliced(node[0], {axis: (node.shape[axis] - 1, node.shape[axis], -1) for axis in axes})


@requires("Pad")
def require_pad(node: NodeView) -> Conflicts:
    yield from one_element(node, 2)
    yield from listed(node, 1)
    yield from axes_of(node, "axes", 3, node.rank_of(0))
    name = "paddings" if node.version == 1 else "pads"
    pads, shape = node.given_integers(name, 1), node.shape_of(0)
    axes = node.integers_of(3) if node.has(3) else list(range(len(shape or ())))
    if pads is None or shape is None or axes is None:
        return
    if len(pads) != 2 * len(axes):
        yield TypeConflict(
            f"`{name}` has {len(pads)} elements for {len(axes)} axes", "give two per axis"
        )
        return
    for place, axis in enumerate(axes):
        yield from _padded(node, shape[axis], pads[place], pads[place + len(axes)])


def _padded(node: NodeView, size: object, low: int, high: int) -> Conflicts:
    if not isinstance(size, int):
        return
    mode = node.text("mode", "constant")
    yield from wrong_sizes([size + low + high])
    left = size + min(low, 0) + min(high, 0)
    most = max(low, high)
    if left < 0:
        yield TypeConflict(
            f"pads of {low} and {high} remove more than the {size} elements of an axis",
            "use smaller negative pads",
        )
    elif mode != "constant" and most > 0 and left == 0:
        yield TypeConflict(f"an empty axis has no element to {mode}", "use mode `constant`")
    elif mode == "reflect" and most >= left and left > 1:
        yield TypeConflict(
            f"a pad of {most} reflects an axis of size {left}", f"pad by at most {left - 1}"
        )


chooses("Pad", mode=("constant", "reflect", "edge", "wrap"))


@lowers("Pad", structural=[1, 3])
def pad(node: Node) -> Lowered:
    given = node.numbers_or_ints("paddings" if node.version == 1 else "pads", 1) or ()
    axes = node.axes(node.numbers_or_ints("axes", 3, tuple(range(node.rank))) or ())
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
    """Negative padding crops."""
    each = enumerate(zip(shape_of(value), low, high, strict=True))
    ranges = {
        axis: (max(0, -before), size + min(0, before) + min(0, after), 1)
        for axis, (size, before, after) in each
        if before < 0 or after < 0
    }
    return sliced(value, ranges) if ranges else value


def _filled(node: Node, value: SSAValue, low: list[int], high: list[int]) -> Operand:
    """
    Pads with a constant, or with a computed value.

    A computed value replaces the padding by a mask, so that it has a gradient.
    """
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
    """Pads an axis in a mode that repeats elements: by up to MOST_PIECES slices, or a gather."""
    if pads == (0, 0):
        return value
    places = np.pad(np.arange(shape_of(value)[axis]), pads, mode=mode)  # type: ignore[call-overload]
    found = gathered_by_slices(value, places, axis, MOST_PIECES)
    return SSAValue.get(found or gc.GatherOp(value, node.literal(places), axis=axis))


@requires("Expand")
def require_expand(node: NodeView) -> Conflicts:
    yield from of_rank(node, 1, 1)
    yield from wrong_sizes(node.integers_of(1) or [])


@lowers("Expand", structural=[1])
def expand(node: Node) -> Lowered:
    shape = shapes.broadcast(node.shape, node.numbers(1, "the shape"))
    return node[0] if shape == node.shape else gc.BroadcastOp(node[0], shape=shape)


@requires("Tile")
def require_tile(node: NodeView) -> Conflicts:
    repeats, rank = node.integers_of(1), node.rank_of(0)
    if node.version == 1:
        yield from one_element(node, 1)
        yield from one_element(node, 2)
        yield from in_range("axis", node.integers_of(2) or [], rank)
        rank = 1
    if repeats is None or rank is None:
        return
    if len(repeats) != rank or min(repeats, default=0) < 0:
        yield TypeConflict(
            f"`repeats` is {repeats} for {rank} axes", "give one number of 0 or more per axis"
        )


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


@requires("DepthToSpace", "SpaceToDepth")
def require_blocks(node: NodeView) -> Conflicts:
    yield from of_rank(node, 0, 4)
    block, shape = node.integer("blocksize"), node.shape_of(0)
    if not 1 <= block < 2**31:
        yield TypeConflict(f"`blocksize` is {block}", "it must be 1 or more")
        return
    to_space = node.op.op_type == "DepthToSpace"
    for axis, by in [(1, block**2)] if to_space else [(2, block), (3, block)]:
        size = shape[axis] if shape is not None else None
        if isinstance(size, int) and size % by:
            yield TypeConflict(
                f"axis {axis} has size {size}, which is not a multiple of {by}",
                "use another `blocksize`",
            )


chooses("DepthToSpace", "SpaceToDepth", mode=("DCR", "CRD"))


def _block(node: Node) -> int:
    """The size of the blocks of images."""
    block = node.integer("blocksize")
    if node.rank != 4 or block < 1:
        raise TypeMismatchError(
            f"`blocksize` is {block} for a tensor of {node.rank} axes",
            hint="use an image [N, channels, height, width] and a `blocksize` of 1 or more",
        )
    return block


@lowers("DepthToSpace")
@lowers("DepthToSpace", domain=GRAPHCORE)
def depth_to_space(node: Node) -> Lowered:
    block = _block(node)
    count, depth, height, width = node.shape
    left = depth // block**2
    if depth % block**2:
        raise TypeMismatchError(f"{depth} channels are not divisible by blocksize^2 = {block**2}")
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


@requires("Trilu")
def require_trilu(node: NodeView) -> Conflicts:
    yield from at_least(node, 0, 2)
    yield from one_element(node, 1)


@lowers("Trilu")
def trilu(node: Node) -> Lowered:
    upper = bool(node.integer("upper", 1))
    given = node.optional(1)
    known = np.zeros(1, np.int64) if given is None else node.lowering.array(given)
    rows, columns = node.shape[-2:]
    if known is None:
        return gc.WhereOp(_beyond(node, node[1], upper), node[0], node.scalar(0))
    # Clamped, for k may be huge: diagonals beyond the matrix all keep the same elements.
    diagonal = min(max(int(known.reshape(-1)[0]), -rows - 1), columns + 1)
    below = np.tri(rows, columns, diagonal - 1 if upper else diagonal).astype(bool)
    kept = node.literal(~below if upper else below)
    return gc.WhereOp(kept, node[0], node.scalar(0))


def _beyond(node: Node, diagonal: SSAValue, upper: bool) -> Operand:
    """The mask of the elements on or beyond a diagonal that is only known at run time."""
    shape = node.shape[-2:]
    row, column = (gc.IotaOp(shape=shape, axis=axis, dtype=I64) for axis in (0, 1))
    number = gc.CastOp(reshaped(diagonal, ()), to=I64)
    return gc.CompareOp(gc.SubOp(column, row), number, predicate="ge" if upper else "le")


follows_data_sizes("Concat Flatten Reshape Slice Split Squeeze Transpose Unsqueeze")
