"""Sorting and selection: top-k, compression, sorting, segments, box suppression."""

from __future__ import annotations

import numpy as np
from xdsl.dialects.builtin import BoolAttr, IntegerAttr, StringAttr, TensorType, i64
from xdsl.irdl import operand_def, opt_operand_def, prop_def, result_def

from popgraph.dialects.graphcore.base import (
    BOOLS,
    NUMBERS,
    ORDERED,
    Array,
    Elements,
    Operand,
    Reduction,
    Tensor,
    dtype_of,
    flag,
    integer,
    is_float,
    operation,
    shape_of,
    tensor_of,
)
from popgraph.support import shapes
from popgraph.support.shapes import prod

KEYS = Elements("u64", frozenset({"u64"}))
RANKS = Elements("u32", frozenset({"u32"}))
PLACES = Elements("i64", frozenset({"i64"}))
SINGLE = Elements("f32", frozenset({"f32"}))


@operation
class ArgTopKOp(Reduction):
    """
    The positions of the `count` largest (or smallest) elements along `axis`, in order. ONNX TopK.

    The lower position comes first among equal elements. NaN is larger than every number.
    """

    name = "graphcore.arg_top_k"
    x = operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    count = prop_def(IntegerAttr)
    largest = prop_def(BoolAttr)
    result = result_def(TensorType)

    def __init__(self, x: Operand, *, axis: int, count: int, largest: bool = True) -> None:
        super().__init__([x], {"axis": axis, "count": count, "largest": bool(largest)})

    def infer(self) -> tuple[Tensor, ...]:
        self.common_element(ORDERED, self.x)
        shape, axis, count = shape_of(self.x), integer(self.axis), integer(self.count)
        self.check_axes([axis], len(shape))
        if not 0 <= count <= shape[axis]:
            raise self.fail(
                f"cannot choose {count} of the {shape[axis]} elements along axis {axis}",
                f"choose between 0 and {shape[axis]} elements",
            )
        return (TensorType(i64, (*shape[:axis], count, *shape[axis + 1 :])),)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        axis = integer(self.axis)
        keys = x.astype(np.float64) if is_float(self.x) else x
        if flag(self.largest):
            # Sorting the reversed array and reversing the order puts lower positions first.
            backwards = np.argsort(np.flip(keys, axis), axis, kind="stable")
            order = x.shape[axis] - 1 - np.flip(backwards, axis)
        else:
            order = np.argsort(keys, axis, kind="stable")
        return (np.take(order, range(integer(self.count)), axis).astype(np.int64),)


@operation
class CompressOp(Reduction):
    """
    The positions of the true elements of a 1-D mask in ascending order, then zeros.

    The result is as long as the mask, its upper bound; `reduce_sum` counts the true elements.
    With `data`, the result holds its slices at these positions along `axis`, flattened and without
    gaps. The elements after them are arbitrary; here they are zero. ONNX Compress.
    """

    name = "graphcore.compress"
    mask = operand_def(TensorType)
    data = opt_operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    result = result_def(TensorType)

    def __init__(self, mask: Operand, data: Operand | None = None, *, axis: int = 0) -> None:
        super().__init__([mask, data], {"axis": axis})

    def infer(self) -> tuple[Tensor, ...]:
        self.common_element(BOOLS, self.mask)
        shape = shape_of(self.mask)
        if len(shape) != 1:
            raise self.fail(f"takes a 1-D mask, not a tensor of {len(shape)} axes", "reshape it")
        if self.data is None:
            return (TensorType(i64, shape),)
        sizes, axis = shape_of(self.data), integer(self.axis)
        self.check_axes([axis], len(sizes))
        if sizes[axis] < shape[0]:
            raise self.fail(
                f"a mask of {shape[0]} is longer than axis {axis} of {shapes.text(sizes)}",
                "shorten the mask to the axis",
            )
        bound = prod((*sizes[:axis], *shape, *sizes[axis + 1 :]))
        return (TensorType(tensor_of(self.data).element_type, (bound,)),)

    def evaluate(self, mask: Array, data: Array | None = None) -> tuple[Array, ...]:
        kept = positions = np.flatnonzero(mask)
        if data is not None:
            kept = np.take(data, positions, integer(self.axis)).reshape(-1)
        (type_,) = self.infer()
        found = np.zeros(type_.get_shape(), np.int64 if data is None else data.dtype)
        found[: len(kept)] = kept
        return (found,)


@operation
class ArgSortOp(Reduction):
    """
    The positions of unsigned keys in ascending order of key; the sort is stable.

    Only the low `bits` of a key may be nonzero.
    """

    name = "graphcore.arg_sort"
    keys = operand_def(TensorType)
    bits = prop_def(IntegerAttr)
    result = result_def(TensorType)

    def __init__(self, keys: Operand, *, bits: int = 64) -> None:
        super().__init__([keys], {"bits": bits})

    def infer(self) -> tuple[Tensor, ...]:
        self.common_element(KEYS, self.keys)
        shape = shape_of(self.keys)
        if len(shape) != 1:
            raise self.fail(f"takes 1-D keys, not a tensor of {len(shape)} axes", "reshape it")
        return (TensorType(i64, shape),)

    def evaluate(self, keys: Array) -> tuple[Array, ...]:
        return (np.argsort(keys, kind="stable").astype(np.int64),)


