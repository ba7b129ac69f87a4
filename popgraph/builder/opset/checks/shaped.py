"""What PopART asks of operators that move elements: axes, shapes, places and counts."""

from __future__ import annotations

from collections.abc import Sequence

from popgraph.builder.opset.checks.node import Node, spaced
from popgraph.builder.opset.checks.rules import (
    ANY,
    Complaints,
    Rule,
    absent,
    axes,
    axis,
    constant,
    flag,
    needed,
    rank,
)
from popgraph.dialects.onnx.requirements.normalizations import REDUCTIONS
from popgraph.support import shapes
from popgraph.support.shapes import Shape


def wanted_shape(node: Node, wanted: Sequence[int]) -> str | None:
    """What is wrong with a shape that Reshape is given, where 0 and -1 stand for sizes."""
    if (bad := next((size for size in wanted if size < -1), None)) is not None:
        return f"Dimension, {bad}, of new shape for Reshape cannot be smaller than -1."
    shape = node.shape()
    if shape is None:
        return None
    sizes = [shape[at] if not size and at < len(shape) else size for at, size in enumerate(wanted)]
    if -1 not in sizes:
        return None
    known = -shapes.prod(sizes)
    if known and shapes.prod(shape) % known:
        return "Incompatible inferred dimension, not whole number."
    if sizes.count(-1) > 1:
        return "shape input to ReshapeOp can only use -1 to specify one unknown dimension"
    return None


def elements_stay(node: Node, wanted: Sequence[int]) -> str | None:
    """Why a shape does not hold as many elements as there are."""
    shape = node.shape()
    if shape is None:
        return None
    sizes = [shape[at] if not size and at < len(shape) else size for at, size in enumerate(wanted)]
    if -1 in sizes:
        return None
    before, after = shapes.prod(shape), shapes.prod(sizes)
    if before == after:
        return None
    return (
        f"Failure in ReshapeOp::setup() for {node}. Trying to reshape from {spaced(shape)} to "
        f"{spaced(sizes)}. The number of elements of the input is {before}, while the number of "
        f"elements of the output is {after}. The number of elements cannot change for a ReshapeOp"
    )


def _known(node: Node, place: int) -> list[int] | None:
    """The elements of an operand that is a list of whole numbers, if they are known."""
    found = node.values.get(place)
    return None if found is None or found.ndim != 1 else [int(one) for one in found]


def _unable(node: Node, word: str, why: str) -> str:
    return (
        f"Need the value of the {node.id} input '{word}' to determine the output shape, but was "
        f"unable because {why}"
    )


def reshape(node: Node) -> Complaints:
    wanted = _known(node, 1)
    if wanted is None:
        return
    if (why := wanted_shape(node, wanted)) is not None:
        yield _unable(node, "shape", why)
    elif (why := elements_stay(node, wanted)) is not None:
        yield why


def expand(node: Node) -> Complaints:
    wanted, shape = _known(node, 1), node.shape()
    if wanted is None or shape is None:
        return
    pairs = zip(reversed(shape), reversed(wanted), strict=False)
    if any(1 not in (one, other) and one != other for one, other in pairs):
        why = (
            "Expand shape constraint: corresponding dimensions must have the same value or one of "
            "them must be 1"
        )
        yield _unable(node, "shape", why)


def tile(node: Node) -> Complaints:
    shape, repeats, values = node.shape(), node.shape(1), _known(node, 1)
    name = node.inputs[1] if node.has(1) else ""
    element = node.element(1)
    if element is not None and element.popart != "INT64":
        yield f"'Repeats' tensor `{name}' is not INT64, it is {element.popart}"
    if repeats is not None and len(repeats) != 1:
        yield f"'Repeats' tensor `{name}' should be rank 1 in TileOp constructor"
    if shape is not None and repeats is not None and repeats != (len(shape),):
        yield (
            f"'Repeats' tensor `{name}' should have one element for each dimension of the data "
            "tensor"
        )
    for place, value in enumerate(values or ()):
        if value < 1:
            yield f"'Repeats' tensor `{name}' has invalid value `{value}' at index {place}"


def tiled(node: Node) -> Complaints:
    """What the builder says of a result that would have fewer than no elements."""
    shape, values = node.shape(), _known(node, 1)
    if shape is not None and values is not None and len(values) == len(shape):
        yield from no_shape(node, [size * one for size, one in zip(shape, values, strict=True)])


def no_shape(node: Node, shape: Sequence[int]) -> Complaints:
    """The builder infers shapes, and refuses those that no tensor has."""
    if any(size < 0 for size in shape):
        yield (
            f"Output '{node.outputs[0]}' of node '{node.name or node.op_type}' has invalid shape, "
            f"{spaced(shape)}. Values must be non-negative in each shape dimension."
        )


