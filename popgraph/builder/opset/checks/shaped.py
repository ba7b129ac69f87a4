"""PopART's rules of operators that move or collect elements: axes, shapes, indices, counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from popgraph.builder.opset.checks.node import Node, spaced
from popgraph.builder.opset.checks.rules import (
    IMMEDIATE_CHECKS,
    Conflicts,
    aligned,
    axes,
    checks,
    in_range,
    known,
    needed,
    unsupported,
)
from popgraph.operators.reductions import REDUCTIONS
from popgraph.support import shapes
from popgraph.support.shapes import Shape

checks(*REDUCTIONS, own=("ReduceMedian",))(axes)


@checks("Constant")
def constant(node: Node) -> Conflicts:
    yield from unsupported(node, "The Constant op attribute '{}' is not supported.", "sparse_value")


@checks("ConstantOfShape")
def constant_of_shape(node: Node) -> Conflicts:
    yield from known(node, "the tensor `{}` does not have data", 0)


# shapes


def wanted_shape(node: Node, wanted: Sequence[int]) -> Conflicts:
    """The shape operand of Reshape, where 0 copies a size and -1 is inferred."""
    for bad in (size for size in wanted if size < -1):
        yield f"Dimension, {bad}, of new shape for Reshape cannot be smaller than -1."
    sizes = _sizes(node, wanted)
    if -1 not in sizes:
        return
    count = -shapes.prod(sizes)
    if count and shapes.prod(node.shape()) % count:
        yield "Incompatible inferred dimension, not whole number."
    if sizes.count(-1) > 1:
        yield "shape input to ReshapeOp can only use -1 to specify one unknown dimension"


def elements_stay(node: Node, wanted: Sequence[int]) -> Conflicts:
    """A reshape keeps the number of elements."""
    sizes = _sizes(node, wanted)
    before, after = shapes.prod(node.shape()), shapes.prod(sizes)
    if -1 not in sizes and before != after:
        yield (
            f"Failure in ReshapeOp::setup() for {node}. Trying to reshape from "
            f"{spaced(node.shape())} to {spaced(sizes)}. The number of elements of the input is "
            f"{before}, while the number of elements of the output is {after}. The number of "
            "elements cannot change for a ReshapeOp"
        )


def _sizes(node: Node, wanted: Sequence[int]) -> list[int]:
    shape = node.shape()
    return [shape[at] if not size and at < len(shape) else size for at, size in enumerate(wanted)]


@checks("Reshape")
def reshape(node: Node) -> Conflicts:
    yield from needed(node, 1, "shape")
    wanted = node.integers(1)
    for why in wanted_shape(node, wanted):
        yield _UNABLE.format(node.id, why)
    yield from elements_stay(node, wanted)


@checks("Expand")
def expand(node: Node) -> Conflicts:
    yield from needed(node, 1, "shape")
    if not aligned(node.shape(), node.integers(1)):
        why = "Expand shape constraint: corresponding dimensions must have the same value or one of"
        yield _UNABLE.format(node.id, f"{why} them must be 1")


_UNABLE = (
    "Need the value of the {} input 'shape' to determine the output shape, but was unable because "
    "{}"
)


@checks("Tile")
def tile(node: Node) -> Conflicts:
    yield from known(node, "The 'Repeats' Tensor `{}' must be of type Constant", 1)
    about = f"'Repeats' tensor `{node.input(1)}'"
    if (found := node.element(1).popart) != "INT64":
        yield f"{about} is not INT64, it is {found}"
    if node.rank(1) != 1:
        yield f"{about} should be rank 1 in TileOp constructor"
    if node.shape(1) != (node.rank(),):
        yield f"{about} should have one element for each dimension of the data tensor"
    for index, value in enumerate(node.integers(1)):
        if value < 1:
            yield f"{about} has invalid value `{value}' at index {index}"


@checks("Tile", table=IMMEDIATE_CHECKS)
def tiled(node: Node) -> Conflicts:
    shape, repeats = node.shape(), node.integers(1)
    if len(repeats) == len(shape):
        yield from no_shape(node, [size * one for size, one in zip(shape, repeats, strict=True)])


def no_shape(node: Node, shape: Sequence[int]) -> Conflicts:
    """The builder infers shapes, and rejects negative sizes."""
    if any(size < 0 for size in shape):
        yield (
            f"Output '{node.outputs[0]}' of node '{node.name or node.op_type}' has invalid shape, "
            f"{spaced(shape)}. Values must be non-negative in each shape dimension."
        )


@checks("Flatten")
def flatten(node: Node) -> Conflicts:
    rank, axis = node.rank(), node.number("axis", 1)
    axis += rank if axis < 0 else 0
    if not 0 <= axis <= rank:
        yield f"invalid axis {axis} in flattenOpFactory"


# splitting and joining


@checks("Concat")
def concat(node: Node) -> Conflicts:
    first, default = node.shape(), 1 if node.version < 4 else 0
    yield from in_range(node, "Attribute 'axis' of ConcatOp, {}, is outside of", default)
    pieces = range(len(node.inputs))
    if len({node.known_element(at) for at in pieces} - {None}) > 1:
        yield f"All input tensor types to a concat operation must be equal. This is for op {node}"
    axis = node.number("axis", default) % len(first)
    sizes = list(first)
    sizes[axis] = 0
    for at in pieces:
        shape = node.shape(at)
        if len(shape) != len(first):
            yield (
                f"Input {at} of {len(pieces)} to concat does not have matching output rank. Input "
                f"{at} has rank {len(shape)} ({spaced(shape)}) while the output has rank "
                f"{len(first)} ({spaced(sizes)}).Concat axis {axis}."
            )
        if (*shape[:axis], *shape[axis + 1 :]) != (*first[:axis], *first[axis + 1 :]):
            shown = (node.known_shape(one) for one in pieces)
            listed = "".join(f"\n{spaced(one)}" for one in shown if one is not None)
            yield (
                f"Input {at} to concat does not have matching shape. In "
                f"ConcatOp::getOutputShape, axis = {axis} and shapes : {listed}"
            )
        sizes[axis] += shape[axis]


@checks("Split", table=IMMEDIATE_CHECKS)
def split_by_builder(node: Node) -> Conflicts:
    shape, axis, sizes = node.shape(), node.number("axis"), node.numbers("split")
    count = len(node.outputs)
    if not -len(shape) <= axis < len(shape):
        yield f"Invalid value of attribute 'axis'. Rank={len(shape)} Value={axis}"
    if sizes and len(sizes) != count:
        yield f"Mismatch between number of splits ({len(sizes)}) and outputs ({count})"
    if sizes and sum(sizes) != shape[axis]:
        yield (
            f"Mismatch between the sum of 'split' ({sum(sizes)}) and the split dimension of the "
            f"input ({shape[axis]})"
        )
    if not sizes and count and shape[axis] % count:
        yield "The input is not evenly splittable"


@checks("Split")
def split(node: Node) -> Conflicts:
    """Session messages, for a model that no builder has checked."""
    shape, axis, sizes = node.shape(), node.number("axis"), node.numbers("split")
    rank, count = len(shape), len(node.outputs)
    if axis < -rank:
        yield f"Split op input tensor {node.inputs[0]}, rank {rank}, axis {axis} is out of range"
    if sizes and len(sizes) != count:
        yield "Number of outputs does not match number of requested splits"
    if axis >= rank:
        yield f"Axis {axis} is out of range for tensor with {rank} dims"
    if sizes and sum(sizes) != shape[axis]:
        yield f"splits {sum(sizes)} invalid for dimension of size {shape[axis]}"
    if not sizes and count and shape[axis] % count:
        yield (
            f"Tensor {node.inputs[0]} ({spaced(shape)}) may not be split into equally sized parts "
            f"along axis {axis % rank}"
        )


@checks("Slice", own=("Slice",))
def slice_axes(node: Node) -> Conflicts:
    if not node.domain:
        for index, word in enumerate(("starts", "ends", "axes"), 1):
            yield from needed(node, index, word)
        yield from needed(node, 4, "steps", "determine the slicing direction")
    rank = node.rank()
    for one in _slice_axes(node):
        if one < -rank:
            yield f"slice op input tensor {node.inputs[0]}, rank {rank}, axis {one} is out of range"
        if one >= rank:
            yield (
                "Invalid input shape in BaseSliceOp::getSlices. The input shape has rank "
                f"{rank}, but axis = {one}. axis must be less than the input shape's rank. "
                f"This error is for Op {node.numbered}."
            )


def _slice_axes(node: Node) -> Iterable[int]:
    if node.version < 10:
        return node.numbers("axes") or range(len(node.numbers("starts")))
    if node.has(3):
        return node.integers(3)
    return range(len(node.integers(1)))


# sorting


def sorts(node: Node, title: str, default: int) -> Conflicts:
    """Operators that sort elements along an axis."""
    rank, axis = node.rank(), node.number("axis", default)
    if rank == 0:
        yield f"{title} input rank must be greater than 0, invalid {title} {node.numbered}."
    if axis >= rank:
        yield (
            f"Cannot compute {title} on axis {axis} when input rank is {rank}, invalid {title} "
            f"{node.numbered}."
        )


@checks("ArgMax", "ArgMin")
def extremum(node: Node) -> Conflicts:
    yield from sorts(node, "ArgExtremaOp", 0)
    yield from in_range(node, "Axis {} is out of", 0)


@checks(own=("Sort",))
def sort(node: Node) -> Conflicts:
    yield from sorts(node, "BaseSortOp", -1)


@checks("TopK")
def top_k(node: Node) -> Conflicts:
    yield from sorts(node, "BaseSortOp", -1)
    yield from known(node, "The tensor `{}` does not have data", 1)
    shape, axis, wanted = node.shape(), node.number("axis", -1), node.number("k")
    if axis < -len(shape):
        return
    if node.version >= 10:
        given = node.value(1)
        if given.size != 1:
            yield f"Expected input at index 1 to has a shape of [1]. It has shape [{given.size}]"
        wanted = int(given.item())
    if shape[axis] < wanted:
        yield (
            f"Cannot take top-{wanted} on dim of size {axis % len(shape)}, invalid Op "
            f"{node.numbered}"
        )


@checks("Transpose")
def transpose(node: Node) -> Conflicts:
    order, rank = node.numbers("perm"), node.rank()
    if order and len(order) != rank:
        yield (
            f"Rank of permutation tensor {spaced(order)}, rank {len(order)} must be equal to rank "
            f"of input tensor, shape {spaced(node.shape())}, rank {rank}."
        )


# along an axis


@checks("CumSum")
def cumulated(node: Node) -> Conflicts:
    for name in ("exclusive", "reverse"):
        if node.number(name) not in (0, 1):
            yield f"CumSum op, '{name}' attributes must be 0 or 1."
    if shapes.prod(node.shape(1)) != 1:
        yield "CumSum op, 'axis' tensor must have one element."
    yield from known(node, "For CumSum op {node}, the axis tensor {} does not have data.", 1)
    rank, given = node.rank(), node.value(1)
    if given.size == 1 and not -rank <= int(given.item()) < rank:
        yield "CumSumOpx op, 'axis' value out of range."


@checks("LogSoftmax")
def log_softmax(node: Node) -> Conflicts:
    yield from in_range(node, "LogSoftmax axis, {}, is outside of", 1)


@checks("OneHot")
def one_hot(node: Node) -> Conflicts:
    yield from known(node, "The depth Tensor `{}' does not have data", 1)
    if shapes.prod(node.shape(1)) != 1:
        yield "The depth tensor should be rank 0 in OneHot"


@checks("Scan")
def scan(node: Node) -> Conflicts:
    """All scanned inputs have as many iterations as the first."""
    count = node.number("num_scan_inputs")
    if node.version < 9 or count < 1 or count > len(node.inputs):
        return
    axes, first = node.numbers("scan_input_axes"), None
    for at in range(count):
        shape = node.shape(len(node.inputs) - count + at)
        axis = axes[at] if at < len(axes) else 0
        if not -len(shape) <= axis < len(shape):
            return
        first = shape[axis] if first is None else first
        if shape[axis] != first:
            yield (
                "[ScanOp] Number of iterations required by the inputs do not match: "
                f"{first} {shape[axis]}"
            )


# gather and scatter


@checks("Gather", own=("GroupedGather",))
def gather(node: Node) -> Conflicts:
    yield from in_range(node, "GatherOp::setup axis = {} is outside the", 0)
    rank, grouped = node.rank(), node.domain and node.number("group_size", 1) > 1
    if grouped and rank and node.number("axis") % rank == 0:
        yield "GatherOp::setup axis = 0 indicates the dimension of the group"


@checks(own=("ScatterReduce",))
def scatter_reduce(node: Node) -> Conflicts:
    for name in ("axis_size", "group_size"):
        if (size := node.number(name, 1)) < 1:
            yield f"ScatterReduceOp {name} = {size} is not valid: must be > 0."
    if (stretched := node.number("enable_index_broadcast", 1)) not in (0, 1):
        yield (
            f"ScatterReduceOp enable_index_broadcast = {stretched} is not valid: must be either 0 "
            "or 1."
        )
    yield from in_range(node, _OUTSIDE)
    yield from _beside_source(node, 0, axis=-1, partial=not stretched)


@checks("Scatter", "ScatterElements")
def scatter(node: Node) -> Conflicts:
    """PopART has one class for both, and compares indices with the updates, the last operand."""
    yield from in_range(node, _OUTSIDE, default=0, index=2)
    yield from _beside_source(node, 2, axis=0, partial=True)


_OUTSIDE = "ScatterReduceOp::setup axis = {} is outside the"


def _beside_source(node: Node, source: int, axis: int, partial: bool) -> Conflicts:
    """
    Indices, the second operand, broadcast to the shape of a source.

    `axis` is the default of the attribute; `partial` allows indices with sizes of their own.
    """
    data, indices = node.shape(source), node.shape(1)
    if data == indices:
        return
    if len(indices) > len(data):
        yield (
            "Invalid rank for indices input. "
            f"Indices rank {len(indices)} must be <= data input rank {len(data)}."
        )
    index, group = node.number("axis", axis) % len(data), node.number("group_size", 1) > 1
    stretched = shapes.expanded_indices_shape(indices, len(data), index, group)
    if any(one > other for one, other in zip(stretched, data, strict=True)):
        yield (
            f"Failed to expand 'indices' shape {_listed(indices)} to match 'src' shape "
            f"{_listed(data)} using reduction axis = {index}."
        )
    others = [size for at, size in enumerate(stretched) if at != index and at >= int(group)]
    if not partial and stretched != data and any(size != 1 for size in others):
        yield "Partial broadcasting of indices is not currently supported."


def _listed(shape: Shape) -> str:
    """A shape as PopART's array library writes it."""
    return f"({','.join(map(str, shape))})"
