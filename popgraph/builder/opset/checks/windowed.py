"""PopART's rules of image operators: convolutions, pools, paddings, normalizations."""

from __future__ import annotations

from popgraph.builder.opset.checks.node import Node, spaced
from popgraph.builder.opset.checks.rules import (
    IMMEDIATE_CHECKS,
    Conflicts,
    checks,
    chosen,
    conv_partials,
    known,
    partials,
)
from popgraph.builder.opset.checks.shaped import no_shape
from popgraph.support.shapes import prod

PADDING = "Invalid auto_pad provied: {}"


@checks("Conv")
def conv(node: Node) -> Conflicts:
    yield from partials(node, conv_partials)
    yield from chosen(node, "auto_pad", PADDING)
    axes = node.rank() - 2
    for name, wanted in (("stride", axes), ("pad", 2 * axes), ("dilation", axes)):
        # The builder has the same requirement with another message.
        if axes >= 0 and len(node.numbers(f"{name}s")) not in (0, wanted):
            yield f"Unexpected number of {name} parameters for convolution op '{node.numbered}'"
    yield from _group(node)
    data, weights, count = node.shape(), node.shape(1), node.number("group", 1)
    if min(len(data), len(weights)) >= 2 and data[1] != count * weights[1]:
        yield (
            f"Invalid value for group ({count}) in {node}. number of input channels ({data[1]}) / "
            f"group ({count}) should be equal to the weight inputs second dimension ({weights[1]})"
        )


def _group(node: Node) -> Conflicts:
    if node.number("group", 1) < 1:
        yield f"group attribute in {node} must be greater than zero"


@checks("ConvTranspose")
def conv_transpose(node: Node) -> Conflicts:
    yield from chosen(node, "auto_pad", PADDING)
    yield from _group(node)
    data, weights = node.shape(), node.shape(1)
    if len(data) >= 2 and weights and data[1] != weights[0]:
        yield (
            f"Unexpected number of channels in the input tensor: {data[1]}. Given non-transposed "
            f"weight tensor of shape {spaced(weights)}, transposed convolution expects input "
            f"tensor of size {spaced(data)} to have {weights[0]} channels."
        )
    if node.numbers("output_shape") and node.word("auto_pad") == "VALID":
        yield "`VALID` type for auto_pad cannot be used if the `output_shape` is also set"


@checks("AveragePool", "MaxPool")
def pool(node: Node) -> Conflicts:
    yield from chosen(node, "auto_pad", PADDING)
    dilations = node.numbers("dilations")
    if node.op_type == "MaxPool" and node.version >= 10 and {*dilations} - {1}:
        yield (
            f"MaxPool has dilations {spaced(dilations)}. Dilations of value other than 1 are "
            "currently not supported."
        )
    if len(node.numbers("kernel_shape")) != node.rank() - 2:
        yield "invalid kernel_shape, not same rank as the tensor operated on"
    if node.op_type == "AveragePool" and node.number("count_include_pad"):
        yield "`count_include_pad` is not supported"


@checks("BatchNormalization", own=("BatchNormalization",))
def normalization(node: Node) -> Conflicts:
    """Scale, shift and statistics have one number per channel, or per element."""
    x, spatial = node.shape(), bool(node.number("spatial", 1))
    if len(x) < 3:
        yield f"batch norm requires X to have a rank >= 3.  x has rank {len(x)}"
    wanted = x[1:2] if spatial else x[1:]
    match = "dimension 1" if spatial else "all but the first dimension"
    for index, name in enumerate(("scale", "B", "mean", "var"), 1):
        if (shape := node.known_shape(index)) not in (None, wanted):
            yield (
                f"expected shape of batch norm input tensor {name} ({spaced(shape)}) to be "
                f"{spaced(wanted)} to match {match} of X ({spaced(x)})"
            )


