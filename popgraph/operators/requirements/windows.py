"""What convolutions and pooling ask of their windows, weights and biases."""

from __future__ import annotations

import math
from collections.abc import Sequence

from popgraph.dialects.onnx.record import Complaints
from popgraph.dialects.onnx.type_errors import TypeConflict
from popgraph.dialects.onnx.types import Dim
from popgraph.dialects.onnx.view import NodeView
from popgraph.operators.complaints import (
    at_least,
    differ,
    listed,
    of_rank,
    of_shape,
    positive,
    shown,
)
from popgraph.operators.record import requires
from popgraph.support.shapes import prod, unpooled

_LEAST = {"kernel_shape": 1, "strides": 1, "dilations": 1, "pads": 0, "output_padding": 0}
_MOST = 2**31 - 1


def _lists(node: NodeView, spatial: int) -> Complaints:
    """One number per spatial axis, two of `pads`, none too small."""
    for name, least in _LEAST.items():
        numbers = node.given_integers(name)
        if not numbers:
            continue
        count = spatial * (2 if name == "pads" else 1)
        if len(numbers) != count:
            yield TypeConflict(
                f"`{name}` has {len(numbers)} numbers for {spatial} spatial axes",
                f"it has {count} of them",
            )
        for number in numbers:
            if not least <= number <= _MOST:
                yield TypeConflict(f"`{name}` is {numbers}", f"it is {least} or more")


def _fits(node: NodeView, sizes: Sequence[Dim], kernel: Sequence[Dim]) -> Complaints:
    """There is room for one window along every axis; `ceil_mode` makes room."""
    if node.text("auto_pad", "NOTSET").startswith("SAME") or node.integer("ceil_mode"):
        return
    count = len(sizes)
    pads = [0] * (2 * count)
    if node.text("auto_pad") != "VALID":
        pads = node.given_integers("pads") or pads
    dilations = node.given_integers("dilations") or [1] * count
    for axis, (size, width) in enumerate(zip(sizes, kernel, strict=True)):
        if not isinstance(size, int) or not isinstance(width, int):
            continue
        room, span = size + pads[axis] + pads[axis + count], dilations[axis] * (width - 1) + 1
        if span > room and size:
            yield TypeConflict(
                f"a window of {span} does not fit into {room} along spatial axis {axis}",
                "a smaller kernel or dilation, or larger pads",
            )


@requires("AveragePool", "LpPool", "MaxPool")
def pools(node: NodeView) -> Complaints:
    yield from at_least(node, 0, 2)
    yield from _power(node)
    shape, kernel = node.shape_of(0), node.given_integers("kernel_shape") or []
    if shape is None:
        return
    yield from _lists(node, len(shape) - 2)
    if len(kernel) != len(shape) - 2:
        yield TypeConflict(f"`kernel_shape` is {kernel}", f"it has {len(shape) - 2} numbers")
        return
    yield from _fits(node, shape[2:], kernel)


def _power(node: NodeView) -> Complaints:
    """The p of LpPool is a number of version 1, and a whole one since."""
    p = node.real("p", 2.0)
    if not 0 < p < math.inf:
        yield TypeConflict(f"`p` is {p:g}", "`p` is larger than 0")


@requires("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool")
def global_pools(node: NodeView) -> Complaints:
    yield from at_least(node, 0, 2)
    yield from _power(node)


@requires("Conv")
def conv(node: NodeView) -> Complaints:
    image, weight = node.shape_of(0), node.shape_of(1)
    yield from _convolution(node)
    if weight is None:
        return
    yield from _divides(node, weight[0], "outputs")
    yield from of_shape(node, 2, weight[0])
    if image is not None:
        yield from _divides(node, image[1], "channels")
        yield from _fits(node, image[2:], weight[2:])


def _convolution(node: NodeView) -> Complaints:
    """What a convolution asks in either direction."""
    weight = node.shape_of(1)
    yield from at_least(node, 0, 2)
    yield from positive(node, "group")
    if weight is None:
        return
    yield from of_rank(node, 1, node.rank_of(0) or len(weight))
    yield from _lists(node, len(weight) - 2)
    given = node.given_integers("kernel_shape")
    if given and any(map(differ, given, weight[2:])):
        yield TypeConflict(
            f"`kernel_shape` is {given}, but the weight is for {list(weight[2:])}",
            "leave `kernel_shape` out: the weight says it",
        )


def _divides(node: NodeView, size: Dim, what: str) -> Complaints:
    group = node.integer("group", 1)
    if isinstance(size, int) and size % max(group, 1):
        yield TypeConflict(f"{size} {what} do not fall into {group} groups", "`group` divides them")