def concat(node: Node) -> Complaints:
    """Pieces have one rank, one element type, and one size along every other axis."""
    first = node.shape()
    place = node.number("axis", 1 if node.version < 4 else 0)
    if first is None:
        return
    if not -len(first) <= place < len(first):
        yield (
            f"Attribute 'axis' of ConcatOp, {place}, is outside of acceptable range "
            f"[{-len(first)}, {len(first) - 1}]"
        )
        return
    elements = {node.element(at) for at in range(len(node.inputs))} - {None}
    if len(elements) > 1:
        yield f"All input tensor types to a concat operation must be equal. This is for op {node}"
    yield from _pieces(node, first, place % len(first))


def _pieces(node: Node, first: Shape, place: int) -> Complaints:
    found = [node.shape(at) for at in range(len(node.inputs))]
    sizes = list(first)
    sizes[place] = 0
    for at, shape in enumerate(found):
        if shape is None:
            return
        if len(shape) != len(first):
            yield (
                f"Input {at} of {len(found)} to concat does not have matching output rank. Input "
                f"{at} has rank {len(shape)} ({spaced(shape)}) while the output has rank "
                f"{len(first)} ({spaced(sizes)}).Concat axis {place}."
            )
            return
        if (*shape[:place], *shape[place + 1 :]) != (*first[:place], *first[place + 1 :]):
            listed = "".join(f"\n{spaced(one)}" for one in found if one is not None)
            yield (
                f"Input {at} to concat does not have matching shape. In "
                f"ConcatOp::getOutputShape, axis = {place} and shapes : {listed}"
            )
        sizes[place] += shape[place]


def flatten(node: Node) -> Complaints:
    shape, place = node.shape(), node.number("axis", 1)
    if shape is not None:
        place += len(shape) if place < 0 else 0
        if not 0 <= place <= len(shape):
            yield f"invalid axis {place} in flattenOpFactory"


GATHERED = axis(
    "GatherOp::setup axis = {axis} is outside the acceptable range [{least}, {most}]", default=0
)


def split(node: Node) -> Complaints:
    """The words of the builder, which is the first to look."""
    shape, place = node.shape(), node.number("axis")
    if shape is None:
        return
    if not -len(shape) <= place < len(shape):
        yield f"Invalid value of attribute 'axis'. Rank={len(shape)} Value={place}"
        return
    sizes, size = node.numbers("split"), shape[place]
    if sizes and len(sizes) != len(node.outputs):
        yield f"Mismatch between number of splits ({len(sizes)}) and outputs ({len(node.outputs)})"
    elif sizes and sum(sizes) != size:
        yield (
            f"Mismatch between the sum of 'split' ({sum(sizes)}) and the split dimension of the "
            f"input ({size})"
        )
    elif not sizes and node.outputs and size % len(node.outputs):
        yield "The input is not evenly splittable"


def split_as_operator(node: Node) -> Complaints:
    """The words of the operator, for a model that no builder has seen."""
    shape, place, sizes = node.shape(), node.number("axis"), node.numbers("split")
    if shape is None:
        return
    rank, count = len(shape), len(node.outputs)
    if place < -rank:
        yield f"Split op input tensor {node.inputs[0]}, rank {rank}, axis {place} is out of range"
    elif sizes and len(sizes) != count:
        yield "Number of outputs does not match number of requested splits"
    elif place >= rank:
        yield f"Axis {place} is out of range for tensor with {rank} dims"
    elif sizes and sum(sizes) != shape[place]:
        yield f"splits {sum(sizes)} invalid for dimension of size {shape[place]}"
    elif not sizes and count and shape[place] % count:
        yield (
            f"Tensor {node.inputs[0]} ({spaced(shape)}) may not be split into equally sized parts "
            f"along axis {place % rank}"
        )


def slice_axes(node: Node) -> Complaints:
    shape = node.shape()
    given: Sequence[int] | None
    if node.version < 10:
        given = node.numbers("axes") or range(len(node.numbers("starts")))
    else:
        given = _known(node, 3) if node.has(3) else range(len(_known(node, 1) or ()))
    for one in given or () if shape is not None else ():
        assert shape is not None, "it is known"
        if one < -len(shape):
            yield (
                f"slice op input tensor {node.inputs[0]}, rank {len(shape)}, axis {one} is out "
                "of range"
            )
        elif one >= len(shape):
            yield (
                "Invalid input shape in BaseSliceOp::getSlices. The input shape has rank "
                f"{len(shape)}, but axis = {one}. axis must be less than the input shape's rank. "
                f"This error is for Op {node.numbered}."
            )


SLICE_PLACES = tuple(needed(at, word) for at, word in enumerate(("starts", "ends", "axes"), 1))


