"""Lowers MatMul, Gemm, Conv and ConvTranspose to graphcore's matrix products and convolutions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.ir import SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, shape_of
from popgraph.operators.arithmetic import cast
from popgraph.operators.complaints import PADDING
from popgraph.operators.node import Node
from popgraph.operators.record import GRAPHCORE, Lowered, chooses, lowers
from popgraph.operators.windows import Windows
from popgraph.support.errors import TypeMismatchError
from popgraph.support.shapes import Shape


@lowers("MatMul")
def matmul(node: Node) -> Lowered:
    return product_of(node, node[0], node[1])


def _unchanged(product: Operand) -> Operand:
    return product


def product_of(
    node: Node,
    left: Operand,
    right: Operand,
    finished: Callable[[Operand], Operand] = _unchanged,
) -> Operand:
    """NumPy's matmul, and what becomes of it while vectors are still matrices."""
    lhs, rhs = shape_of(left), shape_of(right)
    if not lhs or not rhs:
        raise TypeMismatchError(f"{node.op.op_type} takes no scalars", hint="use Mul")
    left = left if len(lhs) > 1 else gc.ReshapeOp(left, shape=(1, *lhs))
    right = right if len(rhs) > 1 else gc.ReshapeOp(right, shape=(*rhs, 1))
    product = finished(gc.MatMulOp(left, right))
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
    return with_bias(convolved(node, node[0], node[1]), node.optional(2))


def convolved(node: Node, x: Operand, w: Operand) -> Operand:
    """A convolution as the attributes of the node say."""
    windows = Windows.of(node, shape_of(w)[2:])
    return gc.ConvOp(
        x,
        w,
        strides=windows.strides,
        dilations=windows.dilations,
        pads=windows.pads,
        groups=node.integer("group", 1),
    )


@lowers("MultiConv", domain=GRAPHCORE)
def multi_conv(node: Node) -> Lowered:
    """Convolutions side by side: three inputs for each, of which the bias may be absent."""
    used: dict[str, int] = {}

    def take(name: str, count: int, default: int) -> tuple[int, ...]:
        """The next numbers of an attribute that holds those of all convolutions."""
        first = used.get(name, 0)
        used[name] = first + count
        given = node.integers(name)
        return given[first : first + count] if given else (default,) * count

    return [_one_of_several(node, place, take) for place in range(0, len(node), 3)]


def _one_of_several(
    node: Node, place: int, take: Callable[[str, int, int], tuple[int, ...]]
) -> Operand:
    x, w = node[place], node[place + 1]
    rank = len(shape_of(w)) - 2
    if rank < 1 or len(shape_of(x)) != rank + 2 or not shape_of(w)[1]:
        shown = " and ".join(str(list(shape_of(one))) for one in (x, w))
        raise TypeMismatchError(f"MultiConv takes images and their weights, not {shown}")
    spread, out = take("inDilations", rank, 1), take("outPads", 2 * rank, 0)
    result = gc.ConvOp(
        _padded(node, x, (0,) * 2 * rank, [step - 1 for step in spread]),
        w,
        strides=take("strides", rank, 1),
        dilations=take("dilations", rank, 1),
        pads=take("pads", 2 * rank, 0),
        groups=shape_of(x)[1] // shape_of(w)[1],
    )
    wide = _padded(node, result.result, out, (0,) * rank)
    return with_bias(wide, node.optional(place + 2))


def _padded(node: Node, image: SSAValue, pads: Sequence[int], interior: Sequence[int]) -> SSAValue:
    """Zeros around an image (first at all low ends), and between its elements."""
    if not any(pads) and not any(interior):
        return image
    rank = len(interior)
    return gc.PadOp(
        image,
        low=(0, 0, *pads[:rank]),
        high=(0, 0, *pads[rank:]),
        interior=(0, 0, *interior),
        value=0.0,
    ).result


def with_bias(result: Operand, bias: SSAValue | None) -> Operand:
    """A number for each channel added, if there is one."""
    if bias is None:
        return result
    spatial = len(shape_of(result)) - 2
    return gc.AddOp(result, gc.ReshapeOp(bias, shape=(1, *shape_of(bias), *(1,) * spatial)))


@lowers("ConvTranspose")
def conv_transpose(node: Node) -> Lowered:
    """The gradient of a convolution, with padding where that gives all of the result."""
    windows = Windows.of(node, shape_of(node[1])[2:])
    full = tuple(
        stride * (size - 1) + width
        for stride, size, width in zip(windows.strides, node.shape[2:], windows.widths, strict=True)
    )
    extra = node.integers("output_padding", [0] * len(full))
    low, sizes = _transposed_place(node, windows, full, extra)
    if min(sizes) < 1:
        raise TypeMismatchError(
            f"its pads leave nothing of the result, whose spatial shape would be {list(sizes)}",
            hint="make the pads smaller, or output_padding larger",
        )
    high = tuple(end - begin - size for end, begin, size in zip(full, low, sizes, strict=True))
    ends = zip(low, high, windows.strides, strict=True)
    if all(begin >= 0 and behind > -stride for begin, behind, stride in ends):
        pads = (*low, *(max(0, behind) for behind in high))
        result = _spread_out(node, windows, sizes, pads)
    else:
        whole = _spread_out(node, windows, full, (0,) * (2 * len(full)))
        result = _window_of(node, whole, low, sizes)
    return with_bias(cast(result, node.dtype), node.optional(2))


def _spread_out(node: Node, windows: Windows, sizes: Shape, pads: Shape) -> Operand:
    """A gradient of these spatial sizes."""
    groups = node.integer("group", 1)
    return gc.ConvInputGradOp(
        node[0],
        node[1],
        shape=(node.shape[0], groups * shape_of(node[1])[1], *sizes),
        strides=windows.strides,
        dilations=windows.dilations,
        pads=pads,
        groups=groups,
    )


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
    less_first = mode == "SAME_UPPER"
    if node.version < 11 and node.integers("output_shape"):  # what ConvTranspose-1 says of it
        less_first = not less_first
    return tuple(pad // 2 if less_first else pad - pad // 2 for pad in total), sizes


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


chooses("Conv", "ConvTranspose", auto_pad=PADDING)
