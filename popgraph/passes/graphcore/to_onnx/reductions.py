"""ONNX forms of reductions, sorting and whole composites."""

from __future__ import annotations

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects import graphcore
from popgraph.dialects.graphcore.base import dtype_of, flag, integer, shape_of
from popgraph.dialects.graphcore.pooling import lowest
from popgraph.passes.graphcore.to_onnx.printer import Printer, form, no_form
from popgraph.support.shapes import prod

REDUCED: dict[type[graphcore.GraphcoreOp], str] = {
    graphcore.ReduceSumOp: "ReduceSum",
    graphcore.ReduceProdOp: "ReduceProd",
    graphcore.ReduceMaxOp: "ReduceMax",
    graphcore.ReduceMinOp: "ReduceMin",
}

NARROW = ("i8", "u8", "i16", "u16", "bool")
"""Types that ONNX's sums, products and matmuls do not take; i32 wraps to the same low bits."""


def reduce(to: Printer, op: graphcore.AxesReduction) -> SSAValue:
    x, dtype = to(op.x), dtype_of(op.x)
    if not op.axes.data:  # ONNX reduces all axes if none is given.
        return to.node("Identity", x)
    wide = dtype.name in NARROW
    if wide:
        x = to.cast(x, "i32")
    axes = to.ints(op.axes.data)
    found = to.node(REDUCED[type(op)], x, axes, keepdims=int(flag(op.keepdims)))
    return to.cast(found, dtype) if wide else found


for _cls, _op_type in REDUCED.items():
    form(_cls, by=_op_type)(reduce)


@form(graphcore.ArgMaxOp, graphcore.ArgMinOp, by="ArgMax, ArgMin")
def position(to: Printer, op: graphcore.ArgMaxOp | graphcore.ArgMinOp) -> SSAValue:
    x = to(op.x)
    if dtype_of(op.x).name == "bool":
        x = to.cast(x, "i32")
    return to.node(
        "ArgMax" if isinstance(op, graphcore.ArgMaxOp) else "ArgMin",
        x,
        axis=integer(op.axis),
        keepdims=int(flag(op.keepdims)),
        select_last_index=int(flag(op.last)),
    )


@form(graphcore.ArgTopKOp, by="TopK")
def arg_top_k(to: Printer, op: graphcore.ArgTopKOp) -> SSAValue:
    x = to(op.x)
    if dtype_of(op.x).name in NARROW:
        x = to.cast(x, "i32")
    count = to.ints([integer(op.count)])
    largest = int(flag(op.largest))
    return to.nodes("TopK", [x, count], 2, axis=integer(op.axis), largest=largest)[1]


@form(graphcore.ArgSortOp, by="TopK")
def arg_sort(to: Printer, op: graphcore.ArgSortOp) -> SSAValue:
    """TopK of i64, which is stable; keys of 64 bits are sorted by their low, then high words."""
    keys, count = to(op.keys), to.ints(shape_of(op.keys))

    def order(words: SSAValue) -> SSAValue:
        return to.nodes("TopK", [words, count], 2, axis=0, largest=0)[1]

    if integer(op.bits) < 64:
        return order(to.cast(keys, "i64"))
    dtype = dtype_of(op.keys)
    low = to.cast(to.node("BitwiseAnd", keys, to.scalar(2**32 - 1, dtype)), "i64")
    high = to.cast(to.node("BitShift", keys, to.scalar(32, dtype), direction="RIGHT"), "i64")
    first = order(low)
    second = order(to.node("Gather", high, first, axis=0))
    return to.node("Gather", first, second, axis=0)


@form(graphcore.CompressOp, by="TopK, Gather")
def compress(to: Printer, op: graphcore.CompressOp) -> SSAValue:
    """A stable sort puts true elements first."""
    (size,) = shape_of(op.mask)
    mask = to.cast(to(op.mask), "i32")

    def order_of(mask: SSAValue, size: int) -> SSAValue:
        return to.nodes("TopK", [mask, to.ints([size])], 2, axis=0, largest=1)[1]

    if op.data is None:
        order = order_of(mask, size)
        count = to.node("ReduceSum", to.cast(to(op.mask), "i64"), to.ints([0]), keepdims=1)
        is_first = to.node("Less", to.constant(np.arange(size, dtype=np.int64)), count)
        return to.node("Where", is_first, order, to.index(0))
    axis, shape = integer(op.axis), shape_of(op.data)
    if prod(shape[:axis]) == 1:
        rows = to.node("Gather", to(op.data), order_of(mask, size), axis=axis)
        return to.reshape(rows, shape_of(op.result))
    shape = (*shape[:axis], size, *shape[axis + 1 :])
    each = to.reshape(mask, [size, *[1] * (len(shape) - axis - 1)])
    each = to.reshape(to.node("Expand", each, to.ints(shape)), [prod(shape)])
    flat = to.reshape(to.slice(to(op.data), [0] * len(shape), shape), [prod(shape)])
    return to.node("Gather", flat, order_of(each, prod(shape)), axis=0)


@form(graphcore.ReduceSegmentsOp, by="Where, ReduceSum, ReduceMax")
def reduce_segments(to: Printer, op: graphcore.ReduceSegmentsOp) -> SSAValue:
    """Rows of other segments are replaced by the identity, then all rows are reduced."""
    (count, _), (segments,) = shape_of(op.rows), shape_of(op.starts)
    dtype, is_sum = dtype_of(op.rows), op.combine.data == "add"
    numbers = to.constant(np.arange(count, dtype=np.int64))
    starts, ends = (to.reshape(to(one), [segments, 1]) for one in (op.starts, op.ends))
    is_in = to.node(
        "And", to.node("GreaterOrEqual", numbers, starts), to.node("Less", numbers, ends)
    )
    is_in = to.reshape(is_in, [segments, count, 1])
    nothing = to.scalar(0 if is_sum else lowest(dtype.numpy), dtype)
    rows = to.node("Where", is_in, to(op.rows), nothing)
    axes = to.ints([1])
    return to.node("ReduceSum" if is_sum else "ReduceMax", rows, axes, keepdims=0)


@form(graphcore.SoftmaxOp, by="Softmax")
def softmax(to: Printer, op: graphcore.SoftmaxOp) -> SSAValue:
    return to.node("Softmax", to(op.x), axis=integer(op.axis))


@form(graphcore.LogSoftmaxOp, by="LogSoftmax")
def log_softmax(to: Printer, op: graphcore.LogSoftmaxOp) -> SSAValue:
    return to.node("LogSoftmax", to(op.x), axis=integer(op.axis))


no_form(
    "boxes are suppressed by positions, ONNX's operator by class and score", graphcore.SuppressOp
)
