"""What PopART asks of its own operators, those of `ai.graphcore`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from popgraph.builder.opset.checks.collecting import SCATTER_SIZES, scattered_indices
from popgraph.builder.opset.checks.elementwise import broadcasting, dropped
from popgraph.builder.opset.checks.node import Node, spaced
from popgraph.builder.opset.checks.rewritten import DEPTH
from popgraph.builder.opset.checks.rules import (
    Complaints,
    Rule,
    axes,
    flag,
    rank,
    same_elements,
)
from popgraph.builder.opset.checks.shaped import (
    GATHERED,
    elements_stay,
    slice_axes,
    sorts,
    wanted_shape,
)
from popgraph.builder.opset.checks.windowed import NORMALIZED_RANK, statistics
from popgraph.support import dtypes, shapes


def abort(node: Node) -> Complaints:
    shape = node.shape()
    if shape is not None and shapes.prod(shape) > 1:
        yield "Conditional abort op can only test a scalar tensor"


BUCKETIZE = (
    flag("right", "BucketizeOp right = {value} is not valid: must be either 0 or 1."),
    rank(
        1,
        [1],
        "BucketizeOp::setup The boundaries tensor is not a 1-D tensor. The boundaries tensor rank "
        "= {rank}.",
    ),
    same_elements(
        0,
        1,
        "BucketizeOp::setup The input and boundaries tensors have different data types. The input "
        "tensor data type = {first}. The boundaries tensor data type = {second}.",
    ),
)


# losses


def _unsupported(node: Node, what: str, place: int, wanted: str) -> str:
    return f"Unsupported {what} for input {place} of Op {node.numbered} (expected {wanted})."


def log_probabilities(node: Node) -> Complaints:
    shape, element = node.shape(), node.element()
    if shape is not None and len(shape) != 3:
        wanted = "a 'logarithmized probabilities' tensor of rank 3, got a tensor with shape "
        yield _unsupported(node, "shape", 0, wanted + spaced(shape))
    if element is not None and not element.is_float:
        wanted = "a 'logarithmized probabilities' tensor comprised of floating point data, got "
        yield _unsupported(node, "data type", 0, wanted + element.popart)


def loss_type(node: Node) -> Complaints:
    named = dtypes.BY_ONNX.get(node.number("outDataType"))
    if named is not None and not named.is_float:
        yield (
            f"Unsupported data type for output 0 of Op {node.numbered} (expected a floating point "
            f"type, got {named.popart})."
        )


def targets(node: Node) -> Complaints:
    shape, labels = node.shape(), node.shape(1)
    if shape is None or labels is None or len(shape) != 3:
        return
    if len(labels) != 2 or labels[0] != shape[1]:
        yield _unsupported(
            node,
            "shape",
            1,
            f"a 'targets' tensor of rank 2 with the size of the first dimension being {shape[1]} "
            "to match the size of the second dimension of the 'logarithmized probabilities' "
            f"tensor, got {spaced(shape)}",
        )
    element = node.element(1)
    if element is not None and element.popart not in _LABELS:
        wanted = f"a 'targets' tensor of type UINT32 or type INT32, got {element.popart}"
        yield _unsupported(node, "data type", 0, wanted)


_LABELS = ("UINT32", "INT32")


def lengths(place: int, title: str, allowed: Sequence[str] = _LABELS, typed: str = "") -> Rule:
    """One whole number for each row of a batch; messages about its type may say another title."""

    def rule(node: Node) -> Complaints:
        shape, found, element = node.shape(), node.shape(place), node.element(place)
        if shape is not None and len(shape) == 3 and found not in (None, shape[1:2]):
            wanted = f"a '{title}' tensor of shape {spaced(shape[1:2])}, got {spaced(found or ())}"
            yield _unsupported(node, "shape", place, wanted)
        if element is not None and element.popart not in allowed:
            types = " or type ".join(allowed)
            wanted = f"a '{typed or title}' tensor of type {types}, got {element.popart}"
            yield _unsupported(node, "data type", place, wanted)

    return rule


def labels(node: Node) -> Complaints:
    """The labels of a loss fit its probabilities."""
    shape, found, element = node.shape(), node.shape(1), node.element(1)
    if shape == ():
        yield f"Invalid shape for prob tensor ({node.info()}) in Op {node.numbered}. "
        return
    if shape is not None and found is not None and found != shape[:-1]:
        yield (
            f"The label tensor ({node.info(1)}) must have shape {spaced(shape[:-1])} to match all "
            f"but the final dimension of the probabilities tensor ({node.info()}) in Op "
            f"{node.numbered}. "
        )
    if element is not None and not element.is_integer:
        yield (
            "Expected the label tensor NllOp to be an integer data type (fixed point), not the "
            f"case for input with info: {node.info(1)}. This error for Op {node.numbered}. "
        )


# recurrences, images, normalizations


def lstm_shapes(node: Node) -> Complaints:
    """Weights of four gates, and states, fit the data."""
    data, weights = node.shape(), node.shape(1)
    if data is None or weights is None or len(data) != 3 or len(weights) != 3:
        return
    hidden = weights[2]
    wanted = {
        1: ("weights", (4, data[2] + hidden, hidden)),
        2: ("bias", (4, hidden)),
        3: ("initialState", (2, data[1], hidden)),
    }
    for place, (name, shape) in wanted.items():
        if node.shape(place) not in (None, shape):
            yield f"Bad {name} shape {place}, should be {spaced(shape)}"


def image(node: Node) -> Complaints:
    scale, shape = node.attributes.get("scale", 1.0), node.shape()
    if isinstance(scale, int | float) and abs(scale) < _SMALLEST:
        yield "[normalizeImageOpCreator] scale should be greater than 0."
    if shape is not None and (len(shape) < 2 or shape[-1] != 3):
        yield "requires the inner dimension to be 3."


_SMALLEST = 2.0**-23
"""What separates 1 from the next number of FLOAT."""


# shapes and places


def grouped(node: Node) -> Complaints:
    shape, place = node.shape(), node.number("axis")
    if shape and place % len(shape) == 0 and node.number("group_size", 1) > 1:
        yield "GatherOp::setup axis = 0 indicates the dimension of the group"


def reshape(node: Node) -> Complaints:
    wanted = node.numbers("shape")
    why = wanted_shape(node, wanted) or elements_stay(node, wanted)
    if why is not None:
        yield why


def reverse(node: Node) -> Complaints:
    shape, given = node.shape(), node.numbers("dimensions")
    for place, one in enumerate(given):
        if one < 0:
            yield (
                f"ReverseOp '{node.numbered}' invalid dimension '{one}'. Only positive dimensions "
                "are supported"
            )
        if shape is not None and one >= len(shape):
            yield (
                f"ReverseOp '{node.numbered}' invalid dimension '{one}' for input tensor of rank "
                f"{len(shape)}"
            )
        if one in given[:place]:
            yield (
                f"Dimension {one} appears multiple times in the list of dimensions of ReverseOp "
                f"'{node.numbered}'"
            )


def dropped_shape(node: Node) -> Complaints:
    whole, shape = node.shape(), node.numbers("shape")
    if whole is None:
        return
    pairs = zip(reversed(shape), reversed(whole), strict=False)
    if any(1 not in pair and pair[0] != pair[1] for pair in pairs):
        yield (
            f"ShapedDropout: incompatible input tensor and dropout shape. {node.id} is configured "
            f"with shape {spaced(shape)} which is not broadcastable to the input tensor with shape "
            f"{spaced(whole)}."
        )


def axes_and_sizes(node: Node) -> Complaints:
    axes, sizes = node.numbers("axes"), node.numbers("sizes")
    if len(axes) != len(sizes):
        yield f"Op {node.numbered} has {len(axes)} axes, but {len(sizes)} sizes"


def one_stride_for_each_axis(node: Node) -> Complaints:
    shape, given = node.shape(), node.numbers("strides")
    if shape is not None and len(given) != len(shape):
        yield f"Op {node.numbered} has {len(given)} strides for the {len(shape)} axes of its input"


def strides(node: Node) -> Complaints:
    given = node.numbers("strides")
    if 0 in given:
        yield f"Strides invalid. 0 stride at index {given.index(0)}"


# splines


def degree(node: Node) -> Complaints:
    if not 0 <= (given := node.number("degree", 1)) <= 3:
        yield f"SplineBasisOp degree = {given} is not valid: must be between 0 and 3."


def _spline_rank(op_type: str, place: int, wanted: int, name: str, title: str) -> Rule:
    return rank(
        place,
        [wanted],
        f"{op_type}Op::setup: {name} tensor is not a {wanted}-D tensor. {title} tensor rank = "
        "{rank}.",
    )


def _spline_type(place: int, name: str) -> Rule:
    return same_elements(
        0,
        place,
        f"SplineWeightingOp::setup: The input and {name} tensors have different data types. The "
        f"input tensor data type = {{first}}. The {name} tensor data type = {{second}}.",
    )


_ONE = ("Detach", "Expm1", "Gelu", "GeluErf", "IdentityLoss", "IncrementMod", "L1", "Log1p",
        "BitwiseNot", "DepthToSpace", "NearbyInt", "Nop", "PrintTensor", "ReduceMedian",
        "ReplicatedAllReduce", "Reshape", "Reverse", "Round", "Scale", "ShapedDropout", "Slice",
        "Sort", "Subsample", "Swish")  # fmt: skip
_TWO = ("Atan2", "BitwiseAnd", "BitwiseOr", "BitwiseXnor", "BitwiseXor", "Bucketize",
        "CtcBeamSearchDecoder", "DynamicZero", "Fmod", "GroupedGather", "Nll",
        "Remainder")  # fmt: skip
_THREE = ("DynamicAdd", "DynamicUpdate", "GroupNormalization", "NormalizeImage", "SplineBasis")
OPERANDS: Mapping[str, tuple[int, int]] = {
    **dict.fromkeys(_ONE, (1, 1)),
    **dict.fromkeys(_TWO, (2, 2)),
    **dict.fromkeys(_THREE, (3, 3)),
    "BatchNormalization": (5, 5),
    "Ctc": (4, 4),
    "DynamicSlice": (2, 3),
    "LSTM": (2, 4),
    "ReplicatedReduceScatter": (1, 2),
    "ScaledAdd": (2, 4),
    "ScatterReduce": (2, 3),
    "SequenceSlice": (5, 5),
    "SplineWeighting": (4, 4),
    "TensorRemap": (1, 2),
}
"""How many operands the builder takes, at least and at most; any number of the other ones."""

ROWS = {
    "Abort": (abort,),
    "Atan2": (broadcasting,),
    "BatchNormalization": (NORMALIZED_RANK, statistics),
    "BitwiseAnd": (broadcasting,),
    "BitwiseOr": (broadcasting,),
    "BitwiseXnor": (broadcasting,),
    "BitwiseXor": (broadcasting,),
    "Bucketize": BUCKETIZE,
    "Ctc": (
        log_probabilities,
        loss_type,
        targets,
        lengths(2, "input lengths"),
        lengths(3, "target lengths"),
    ),
    "CtcBeamSearchDecoder": (
        log_probabilities,
        lengths(1, "data lengths", ("UINT32",), "input lengths"),
    ),
    "DepthToSpace": DEPTH,
    "Fmod": (broadcasting,),
    "GroupedGather": (GATHERED, grouped),
    "L1": (rank(0, range(1, 1 << 31), "L1Op not valid for rank-0 tensor (scalar)"),),
    "LSTM": (lstm_shapes,),
    "Nll": (labels,),
    "NormalizeImage": (image,),
    "ReduceMedian": (axes,),
    "Remainder": (broadcasting,),
    "Reshape": (reshape,),
    "Reverse": (reverse,),
    "ScatterReduce": (*SCATTER_SIZES, scattered_indices),
    "ShapedDropout": (dropped, dropped_shape),
    "Slice": (slice_axes,),
    "Sort": sorts("BaseSortOp", -1)[:2],
    "SplineBasis": (
        degree,
        _spline_rank("SplineBasis", 0, 2, "pseudo", "Pseudo"),
        _spline_rank("SplineBasis", 1, 1, "kernelSize", "KernelSize"),
        _spline_rank("SplineBasis", 2, 1, "isOpenSpline", "isOpenSpline"),
    ),
    "SplineWeighting": (
        _spline_rank("SplineWeighting", 0, 2, "input", "Input"),
        _spline_rank("SplineWeighting", 1, 3, "weight", "Weight"),
        _spline_rank("SplineWeighting", 2, 2, "basis", "Basis"),
        _spline_rank("SplineWeighting", 3, 2, "weightIndex", "weightIndex"),
        _spline_type(1, "weight"),
        _spline_type(2, "basis"),
    ),
    "Subsample": (strides, one_stride_for_each_axis),
    **dict.fromkeys(("DynamicSlice", "DynamicZero"), (axes_and_sizes,)),
    **dict.fromkeys(("DynamicAdd", "DynamicUpdate"), (axes_and_sizes,)),
}
