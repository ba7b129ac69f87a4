"""What PopART asks of operators of images: convolutions, pools, paddings, normalizations."""

from __future__ import annotations

from popgraph.builder.opset.checks.node import Node, spaced
from popgraph.builder.opset.checks.rules import (
    ANY,
    Complaints,
    at_least,
    chosen,
    constant,
    conv_partials,
    partials,
    rank,
)
from popgraph.builder.opset.checks.shaped import no_shape
from popgraph.support.shapes import prod

CONV_GROUP = at_least("group", 1, "group attribute in {node} must be greater than zero", default=1)
PADDING = chosen(
    "auto_pad",
    ("", "NOTSET", "SAME_LOWER", "SAME_UPPER", "VALID"),
    "Invalid auto_pad provied: {value}",
)


def conv_channels(node: Node) -> Complaints:
    data, weights, group = node.shape(), node.shape(1), node.number("group", 1)
    if data is None or weights is None or len(data) < 2 or len(weights) < 2 or group < 1:
        return
    if data[1] != group * weights[1]:
        yield (
            f"Invalid value for group ({group}) in {node}. number of input channels ({data[1]}) / "
            f"group ({group}) should be equal to the weight inputs second dimension ({weights[1]})"
        )


def conv_counts(node: Node) -> Complaints:
    """As many numbers as there are spatial axes, which the builder asks for in other words."""
    shape = node.shape()
    if shape is None or len(shape) < 2:
        return
    axes = len(shape) - 2
    for name, word, wanted in (
        ("strides", "stride", axes),
        ("pads", "pad", 2 * axes),
        ("dilations", "dilation", axes),
    ):
        if node.numbers(name) and len(node.numbers(name)) != wanted:
            yield (f"Unexpected number of {word} parameters for convolution op '{node.numbered}'")


def transposed_channels(node: Node) -> Complaints:
    data, weights = node.shape(), node.shape(1)
    if data is None or weights is None or len(data) < 2 or not weights or data[1] == weights[0]:
        return
    yield (
        f"Unexpected number of channels in the input tensor: {data[1]}. Given non-transposed "
        f"weight tensor of shape {spaced(weights)}, transposed convolution expects input tensor "
        f"of size {spaced(data)} to have {weights[0]} channels."
    )


def transposed_padding(node: Node) -> Complaints:
    if node.numbers("output_shape") and node.word("auto_pad") == "VALID":
        yield "`VALID` type for auto_pad cannot be used if the `output_shape` is also set"


def kernel_rank(node: Node) -> Complaints:
    shape, kernel = node.shape(), node.numbers("kernel_shape")
    if shape is not None and len(kernel) != len(shape) - 2:
        yield "invalid kernel_shape, not same rank as the tensor operated on"


def average_pool(node: Node) -> Complaints:
    if node.number("count_include_pad"):
        yield "`count_include_pad` is not supported"


def max_pool(node: Node) -> Complaints:
    dilations = node.numbers("dilations")
    if node.version >= 10 and any(one != 1 for one in dilations):
        yield (
            f"MaxPool has dilations {spaced(dilations)}. Dilations of value other than 1 are "
            "currently not supported."
        )


NORMALIZED_RANK = rank(0, ANY[3:], "batch norm requires X to have a rank >= 3.  x has rank {rank}")


def statistics(node: Node) -> Complaints:
    """Scale, shift and statistics have one number for each channel, or for each element."""
    x = node.shape()
    if x is None or len(x) < 2:
        return
    spatial = bool(node.number("spatial", 1))
    wanted = x[1:2] if spatial else x[1:]
    match = "dimension 1" if spatial else "all but the first dimension"
    for place, name in enumerate(("scale", "B", "mean", "var"), 1):
        if (shape := node.shape(place)) is not None and shape != wanted:
            yield (
                f"expected shape of batch norm input tensor {name} ({spaced(shape)}) to be "
                f"{spaced(wanted)} to match {match} of X ({spaced(x)})"
            )


LRN_SIZE = at_least("size", 1, "LRN requires size to be >= 1. size is {value}", default=1)

REGIONS = (
    rank(0, [4], "The size of input data must be 4"),
    rank(1, [2], "The size of input rois must be 2"),
    rank(2, [1], "The size of input batch_index must be 1"),
)


def pads(node: Node) -> Complaints:
    shape, given = node.shape(), node.numbers("pads")
    if shape is not None and "pads" in node.attributes and len(given) != 2 * len(shape):
        yield (
            f"Failure in BasePadOp::runtimeConfirmShapes, for {node.numbered}. This with pads of "
            f"size {len(given)}, and input tensor of rank {len(shape)}. Expected pads to be "
            "exactly 2x the unput Tensor's rank. "
        )


