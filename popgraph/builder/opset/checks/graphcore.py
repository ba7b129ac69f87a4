"""PopART's rules of its own operators (`ai.graphcore`)."""

from __future__ import annotations

from collections.abc import Mapping

from popgraph.builder.opset.checks.node import Node, spaced
from popgraph.builder.opset.checks.rules import IMMEDIATE_CHECKS, Conflicts, aligned, checks
from popgraph.builder.opset.checks.shaped import elements_stay, wanted_shape
from popgraph.support import dtypes, shapes


@checks(own=("Abort",))
def abort(node: Node) -> Conflicts:
    if shapes.prod(node.shape()) > 1:
        yield "Conditional abort op can only test a scalar tensor"


@checks(own=("Bucketize",))
def bucketize(node: Node) -> Conflicts:
    if (right := node.number("right")) not in (0, 1):
        yield f"BucketizeOp right = {right} is not valid: must be either 0 or 1."
    if (rank := node.rank(1)) != 1:
        yield (
            "BucketizeOp::setup The boundaries tensor is not a 1-D tensor. The boundaries tensor "
            f"rank = {rank}."
        )
    yield from _same_types(node, "BucketizeOp::setup", "boundaries", 1)


def _same_types(node: Node, about: str, name: str, index: int) -> Conflicts:
    first, other = node.element(), node.element(index)
    if first != other:
        yield (
            f"{about} The input and {name} tensors have different data types. The input tensor "
            f"data type = {first.numpy}. The {name} tensor data type = {other.numpy}."
        )


# losses


def _unsupported(node: Node, what: str, index: int, wanted: str) -> str:
    return f"Unsupported {what} for input {index} of Op {node.numbered} (expected {wanted})."


_LABELS = ("UINT32", "INT32")


@checks(own=("Ctc",))
def ctc_loss(node: Node) -> Conflicts:
    yield from _log_probabilities(node)
    named = dtypes.BY_ONNX.get(node.number("outDataType"))
    if named is not None and not named.is_float:
        yield (
            f"Unsupported data type for output 0 of Op {node.numbered} (expected a floating point "
            f"type, got {named.popart})."
        )
    shape, targets = node.shape(), node.shape(1)
    if len(targets) != 2 or targets[0] != shape[1]:
        wanted = (
            f"a 'targets' tensor of rank 2 with the size of the first dimension being {shape[1]} "
            "to match the size of the second dimension of the 'logarithmized probabilities' "
            f"tensor, got {spaced(shape)}"
        )
        yield _unsupported(node, "shape", 1, wanted)
    if (element := node.element(1).popart) not in _LABELS:
        wanted = f"a 'targets' tensor of type UINT32 or type INT32, got {element}"
        yield _unsupported(node, "data type", 0, wanted)
    for index, title in ((2, "input lengths"), (3, "target lengths")):
        yield from _lengths(node, index, title, title, *_LABELS)


@checks(own=("CtcBeamSearchDecoder",))
def ctc_decoder(node: Node) -> Conflicts:
    yield from _log_probabilities(node)
    yield from _lengths(node, 1, "data lengths", "input lengths", "UINT32")


def _log_probabilities(node: Node) -> Conflicts:
    about = "a 'logarithmized probabilities' tensor"
    if node.rank() != 3:
        wanted = f"{about} of rank 3, got a tensor with shape {spaced(node.shape())}"
        yield _unsupported(node, "shape", 0, wanted)
    if not (element := node.element()).is_float:
        wanted = f"{about} comprised of floating point data, got {element.popart}"
        yield _unsupported(node, "data type", 0, wanted)


def _lengths(node: Node, index: int, title: str, typed: str, *allowed: str) -> Conflicts:
    """Checks for one integer per batch row; messages about its type may use another title."""
    wanted, shape, element = node.shape()[1:2], node.shape(index), node.element(index).popart
    if shape != wanted:
        expected = f"a '{title}' tensor of shape {spaced(wanted)}, got {spaced(shape)}"
        yield _unsupported(node, "shape", index, expected)
    if element not in allowed:
        types = " or type ".join(allowed)
        expected = f"a '{typed}' tensor of type {types}, got {element}"
        yield _unsupported(node, "data type", index, expected)


@checks(own=("Nll",))
def nll_loss(node: Node) -> Conflicts:
    shape, about = node.shape(), f"Op {node.numbered}. "
    if shape == ():
        yield f"Invalid shape for prob tensor ({node.info()}) in {about}"
    if node.shape(1) != shape[:-1]:
        yield (
            f"The label tensor ({node.info(1)}) must have shape {spaced(shape[:-1])} to match all "
            f"but the final dimension of the probabilities tensor ({node.info()}) in {about}"
        )
    if not node.element(1).is_integer:
        yield (
            "Expected the label tensor NllOp to be an integer data type (fixed point), not the "
            f"case for input with info: {node.info(1)}. This error for {about}"
        )


@checks(own=("L1",))
def l1_loss(node: Node) -> Conflicts:
    if not node.rank():
        yield "L1Op not valid for rank-0 tensor (scalar)"


# recurrences and images