@operation
class ReduceSegmentsOp(Reduction):
    """
    Reduces the rows of each segment: `y[k] = sum(rows[starts[k]:ends[k]])`, or the maximum.

    Segments may overlap. An empty segment gives 0 for a sum, the lowest number for a maximum.
    """

    name = "graphcore.reduce_segments"
    rows = operand_def(TensorType)
    starts = operand_def(TensorType)
    ends = operand_def(TensorType)
    combine = prop_def(StringAttr)
    result = result_def(TensorType)

    def __init__(
        self, rows: Operand, starts: Operand, ends: Operand, *, combine: str = "add"
    ) -> None:
        super().__init__([rows, starts, ends], {"combine": combine})

    def infer(self) -> tuple[Tensor, ...]:
        element = self.common_element(NUMBERS, self.rows)
        self.common_element(PLACES, self.starts, self.ends)
        rows, starts, ends = map(shape_of, self.operands)
        if len(rows) != 2 or len(starts) != 1 or starts != ends:
            raise self.fail(
                f"rows of {shapes.text(rows)} do not fit starts of {shapes.text(starts)} and ends "
                f"of {shapes.text(ends)}",
                "pass a matrix of rows, and 1-D starts and ends of equal length",
            )
        if self.combine.data not in ("add", "max"):
            raise self.fail(f"does not support combine={self.combine.data!r}", "use add or max")
        return (TensorType(element, (*starts, rows[1])),)

    def evaluate(self, rows: Array, starts: Array, ends: Array) -> tuple[Array, ...]:
        is_sum = self.combine.data == "add"
        kind = dtype_of(self.rows)
        wide = rows.astype(np.float64) if kind.is_float else rows
        nothing = 0 if is_sum else -np.inf if kind.is_float else np.iinfo(kind.numpy.name).min
        found = np.full((len(starts), rows.shape[1]), nothing, wide.dtype)
        for row, start, end in zip(found, starts.tolist(), ends.tolist(), strict=True):
            if start < end:
                part = wide[start:end]
                row[:] = part.sum(axis=0) if is_sum else part.max(axis=0)
        return (found.astype(kind.numpy),)


@operation
class SuppressOp(Reduction):
    """
    Greedy non-maximum suppression per row: positions of kept boxes, best first, then -1.

    ONNX NonMaxSuppression. `keys` [batches, rows, n] rank the boxes of a row: largest first, the
    lower position first among equals; key 0 excludes a box. `boxes` [batches, n, 4] hold two
    opposite corners, or with `centered` the center and the size. A box is suppressed if its
    intersection over union with a kept box exceeds `threshold`. Each row keeps at most `limit` and
    `count` boxes.
    """

    name = "graphcore.suppress"
    boxes = operand_def(TensorType)
    keys = operand_def(TensorType)
    limit = operand_def(TensorType)
    threshold = operand_def(TensorType)
    count = prop_def(IntegerAttr)
    centered = prop_def(BoolAttr)
    result = result_def(TensorType)

    def __init__(
        self,
        boxes: Operand,
        keys: Operand,
        limit: Operand,
        threshold: Operand,
        *,
        count: int,
        centered: bool = False,
    ) -> None:
        held = {"count": count, "centered": centered}
        super().__init__([boxes, keys, limit, threshold], held)

    def infer(self) -> tuple[Tensor, ...]:
        self.common_element(SINGLE, self.boxes, self.threshold)
        self.common_element(RANKS, self.keys)
        self.common_element(PLACES, self.limit)
        boxes, keys = shape_of(self.boxes), shape_of(self.keys)
        if len(keys) != 3 or boxes != (keys[0], keys[2], 4):
            raise self.fail(
                f"boxes of {shapes.text(boxes)} do not fit keys of {shapes.text(keys)}",
                "pass keys [batches, rows, n] and boxes [batches, n, 4]",
            )
        return (TensorType(i64, (*keys[:2], integer(self.count))),)

    def evaluate(
        self, boxes: Array, keys: Array, limit: Array, threshold: Array
    ) -> tuple[Array, ...]:
        count = integer(self.count)
        found = np.full((*keys.shape[:2], count), -1, np.int64)
        first, second = boxes[..., :2], boxes[..., 2:]
        if flag(self.centered):
            half = second * np.float32(0.5)
            low, high = first - half, first + half
        else:
            low, high = np.minimum(first, second), np.maximum(first, second)
        boxes = np.concatenate([low, high], axis=-1)
        for batch, row in np.ndindex(*keys.shape[:2]):
            kept = _kept_boxes(boxes[batch], keys[batch, row], min(count, int(limit)), threshold)
            found[batch, row, : len(kept)] = kept
        return (found,)


def _kept_boxes(boxes: Array, keys: Array, limit: int, threshold: Array) -> list[int]:
    """The positions of boxes that no better box suppresses, best first."""
    # The complement sorts unsigned keys descending; key 0 comes last and is cut off.
    order = np.argsort(~keys, kind="stable")[: np.count_nonzero(keys)]
    kept: list[int] = []
    for at in order.tolist():
        if len(kept) >= limit:
            break
        if not _overlaps(boxes[kept], boxes[at], threshold).any():
            kept.append(at)
    return kept


def _overlaps(kept: Array, box: Array, threshold: Array) -> Array:
    """For each kept box, whether its intersection over union with `box` exceeds the threshold."""
    high, low = np.minimum(kept[:, 2:], box[2:]), np.maximum(kept[:, :2], box[:2])
    common = (high - low)[:, 0] * (high - low)[:, 1]
    areas = (kept[:, 2] - kept[:, 0]) * (kept[:, 3] - kept[:, 1])
    area = (box[2] - box[0]) * (box[3] - box[1])
    whole = areas + area - common
    with np.errstate(all="ignore"):
        meets = (high > low).all(axis=1) & (areas > 0) & (area > 0) & (whole > 0)
        found: Array = meets & (common / whole > threshold)
    return found
