"""
Conv, ConvTranspose, DeformConv, Col2Im, and PopART's MultiConv.

Padding, slices and lookups around graphcore's convolutions express the rest: results larger than
a gradient's (ConvTranspose), offsets of elements (DeformConv).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, dtype_of, shape_of
from popgraph.dialects.onnx.record import Conflicts
from popgraph.dialects.onnx.type_errors import TypeConflict
from popgraph.dialects.onnx.types import Dim
from popgraph.dialects.onnx.view import NodeView
from popgraph.operators.arithmetic import cast
from popgraph.operators.complaints import (
    MOST,
    PADDING,
    at_least,
    differ,
    listed,
    of_rank,
    of_shape,
    positive,
)
from popgraph.operators.lookups import linear_taps, looked_up
from popgraph.operators.movement import reshaped, sliced
from popgraph.operators.node import Node
from popgraph.operators.pooling import Windows, one_per_axis, room_for_one
from popgraph.operators.record import (
    GRAPHCORE,
    Lowered,
    chooses,
    follows_data_sizes,
    lowers,
    requires,
)
from popgraph.support import dtypes, shapes
from popgraph.support.dtypes import DType
from popgraph.support.errors import TypeMismatchError
from popgraph.support.shapes import Shape, prod

# Requirements of all convolutions


def _weighted(node: NodeView) -> Conflicts:
    """Requirements that convolutions and transposed convolutions share."""
    weight = node.shape_of(1)
    yield from at_least(node, 0, 2)
    yield from positive(node, "group")
    if weight is None:
        return
    yield from of_rank(node, 1, node.rank_of(0) or len(weight))
    yield from one_per_axis(node, len(weight) - 2)
    given = node.given_integers("kernel_shape")
    if given and any(map(differ, given, weight[2:])):
        yield TypeConflict(
            f"`kernel_shape` is {given}, but the weight is for {list(weight[2:])}",
            "leave `kernel_shape` out: it follows from the weight",
        )


def _grouped(node: NodeView, bias: int) -> Conflicts:
    """`group` divides the input and output channels; the bias has one element per output."""
    image, weight = node.shape_of(0), node.shape_of(1)
    yield from _weighted(node)
    if weight is not None:
        yield from _divides(node, weight[0], "outputs")
        yield from of_shape(node, bias, weight[0])
        if image is not None:
            yield from _divides(node, image[1], "channels")


def _divides(node: NodeView, size: Dim, what: str, name: str = "group") -> Conflicts:
    groups = node.integer(name, 1)
    if isinstance(size, int) and size % max(groups, 1):
        yield TypeConflict(
            f"{size} {what} cannot be split into {groups} groups",
            f"`{name}` must divide the number of {what}",
        )


# Conv and MultiConv

chooses("Conv", "ConvTranspose", auto_pad=PADDING)


@requires("Conv")
def require_conv(node: NodeView) -> Conflicts:
    image, weight = node.shape_of(0), node.shape_of(1)
    yield from _grouped(node, bias=2)
    if image is not None and weight is not None:
        yield from room_for_one(node, image[2:], weight[2:])


@lowers("Conv")
def conv(node: Node) -> Lowered:
    return with_bias(convolved(node, node[0], node[1]), node.optional(2))


def convolved(node: Node, x: Operand, w: Operand) -> Operand:
    """The convolution of `x` by `w`, with the node's attributes."""
    windows = Windows.of(node, shape_of(w)[2:])
    return gc.ConvOp(
        x,
        w,
        strides=windows.strides,
        dilations=windows.dilations,
        pads=windows.pads,
        groups=node.integer("group", 1),
    )


def with_bias(result: Operand, bias: SSAValue | None) -> Operand:
    """The result plus a bias per channel, if there is one."""
    if bias is None:
        return result
    spatial = len(shape_of(result)) - 2
    return gc.AddOp(result, gc.ReshapeOp(bias, shape=(1, *shape_of(bias), *(1,) * spatial)))