PAD_MODES = chosen(
    "mode",
    ("edge", "reflect", "constant"),
    "Invalid pad mode `{value}' in padGrow. Expected one of (edge, reflect, constant)",
)


def padded(node: Node) -> Complaints:
    """What the builder says of pads that take away more than there is."""
    shape, given = node.shape(), node.numbers("pads")
    if shape is not None and len(given) == 2 * len(shape):
        ends = zip(shape, given, given[len(shape) :], strict=False)
        yield from no_shape(node, [size + low + high for size, low, high in ends])


BOTH_SCALES_AND_SIZES = (
    "Resize op has inputs for `sizes` and `scales`. Only one of these tensors should be present. "
    "If `sizes` is needed, please pass an empty string as the name of `scales` in the input list "
    "( resize([X, roi, '', sizes]) ). If the proto is not generated from the PopART Builder, "
    "please confirm that only one of the two tensors shall have data."
)


def _elements(node: Node, place: int) -> int:
    """How many elements an operand of one axis has; 0 where it is absent, or not known."""
    shape = node.shape(place)
    return shape[0] if shape is not None and len(shape) == 1 else 0


def resize_operands(node: Node) -> Complaints:
    if node.version < 11:
        return
    if node.has(2) and node.has(3):
        both = _elements(node, 2), _elements(node, 3)
        if all(both):
            yield BOTH_SCALES_AND_SIZES
        if not any(both) and node.shape(2) == node.shape(3) == (0,):
            yield "Resize op has  inputs for `sizes` and `scales`,but none of them have data."
    elif not node.has(2) and not node.has(3):
        yield (
            "Resize op has no input for `size` or `scales`. One of these tensors needs to be "
            "present."
        )


def resize_counts(node: Node) -> Complaints:
    shape = node.shape()
    scales, sizes = (1, 0) if node.version < 11 else (2, 3)
    if shape is None:
        return
    if sizes and (count := _elements(node, sizes)) and count != len(shape):
        yield (
            f"ResizeOp, length of sizes ({count}) does not match the rank of input shape "
            f"({len(shape)})"
        )
    if (count := _elements(node, scales)) and count != len(shape):
        yield (
            f"The number of dimensions of the resize op scales ({count}) must match the number of "
            f"dimensions of the input ({len(shape)})"
        )


RESIZE_WORDS = (
    chosen("mode", ("nearest", "linear", "cubic"), "Unrecognised resize mode {value}"),
    chosen(
        "nearest_mode",
        ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "pytorch"),
        "Unrecognised resize nearest mode {value}",
    ),
    chosen(
        "coordinate_transformation_mode",
        ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize"),
        "Unrecognised resize coordinate transformation mode {value}",
    ),
)
RESIZE_TENSORS = tuple(
    constant(place, "The tensor `{input}` does not have data") for place in (1, 2, 3)
)


def upsample_counts(node: Node) -> Complaints:
    """What PopART means to say: its text forgets to fill the counts in."""
    shape, scales = node.shape(), node.shape(1)
    if shape is not None and scales is not None and (count := prod(scales)) != len(shape):
        yield (
            f"There should be at exactly {len(shape)} elements in upsample op inputs, scales. "
            f"Scales has {count} elements."
        )


def upsample_type(node: Node) -> Complaints:
    """Scales are numbers with a point."""
    element = node.element(1)
    if element is not None and element.popart not in ("FLOAT", "FLOAT16"):
        yield f"Can not import scales from tensor of type {element.popart}"


UPSAMPLE_MODE = chosen("mode", ("nearest", "linear"), "Unrecognised upsample mode {value}")
UPSAMPLE_SCALES = constant(1, "Scales tensor has no data")

ROWS = {
    "AveragePool": (PADDING, kernel_rank, average_pool),
    "BatchNormalization": (NORMALIZED_RANK, statistics),
    "Conv": (partials(conv_partials), PADDING, conv_counts, CONV_GROUP, conv_channels),
    "ConvTranspose": (
        PADDING,
        CONV_GROUP,
        transposed_channels,
        transposed_padding,
    ),
    "LRN": (LRN_SIZE,),
    "MaxPool": (PADDING, max_pool, kernel_rank),
    "Pad": (pads, PAD_MODES),
    "Resize": (resize_operands, *RESIZE_TENSORS, *RESIZE_WORDS, resize_counts),
    "RoiAlign": REGIONS,
    "Upsample": (UPSAMPLE_SCALES, upsample_type, UPSAMPLE_MODE, upsample_counts),
}
