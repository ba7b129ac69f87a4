"""Lowers Col2Im and MaxUnpool, which write elements to their places in an image."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, dtype_of, shape_of
from popgraph.dialects.onnx.view import NodeView
from popgraph.operators.arithmetic import cast
from popgraph.operators.lookups import from_start
from popgraph.operators.movement import reshaped, sliced
from popgraph.operators.node import Node
from popgraph.operators.record import Bounds, Lowered, bounds, lowers
from popgraph.operators.windows import Windows
from popgraph.support import dtypes, shapes
from popgraph.support.errors import TypeMismatchError
from popgraph.support.shapes import prod, unpooled


@lowers("Col2Im", structural=[1, 2])
def columns_to_image(node: Node) -> Lowered:
    """Every element of a block is added to its place; what falls outside goes behind the image."""
    space, block = node.numbers(1, "the image's shape"), node.numbers(2, "the block's shape")
    windows = Windows.over(node, space, block)
    sizes = windows.sizes(ceil=False)
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
    flat = SSAValue.get(reshaped(_summable(node), (batch * channels, len(places))))
    indices = node.literal(places.astype(np.uint64))
    image = gc.GatherGradOp(flat, indices, axis=1, size=prod(space) + 1)
    inside = SSAValue.get(sliced(image.result, {1: (0, prod(space), 1)}))
    result = reshaped(inside, (batch, channels, *space))
    if node.dtype.name != "bool":
        return result
    return gc.CompareOp(result, node.scalar(0, dtype_of(result)), predicate="ne")


def _summable(node: Node) -> SSAValue:
    """Of bools, any that is true makes the sum true."""
    return cast(node[0], dtypes.BY_NAME["i32"]) if node.dtype.name == "bool" else node[0]


@lowers("MaxUnpool", structural=[2])
def max_unpool(node: Node) -> Lowered:
    """
    Every element goes to its place in an image of zeros; of several, the last one does.

    They are sorted by their places: windows that overlap may have chosen the same element.
    """
    windows = (node.integers(name) for name in ("kernel_shape", "strides", "pads"))
    inner = (*node.shape[:2], *shapes.unpooled(node.shape[2:], *windows))
    count = prod(node.shape)
    places = from_start(node, 1, prod(inner))
    indices = SSAValue.get(reshaped(SSAValue.get(places), (count,)))
    order = cast(gc.ArgTopKOp(indices, axis=0, count=count, largest=False), dtypes.BY_NAME["u64"])
    sorted_, values = (
        gc.GatherOp(SSAValue.get(value), order, axis=0).result
        for value in (indices, reshaped(node[0], (count,)))
    )
    kept = gc.WhereOp(_last_of_equals(node, sorted_), values, node.scalar(0))
    flat = gc.GatherGradOp(kept, sorted_, axis=0, size=prod(inner))
    return _placed(node, SSAValue.get(reshaped(flat.result, inner)))


def _last_of_equals(node: Node, sorted_: SSAValue) -> Operand:
    (count,) = shape_of(sorted_)
    if count < 2:
        return node.literal(np.ones(count, bool))
    first, second = (sliced(sorted_, {0: (start, count - 1, 1)}) for start in (0, 1))
    differ = gc.CompareOp(first, second, predicate="ne")
    return gc.ConcatOp([differ, node.literal(np.ones(1, bool))], axis=0)


def _placed(node: Node, image: SSAValue) -> Operand:
    """The image at the low ends of the shape that the node asks for."""
    if node.optional(2) is None:
        return image
    have, wanted = shape_of(image), node.numbers(2, "the shape of the output")
    high = [more - size for size, more in zip(have, wanted, strict=False)]
    if len(wanted) != len(have) or min(high, default=0) < 0 or any(high[:2]):
        raise TypeMismatchError(
            f"output_shape is {list(wanted)}, but the image is {shapes.text(have)}",
            hint="it has the same batch and channels, and is as large or larger in space",
        )
    none = [0] * len(have)
    return gc.PadOp(image, low=none, high=high, interior=none, value=0.0)


@bounds("MaxUnpool")
def places_in_image(node: NodeView) -> Iterator[Bounds]:
    x = node.static_shape_of(0)
    if x is not None:
        windows = (node.integers(name) for name in ("kernel_shape", "strides", "pads"))
        count = prod(x[:2]) * prod(unpooled(x[2:], *windows))
        yield Bounds(1, "index", (0,), (count - 1,))