@requires("DeformConv")
def deform_conv(node: NodeView) -> Complaints:
    """Every element of every window has an offset along every axis, and one number of the mask."""
    image, weight, offset = (node.shape_of(index) for index in range(3))
    yield from at_least(node, 0, 3)
    yield from positive(node, "offset_group")
    yield from _convolution(node)
    if weight is None:
        return
    yield from _divides(node, weight[0], "outputs")
    yield from of_shape(node, 3, weight[0])
    if image is None:
        return
    yield from _divides(node, image[1], "channels")
    groups = node.integer("offset_group", 1)
    if isinstance(image[1], int) and image[1] % groups:
        yield TypeConflict(
            f"{image[1]} channels do not fall into {groups} groups", "`offset_group` divides them"
        )
    if isinstance(image[1], int):
        yield from of_shape(node, 1, weight[0], image[1] // node.integer("group", 1), *weight[2:])
    yield from _fits(node, image[2:], weight[2:])
    space, kernel = _known(image[2:]), _known(weight[2:])
    if offset is not None and space is not None and kernel is not None:
        elements, counts = groups * prod(kernel), _windows(node, space, kernel)
        yield from of_shape(node, 2, image[0], elements * len(kernel), *counts)
        yield from of_shape(node, 4, image[0], elements, *counts)


def _known(sizes: Sequence[Dim]) -> list[int] | None:
    found = [size for size in sizes if isinstance(size, int)]
    return found if len(found) == len(sizes) else None


@requires("ConvTranspose")
def conv_transpose(node: NodeView) -> Complaints:
    image, weight = node.shape_of(0), node.shape_of(1)
    yield from _convolution(node)
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
            f"`output_shape` is {wanted}", f"it has {spatial} numbers, all 1 or more"
        )


def _added(node: NodeView, spatial: int) -> Complaints:
    """What `output_padding` adds must be less than a step, or it is no choice between sizes."""
    ones = [1] * spatial
    strides, dilations = (
        node.given_integers("strides") or ones,
        node.given_integers("dilations") or ones,
    )
    added = node.given_integers("output_padding") or []
    if any(more >= max(pair) for more, *pair in zip(added, strides, dilations, strict=False)):
        yield TypeConflict(
            f"`output_padding` is {added} for strides {strides}",
            "it is less than the stride (or the dilation) along every axis",
        )


@requires("MaxUnpool")
def max_unpool(node: NodeView) -> Complaints:
    yield from at_least(node, 0, 3)
    yield from listed(node, 2)
    shape, kernel = node.shape_of(0), node.given_integers("kernel_shape") or []
    if shape is None:
        return
    yield from of_shape(node, 1, *shape)
    yield from _lists(node, len(shape) - 2)
    if len(kernel) != len(shape) - 2:
        yield TypeConflict(f"`kernel_shape` is {kernel}", f"it has {len(shape) - 2} numbers")
        return
    space = _known(shape[2:])
    if space is None:
        return
    found = unpooled(
        space, kernel, node.given_integers("strides") or [], node.given_integers("pads") or []
    )
    if min(found) < 1 and 0 not in space:
        yield TypeConflict(f"the image is {shown(found)}", "smaller `pads`: no axis is empty")
    wanted, least = node.integers_of(2), (*shape[:2], *found)
    if wanted is not None and not _holds(wanted, least):
        yield TypeConflict(
            f"`output_shape` is {wanted}, but the image is {shown(least)}",
            "it has the same batch and channels, and is as large or larger in space",
        )


def _holds(wanted: Sequence[int], least: Sequence[Dim]) -> bool:
    if len(wanted) != len(least) or any(map(differ, wanted[:2], least[:2])):
        return False
    pairs = zip(wanted, least, strict=True)
    return all(not isinstance(have, int) or have <= size for size, have in pairs)


@requires("Col2Im")
def columns_to_image(node: NodeView) -> Complaints:
    yield from of_rank(node, 0, 3)
    yield from listed(node, 1, 2)
    shape, image, block = node.shape_of(0), node.integers_of(1), node.integers_of(2)
    for name, sizes in (("image_shape", image), ("block_shape", block)):
        if sizes is not None and not all(1 <= size <= _MOST for size in sizes):
            yield TypeConflict(f"`{name}` is {sizes}", "its sizes are 1 or more")
    if image is None or block is None:
        return
    yield from _lists(node, len(image))
    if len(image) != len(block):
        yield TypeConflict(f"blocks of {block} in an image of {image}", "with as many axes")
        return
    yield from _fits(node, image, block)
    if shape is not None and isinstance(shape[1], int) and shape[1] % prod(block):
        yield TypeConflict(
            f"{shape[1]} rows for blocks of {block}", "channels times the elements of a block"
        )
    if shape is not None and differ(shape[2], count := prod(_windows(node, image, block))):
        yield TypeConflict(f"{shape[2]} columns for {count} blocks", "one for each block")


def _windows(node: NodeView, image: Sequence[int], block: Sequence[int]) -> tuple[int, ...]:
    """How many windows there are along each axis."""
    ones = [1] * len(image)
    pads = node.given_integers("pads") or [0] * (2 * len(image))
    strides, dilations = (
        node.given_integers("strides") or ones,
        node.given_integers("dilations") or ones,
    )
    rows = zip(image, block, strides, dilations, pads, pads[len(image) :], strict=False)
    return tuple(
        (size + low + high - dilation * (width - 1) - 1) // stride + 1
        for size, width, stride, dilation, low, high in rows
    )