@lowers("MultiConv", domain=GRAPHCORE)
def multi_conv(node: Node) -> Lowered:
    """Independent convolutions; the inputs are (image, weight, optional bias) of each."""
    used: dict[str, int] = {}

    def take(name: str, count: int, default: int) -> tuple[int, ...]:
        """The next `count` elements of an attribute, which concatenates all convolutions' lists."""
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
        raise TypeMismatchError(f"MultiConv takes pairs of image and weight, not {shown}")
    spread, out = take("inDilations", rank, 1), take("outPads", 2 * rank, 0)
    result = gc.ConvOp(
        _padded(x, (0,) * 2 * rank, [step - 1 for step in spread]),
        w,
        strides=take("strides", rank, 1),
        dilations=take("dilations", rank, 1),
        pads=take("pads", 2 * rank, 0),
        groups=shape_of(x)[1] // shape_of(w)[1],
    )
    return with_bias(_padded(result, out, (0,) * rank), node.optional(place + 2))


def _padded(image: Operand, pads: Sequence[int], interior: Sequence[int]) -> Operand:
    """Pads an image with zeros: `pads` around it (all low ends first), `interior` between."""
    if not any(pads) and not any(interior):
        return image
    rank = len(interior)
    return gc.PadOp(
        image,
        low=(0, 0, *pads[:rank]),
        high=(0, 0, *pads[rank:]),
        interior=(0, 0, *interior),
        value=0.0,
    )


# ConvTranspose


@requires("ConvTranspose")
def require_conv_transpose(node: NodeView) -> Conflicts:
    image, weight = node.shape_of(0), node.shape_of(1)
    yield from _weighted(node)
    if weight is None:
        return
    spatial = len(weight) - 2
    yield from _added(node, spatial)
    outputs = weight[1] * node.integer("group", 1) if isinstance(weight[1], int) else None
    yield from of_shape(node, 2, outputs)
    if image is not None:
        yield from _divides(node, image[1], "channels")
    wanted = node.given_integers("output_shape")
    if wanted and (len(wanted) not in (spatial, spatial + 2) or min(wanted) < 1):
        yield TypeConflict(
            f"`output_shape` is {wanted}", f"it must have {spatial} elements, all 1 or more"
        )


def _added(node: NodeView, spatial: int) -> Conflicts:
    """
    `output_padding` is less than the stride or the dilation.

    It only chooses among the output sizes whose convolution has the input's size.
    """
    strides, dilations = (
        node.given_integers(name) or [1] * spatial for name in ("strides", "dilations")
    )
    added = node.given_integers("output_padding") or []
    if any(more >= max(pair) for more, *pair in zip(added, strides, dilations, strict=False)):
        yield TypeConflict(
            f"`output_padding` is {added} for strides {strides}",
            "it must be less than the stride or the dilation along every axis",
        )


@lowers("ConvTranspose")
def conv_transpose(node: Node) -> Lowered:
    """
    The gradient of a convolution by its image.

    Its pads crop the result where they are in range. Otherwise the uncropped gradient is computed,
    and then sliced and padded.
    """
    windows = Windows.of(node, shape_of(node[1])[2:])
    full = tuple(
        stride * (size - 1) + width
        for stride, size, width in zip(windows.strides, node.shape[2:], windows.widths, strict=True)
    )
    low, sizes = _transposed_place(node, windows, full)
    if min(sizes) < 1:
        raise TypeMismatchError(
            f"the pads crop the whole result: its spatial shape would be {list(sizes)}",
            hint="make the pads smaller, or output_padding larger",
        )
    high = tuple(end - begin - size for end, begin, size in zip(full, low, sizes, strict=True))
    ends = zip(low, high, windows.strides, strict=True)
    if all(begin >= 0 and after > -stride for begin, after, stride in ends):
        pads = (*low, *(max(0, after) for after in high))
        result = _spread_out(node, windows, sizes, pads)
    else:
        whole = _spread_out(node, windows, full, (0,) * (2 * len(full)))
        result = _window_of(whole, low, sizes)
    return with_bias(cast(result, node.dtype), node.optional(2))


def _spread_out(node: Node, windows: Windows, sizes: Shape, pads: Shape) -> Operand:
    """The gradient by an image of these spatial sizes."""
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


