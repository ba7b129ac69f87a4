"""Lowers MatMul, Gemm, Conv and ConvTranspose to graphcore's matrix products and convolutions."""

from __future__ import annotations

from xdsl.ir import SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, shape_of
from popgraph.passes.onnx.to_graphcore.arithmetic import cast
from popgraph.passes.onnx.to_graphcore.node import Node
from popgraph.passes.onnx.to_graphcore.registry import Lowered, lowers
from popgraph.passes.onnx.to_graphcore.windows import Windows
from popgraph.support.errors import TypeMismatchError
from popgraph.support.shapes import Shape


@lowers("MatMul")
def matmul(node: Node) -> Lowered:
    lhs, rhs = shape_of(node[0]), shape_of(node[1])
    if not lhs or not rhs:
        raise TypeMismatchError("MatMul takes no scalars", hint="use Mul")
    left: Operand = node[0] if len(lhs) > 1 else gc.ReshapeOp(node[0], shape=(1, *lhs))
    right: Operand = node[1] if len(rhs) > 1 else gc.ReshapeOp(node[1], shape=(*rhs, 1))
    product = gc.MatMulOp(left, right)
    shape = list(shape_of(product))
    if len(rhs) == 1:
        del shape[-1]
    if len(lhs) == 1:
        del shape[-1 if len(rhs) == 1 else -2]
    return product if tuple(shape) == shape_of(product) else gc.ReshapeOp(product, shape=shape)


@lowers("Gemm")
def gemm(node: Node) -> Lowered:
    lhs = _transposed(node[0], node.integer("transA"))
    rhs = _transposed(node[1], node.integer("transB"))
    product = _scaled(node, gc.MatMulOp(lhs, rhs), node.real("alpha", 1.0))
    added = node.optional(2)
    if added is None or node.real("beta", 1.0) == 0:
        return product
    return gc.AddOp(product, _scaled(node, added, node.real("beta", 1.0)))


def _transposed(value: SSAValue, wanted: int) -> Operand:
    return gc.TransposeOp(value, perm=(1, 0)) if wanted else value


def _scaled(node: Node, value: Operand, factor: float) -> Operand:
    return value if factor == 1 else gc.MulOp(value, node.scalar(factor))


@lowers("Conv")
def conv(node: Node) -> Lowered:
    kernel = shape_of(node[1])[2:]
    windows = Windows.of(node, kernel)
    result: Operand = gc.ConvOp(
        node[0],
        node[1],
        strides=windows.strides,
        dilations=windows.dilations,
        pads=windows.pads,
        groups=node.integer("group", 1),
    )
    return _with_bias(node, result)


def _with_bias(node: Node, result: Operand) -> Operand:
    bias = node.optional(2)
    if bias is None:
        return result
    spatial = len(shape_of(result)) - 2
    return gc.AddOp(result, gc.ReshapeOp(bias, shape=(1, *shape_of(bias), *(1,) * spatial)))


@lowers("ConvTranspose")
def conv_transpose(node: Node) -> Lowered:
    """The gradient of a convolution, then what the padding at the high end cuts off or adds."""
    kernel = shape_of(node[1])[2:]
    groups = node.integer("group", 1)
    windows = Windows.of(node, kernel)
    extra = node.integers("output_padding", [0] * len(kernel))
    full = tuple(
        stride * (size - 1) + width
        for stride, size, width in zip(windows.strides, node.shape[2:], windows.widths, strict=True)
    )
    low, sizes = _transposed_place(node, windows, full, extra)
    channels = groups * shape_of(node[1])[1]
    result: Operand = gc.ConvInputGradOp(
        node[0],
        node[1],
        shape=(node.shape[0], channels, *full),
        strides=windows.strides,
        dilations=windows.dilations,
        pads=(0,) * (2 * len(kernel)),
        groups=groups,
    )
    return _with_bias(node, cast(_window_of(node, result, low, sizes), node.dtype))


def _transposed_place(
    node: Node, windows: Windows, full: Shape, extra: Shape
) -> tuple[tuple[int, ...], Shape]:
    """Where the result begins in the full one (before it, if negative), and its spatial shape."""
    mode = node.text("auto_pad", "NOTSET")
    same = mode in ("SAME_UPPER", "SAME_LOWER")
    sizes = node.integers("output_shape")[-len(full) :]
    if not sizes and same:
        sizes = tuple(
            size * stride for size, stride in zip(node.shape[2:], windows.strides, strict=True)
        )
    if not sizes:
        low, high = windows.low, windows.high
        sizes = tuple(
            size + more - before - behind
            for size, more, before, behind in zip(full, extra, low, high, strict=True)
        )
        return low, sizes
    total = [size + more - out for size, more, out in zip(full, extra, sizes, strict=True)]
    if not same:  # zeros that are missing stand at the end
        total = [max(pad, 0) for pad in total]
    return tuple(pad // 2 if mode == "SAME_UPPER" else pad - pad // 2 for pad in total), sizes


def _window_of(node: Node, full: Operand, low: tuple[int, ...], sizes: Shape) -> Operand:
    """The part of `full` that begins at `low`; zeros where it reaches beyond the ends."""
    shape = shape_of(full)
    if shape[2:] == sizes and not any(low):
        return full
    before = tuple(max(0, -begin) for begin in low)
    behind = tuple(
        max(0, begin + size - have) for begin, size, have in zip(low, sizes, shape[2:], strict=True)
    )
    if any(before) or any(behind):
        none = (0,) * len(shape)
        full = gc.PadOp(full, low=(0, 0, *before), high=(0, 0, *behind), interior=none, value=0.0)
    starts = tuple(max(0, begin) for begin in low)
    return gc.SliceOp(
        full, starts=(0, 0, *starts), sizes=(*shape[:2], *sizes), steps=(1,) * len(shape)
    )