def one_hot(node: Node) -> Complaints:
    depth = node.shape(1)
    if depth is not None and shapes.prod(depth) != 1:
        yield "The depth tensor should be rank 0 in OneHot"


def top_k(node: Node) -> Complaints:
    shape, place = node.shape(), node.number("axis", -1)
    given = node.values.get(1)
    if shape is None or not shape or not -len(shape) <= place < len(shape):
        return
    if node.version >= 10 and given is not None and given.size != 1:
        yield f"Expected input at index 1 to has a shape of [1]. It has shape [{given.size}]"
        return
    if node.version < 10:
        wanted = node.number("k")
    else:
        wanted = 0 if given is None else int(given.item())
    if shape[place] < wanted:
        yield (
            f"Cannot take top-{wanted} on dim of size {place % len(shape)}, invalid Op "
            f"{node.numbered}"
        )


def transpose(node: Node) -> Complaints:
    order, shape = node.numbers("perm"), node.shape()
    if shape is not None and order and len(order) != len(shape):
        yield (
            f"Rank of permutation tensor {spaced(order)}, rank {len(order)} must be equal to rank "
            f"of input tensor, shape {spaced(shape)}, rank {len(shape)}."
        )


def cumulated_axis(node: Node) -> Complaints:
    shape = node.shape(1)
    if shape is not None and shapes.prod(shape) != 1:
        yield "CumSum op, 'axis' tensor must have one element."


def cumulated_range(node: Node) -> Complaints:
    shape, given = node.shape(), node.values.get(1)
    if shape is None or given is None or given.size != 1:
        return
    if not -len(shape) <= int(given.item()) < len(shape):
        yield "CumSumOpx op, 'axis' value out of range."


def sorts(title: str, default: int) -> tuple[Rule, ...]:
    """Operators that look for places along an axis."""
    return (
        rank(
            0,
            ANY[1:],
            f"{title} input rank must be greater than 0, invalid {title} {{node.numbered}}.",
        ),
        _beyond(title, default),
        axis("Axis {axis} is out of acceptable range [{least}, {most}]", default),
    )


def _beyond(title: str, default: int) -> Rule:
    def rule(node: Node) -> Complaints:
        shape, place = node.shape(), node.number("axis", default)
        if shape is not None and place >= len(shape):
            yield (
                f"Cannot compute {title} on axis {place} when input rank is {len(shape)}, invalid "
                f"{title} {node.numbered}."
            )

    return rule


def scan(node: Node) -> Complaints:
    """All that is scanned has as many turns as the first."""
    count = node.number("num_scan_inputs")
    if node.version < 9 or count < 1 or count > len(node.inputs):
        return
    axes, first = node.numbers("scan_input_axes"), None
    for at in range(count):
        shape = node.shape(len(node.inputs) - count + at)
        place = axes[at] if at < len(axes) else 0
        if shape is None or not -len(shape) <= place < len(shape):
            return
        first = shape[place] if first is None else first
        if shape[place] != first:
            yield (
                "[ScanOp] Number of iterations required by the inputs do not match: "
                f"{first} {shape[place]}"
            )


ROWS = {
    "ArgMax": sorts("ArgExtremaOp", 0),
    "ArgMin": sorts("ArgExtremaOp", 0),
    "Concat": (concat,),
    "ConstantOfShape": (constant(0, "the tensor `{input}` does not have data"),),
    "CumSum": (
        flag("exclusive", "CumSum op, 'exclusive' attributes must be 0 or 1."),
        flag("reverse", "CumSum op, 'reverse' attributes must be 0 or 1."),
        cumulated_axis,
        constant(1, "For CumSum op {node}, the axis tensor {input} does not have data."),
        cumulated_range,
    ),
    "Constant": (
        absent("sparse_value", "The Constant op attribute 'sparse_value' is not supported."),
    ),
    "Expand": (needed(1, "shape"), expand),
    "Flatten": (flatten,),
    "Gather": (GATHERED,),
    "LogSoftmax": (
        axis("LogSoftmax axis, {axis}, is outside of acceptable range [{least}, {most}]", 1),
    ),
    "OneHot": (constant(1, "The depth Tensor `{input}' does not have data"), one_hot),
    "Reshape": (needed(1, "shape"), reshape),
    "Scan": (scan,),
    "Slice": (
        *SLICE_PLACES,
        needed(4, "steps", "determine the slicing direction"),
        slice_axes,
    ),
    "Split": (split_as_operator,),
    "Tile": (constant(1, "The 'Repeats' Tensor `{input}' must be of type Constant"), tile),
    "TopK": (
        *sorts("BaseSortOp", -1)[:2],
        constant(1, "The tensor `{input}` does not have data"),
        top_k,
    ),
    "Transpose": (transpose,),
    **dict.fromkeys(REDUCTIONS, (axes,)),
}