@checks("LRN")
def local_response(node: Node) -> Conflicts:
    if (size := node.number("size", 1)) < 1:
        yield f"LRN requires size to be >= 1. size is {size}"


@checks("RoiAlign")
def regions(node: Node) -> Conflicts:
    for index, (name, rank) in enumerate((("data", 4), ("rois", 2), ("batch_index", 1))):
        if node.rank(index) != rank:
            yield f"The size of input {name} must be {rank}"


@checks("Pad")
def pad(node: Node) -> Conflicts:
    rank, given = node.rank(), node.numbers("pads")
    if "pads" in node.attributes and len(given) != 2 * rank:
        yield (
            f"Failure in BasePadOp::runtimeConfirmShapes, for {node.numbered}. This with pads of "
            f"size {len(given)}, and input tensor of rank {rank}. Expected pads to be "
            "exactly 2x the unput Tensor's rank. "
        )
    text = "Invalid pad mode `{}' in padGrow. Expected one of (edge, reflect, constant)"
    yield from chosen(node, "mode", text, "edge", "reflect", "constant")


@checks("Pad", table=IMMEDIATE_CHECKS)
def padded(node: Node) -> Conflicts:
    shape, given = node.shape(), node.numbers("pads")
    if len(given) == 2 * len(shape):
        ends = zip(shape, given, given[len(shape) :], strict=False)
        yield from no_shape(node, [size + low + high for size, low, high in ends])


_BOTH = (
    "Resize op has inputs for `sizes` and `scales`. Only one of these tensors should be present. "
    "If `sizes` is needed, please pass an empty string as the name of `scales` in the input list "
    "( resize([X, roi, '', sizes]) ). If the proto is not generated from the PopART Builder, "
    "please confirm that only one of the two tensors shall have data."
)
_COORDINATES = (
    *("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"),
    "tf_crop_and_resize",
)


@checks("Resize")
def resize(node: Node) -> Conflicts:
    last = node.version >= 11
    sizes, scales = (_elements(node, index) for index in ((3, 2) if last else (9, 1)))
    if last and not node.has(2) and not node.has(3):
        yield (
            "Resize op has no input for `size` or `scales`. One of these tensors needs to be "
            "present."
        )
    if sizes and scales:
        yield _BOTH
    if last and node.known_shape(2) == node.known_shape(3) == (0,):
        yield "Resize op has  inputs for `sizes` and `scales`,but none of them have data."
    yield from known(node, "The tensor `{}` does not have data", 1, 2, 3)
    yield from chosen(node, "mode", "Unrecognised resize mode {}")
    yield from chosen(node, "nearest_mode", "Unrecognised resize nearest mode {}")
    about = "Unrecognised resize coordinate transformation mode {}"
    yield from chosen(node, "coordinate_transformation_mode", about, *_COORDINATES)
    rank = node.rank()
    if sizes not in (0, rank):
        yield (
            f"ResizeOp, length of sizes ({sizes}) does not match the rank of input shape ({rank})"
        )
    if scales not in (0, rank):
        yield (
            f"The number of dimensions of the resize op scales ({scales}) must match the number of "
            f"dimensions of the input ({rank})"
        )


def _elements(node: Node, index: int) -> int:
    """The number of elements of a 1-D operand; 0 if absent or unknown."""
    shape = node.known_shape(index)
    return shape[0] if shape is not None and len(shape) == 1 else 0


@checks("Upsample")
def upsample(node: Node) -> Conflicts:
    yield from known(node, "Scales tensor has no data", 1)
    if (element := node.element(1).popart) not in ("FLOAT", "FLOAT16"):
        yield f"Can not import scales from tensor of type {element}"
    yield from chosen(node, "mode", "Unrecognised upsample mode {}")
    # PopART's own message lacks the counts.
    if (count := prod(node.shape(1))) != node.rank():
        yield (
            f"There should be at exactly {node.rank()} elements in upsample op inputs, scales. "
            f"Scales has {count} elements."
        )