def _transposed_place(node: Node, windows: Windows, full: Shape) -> tuple[tuple[int, ...], Shape]:
    """
    The offset of the result in the uncropped one, and its spatial shape.

    A negative offset means zeros before the uncropped result.
    """
    mode = node.text("auto_pad", "NOTSET")
    extra = node.integers("output_padding", [0] * len(full))
    same = mode in ("SAME_UPPER", "SAME_LOWER")
    sizes = node.integers("output_shape")[-len(full) :]
    if not sizes and same:
        sizes = tuple(
            size * stride for size, stride in zip(node.shape[2:], windows.strides, strict=True)
        )
    if not sizes:
        low, high = windows.low, windows.high
        sizes = tuple(
            size + more - before - after
            for size, more, before, after in zip(full, extra, low, high, strict=True)
        )
        return low, sizes
    total = [size + more - out for size, more, out in zip(full, extra, sizes, strict=True)]
    if not same:  # ONNX adds missing elements at the high end only
        total = [max(pad, 0) for pad in total]
    less_first = mode == "SAME_UPPER"
    # ConvTranspose-1 defines the halves of `output_shape`'s padding the other way round.
    if node.version < 11 and node.integers("output_shape"):
        less_first = not less_first
    return tuple(pad // 2 if less_first else pad - pad // 2 for pad in total), sizes


def _window_of(full: Operand, low: tuple[int, ...], sizes: Shape) -> Operand:
    """The window of `full` at offset `low`, padded with zeros where it exceeds the ends."""
    have = shape_of(full)[2:]
    if have == sizes and not any(low):
        return full
    before = [max(0, -begin) for begin in low]
    after = [max(0, sum(ends)) for ends in zip(low, sizes, (-size for size in have), strict=True)]
    wide = _padded(full, (*before, *after), (0,) * len(low))
    rows = enumerate(zip(low, sizes, strict=True), 2)
    return sliced(wide, {axis: (max(0, begin), size, 1) for axis, (begin, size) in rows})


# DeformConv


@requires("DeformConv")
def require_deform_conv(node: NodeView) -> Conflicts:
    """Every element of every window has one offset per spatial axis, and one mask element."""
    image, weight = node.shape_of(0), node.shape_of(1)
    yield from at_least(node, 0, 3)
    yield from positive(node, "offset_group")
    yield from _grouped(node, bias=3)
    if weight is None or image is None:
        return
    yield from _divides(node, image[1], "channels", "offset_group")
    if isinstance(image[1], int):
        yield from of_shape(node, 1, weight[0], image[1] // node.integer("group", 1), *weight[2:])
    yield from room_for_one(node, image[2:], weight[2:])
    space, kernel = (
        [size for size in sizes if isinstance(size, int)] for sizes in (image[2:], weight[2:])
    )
    if node.shape_of(2) is not None and len(space) == len(kernel) == len(weight) - 2:
        elements = node.integer("offset_group", 1) * prod(kernel)
        counts = Windows.over(node, space, kernel).sizes()
        yield from of_shape(node, 2, image[0], elements * len(kernel), *counts)
        yield from of_shape(node, 4, image[0], elements, *counts)


@lowers("DeformConv")
def deform_conv(node: Node) -> Lowered:
    """
    im2col with moved elements, then a matmul with the weights.

    Each element of a window is interpolated at its position plus offset, times its mask.
    """
    weight, groups = shape_of(node[1]), node.integer("group", 1)
    kind = dtypes.BY_NAME["f64" if node.dtype.name == "f64" else "f32"]
    moved = _MovedWindows(node, Windows.of(node, weight[2:]), node.integer("offset_group", 1), kind)
    batch, maps, count = node.shape[0], weight[0], prod(moved.sizes)
    columns = reshaped(moved.columns(), (batch, groups, prod(weight[1:]), count))
    flat = reshaped(cast(node[1], kind), (1, groups, maps // groups, prod(weight[1:])))
    image = reshaped(gc.MatMulOp(flat, columns), (batch, maps, *moved.sizes))
    bias = node.optional(3)
    return cast(with_bias(image, None if bias is None else cast(bias, kind)), node.dtype)


@dataclass(frozen=True)
class _MovedWindows:
    """Windows whose elements are moved by offsets, separately in each offset group."""

    node: Node
    windows: Windows
    groups: int
    kind: DType

    @property
    def sizes(self) -> Shape:
        return self.windows.sizes()

    @property
    def grouped(self) -> Shape:
        """[batch, groups, elements of a window, windows]"""
        return (self.node.shape[0], self.groups, prod(self.windows.kernel), prod(self.sizes))

    def columns(self) -> SSAValue:
        """The im2col matrix [batch, channels, elements of a window, windows]."""
        batch, channels, *space = self.node.shape
        grouped = (batch, self.groups, channels // self.groups, prod(space))
        table = gc.TransposeOp(reshaped(self.node[0], grouped), perm=[0, 1, 3, 2])
        rows = cast(reshaped(table, (batch * self.groups * prod(space), grouped[2])), self.kind)
        images = np.arange(batch * self.groups).reshape(batch, self.groups, 1, 1) * prod(space)
        start = self.node.literal(images)
        taps = [linear_taps(self.node, self.at(axis), size) for axis, size in enumerate(space)]
        terms = [looked_up(self.node, rows, start, space, some) for some in product(*taps)]
        seen = reduce(gc.AddOp, terms)
        if self.node.optional(4) is not None:
            seen = gc.MulOp(seen, reshaped(cast(self.node[4], self.kind), (*self.grouped, 1)))
        return gc.TransposeOp(seen, perm=[0, 1, 4, 2, 3]).result

    def at(self, axis: int) -> SSAValue:
        """The positions along an axis of all elements of all windows: static ones plus offsets."""
        batch, groups, elements, count = self.grouped
        rank = len(self.sizes)
        offsets = reshaped(self.node[2], (batch, groups, elements, rank, count))
        own = reshaped(sliced(offsets, {3: (axis, 1, 1)}), self.grouped)
        places = self.windows.along(axis, self.sizes[axis]).T
        shape = [1] * (2 * rank)
        shape[axis], shape[rank + axis] = places.shape
        whole = (*self.windows.kernel, *self.sizes)
        fixed = np.broadcast_to(places.reshape(shape), whole).reshape(elements, count)
        literal = self.node.literal(fixed.astype(self.kind.numpy))
        return gc.AddOp(cast(own, self.kind), literal).result


# Col2Im


@requires("Col2Im")
def require_col2im(node: NodeView) -> Conflicts:
    yield from of_rank(node, 0, 3)
    yield from listed(node, 1, 2)
    shape, image, block = node.shape_of(0), node.integers_of(1), node.integers_of(2)
    for name, sizes in (("image_shape", image), ("block_shape", block)):
        if sizes is not None and not all(1 <= size <= MOST for size in sizes):
            yield TypeConflict(f"`{name}` is {sizes}", "its sizes must be 1 or more")
    if image is None or block is None:
        return
    yield from one_per_axis(node, len(image))
    if len(image) != len(block):
        yield TypeConflict(
            f"`block_shape` {block} and `image_shape` {image} differ in length",
            "give both one size per spatial axis",
        )
    yield from room_for_one(node, image, block)
    if shape is None:
        return
    if isinstance(shape[1], int) and shape[1] % prod(block):
        yield TypeConflict(
            f"axis 1 has size {shape[1]} for blocks of {block}",
            "its size must be a multiple of the elements of a block",
        )
    if differ(shape[2], count := prod(Windows.over(node, image, block).sizes())):
        yield TypeConflict(
            f"axis 2 has size {shape[2]} for {count} blocks", "give one column per block"
        )


@lowers("Col2Im", structural=[1, 2])
def columns_to_image(node: Node) -> Lowered:
    """
    Scatter-adds the elements of all blocks, by the gradient of a gather.

    Elements in the padding go to one extra slot after the image. Bools are combined by OR.
    """
    space, block = node.numbers(1, "the image's shape"), node.numbers(2, "the block's shape")
    windows = Windows.over(node, space, block)
    sizes = windows.sizes()
    batch, rows, count = node.shape
    channels = rows // prod(block)
    if rows % prod(block) or count != prod(sizes):
        raise TypeMismatchError(
            f"columns of {shapes.text(node.shape)} for {prod(sizes)} blocks of "
            f"{shapes.text(block)} in an image of {shapes.text(space)}",
            hint="the columns are [N, channels times the elements of a block, blocks]",
        )
    places = windows.places(sizes).T
    places = np.where(places < 0, prod(space), places).reshape(-1)
    is_bool = node.dtype.name == "bool"
    columns = cast(node[0], dtypes.BY_NAME["i32"]) if is_bool else node[0]
    flat = reshaped(columns, (batch * channels, len(places)))
    indices = node.literal(places.astype(np.uint64))
    image = gc.GatherGradOp(flat, indices, axis=1, size=prod(space) + 1)
    inside = sliced(image, {1: (0, prod(space), 1)})
    result = reshaped(inside, (batch, channels, *space))
    if not is_bool:
        return result
    return gc.CompareOp(result, node.scalar(0, dtype_of(result)), predicate="ne")


follows_data_sizes("Conv")