@checks(own=("LSTM",))
def lstm(node: Node) -> Conflicts:
    """The weights of four gates, and the states, fit the data."""
    data, weights = node.shape(), node.shape(1)
    if len(data) != 3 or len(weights) != 3:
        return
    hidden = weights[2]
    wanted = {
        1: ("weights", (4, data[2] + hidden, hidden)),
        2: ("bias", (4, hidden)),
        3: ("initialState", (2, data[1], hidden)),
    }
    for index, (name, shape) in wanted.items():
        if node.known_shape(index) not in (None, shape):
            yield f"Bad {name} shape {index}, should be {spaced(shape)}"


_SMALLEST = 2.0**-23
"""The distance from 1 to the next f32."""


@checks(own=("NormalizeImage",))
def image(node: Node) -> Conflicts:
    if abs(node.real("scale", 1.0)) < _SMALLEST:
        yield "[normalizeImageOpCreator] scale should be greater than 0."
    if node.rank() < 2 or node.shape()[-1] != 3:
        yield "requires the inner dimension to be 3."


# shapes and indices


@checks(own=("Reshape",))
def reshape(node: Node) -> Conflicts:
    wanted = node.numbers("shape")
    yield from wanted_shape(node, wanted)
    yield from elements_stay(node, wanted)


@checks(own=("Reverse",))
def reverse(node: Node) -> Conflicts:
    rank, given = node.rank(), node.numbers("dimensions")
    about = f"ReverseOp '{node.numbered}'"
    for index, one in enumerate(given):
        if one < 0:
            yield f"{about} invalid dimension '{one}'. Only positive dimensions are supported"
        if one >= rank:
            yield f"{about} invalid dimension '{one}' for input tensor of rank {rank}"
        if one in given[:index]:
            yield f"Dimension {one} appears multiple times in the list of dimensions of {about}"


@checks(own=("ShapedDropout",))
def dropped_shape(node: Node) -> Conflicts:
    full, shape = node.shape(), node.numbers("shape")
    if not aligned(shape, full):
        yield (
            f"ShapedDropout: incompatible input tensor and dropout shape. {node.id} is configured "
            f"with shape {spaced(shape)} which is not broadcastable to the input tensor with shape "
            f"{spaced(full)}."
        )


@checks(own=("DynamicAdd", "DynamicSlice", "DynamicUpdate", "DynamicZero"))
def dynamic(node: Node) -> Conflicts:
    axes, sizes = node.numbers("axes"), node.numbers("sizes")
    if len(axes) != len(sizes):
        yield f"Op {node.numbered} has {len(axes)} axes, but {len(sizes)} sizes"


@checks(own=("Subsample",), table=IMMEDIATE_CHECKS)
def strides(node: Node) -> Conflicts:
    given = node.numbers("strides")
    if 0 in given:
        yield f"Strides invalid. 0 stride at index {given.index(0)}"


@checks(own=("Subsample",))
def subsample(node: Node) -> Conflicts:
    yield from strides(node)
    rank, given = node.rank(), node.numbers("strides")
    if len(given) != rank:
        yield f"Op {node.numbered} has {len(given)} strides for the {rank} axes of its input"


# splines


@checks(own=("SplineBasis",))
def spline_basis(node: Node) -> Conflicts:
    if not 0 <= (degree := node.number("degree", 1)) <= 3:
        yield f"SplineBasisOp degree = {degree} is not valid: must be between 0 and 3."
    names = {"pseudo": "Pseudo", "kernelSize": "KernelSize", "isOpenSpline": "isOpenSpline"}
    yield from _spline_ranks(node, names, 2, 1, 1)


@checks(own=("SplineWeighting",))
def spline_weighting(node: Node) -> Conflicts:
    names = {"input": "Input", "weight": "Weight", "basis": "Basis", "weightIndex": "weightIndex"}
    yield from _spline_ranks(node, names, 2, 3, 2, 2)
    for index, name in ((1, "weight"), (2, "basis")):
        yield from _same_types(node, "SplineWeightingOp::setup:", name, index)


def _spline_ranks(node: Node, titles: Mapping[str, str], *ranks: int) -> Conflicts:
    """Checks the rank of each operand; messages include a second title."""
    for index, ((name, title), wanted) in enumerate(zip(titles.items(), ranks, strict=True)):
        if (rank := node.rank(index)) != wanted:
            yield (
                f"{node.op_type}Op::setup: {name} tensor is not a {wanted}-D tensor. {title} "
                f"tensor rank = {rank}."
            )


_COUNTS = {
    (1, 1): "BitwiseNot DepthToSpace Detach Expm1 Gelu GeluErf IdentityLoss IncrementMod L1 Log1p "
    "NearbyInt Nop PrintTensor ReduceMedian ReplicatedAllReduce Reshape Reverse Round Scale "
    "ShapedDropout Slice Sort Subsample Swish",
    (1, 2): "ReplicatedReduceScatter TensorRemap",
    (2, 2): "Atan2 BitwiseAnd BitwiseOr BitwiseXnor BitwiseXor Bucketize CtcBeamSearchDecoder "
    "DynamicZero Fmod GroupedGather Nll Remainder",
    (2, 3): "DynamicSlice ScatterReduce",
    (2, 4): "LSTM ScaledAdd",
    (3, 3): "DynamicAdd DynamicUpdate GroupNormalization NormalizeImage SplineBasis",
    (4, 4): "Ctc SplineWeighting",
    (5, 5): "BatchNormalization SequenceSlice",
}
OPERANDS = {op_type: count for count, names in _COUNTS.items() for op_type in names.split()}
"""Minimal and maximal number of operands in the builder; other operators are variadic."""
