"""Evaluates operators whose results have as many elements as the data say."""

from __future__ import annotations

import numpy as np

from popgraph.dialects.onnx.host_values import holds_text, texts
from popgraph.dialects.onnx.view import NodeView
from popgraph.operators.record import computes
from popgraph.support.arrays import Array


@computes("NonZero")
def non_zero(node: NodeView, x: Array) -> Array:
    """The indices; a scalar has no rows of them, as ONNX says, where onnxruntime has one."""
    if not x.ndim:
        return np.zeros((0, np.count_nonzero(x)), np.int64)
    return np.array(np.nonzero(x), np.int64).reshape(x.ndim, -1)


@computes("Compress")
def compress(node: NodeView, x: Array, condition: Array) -> Array:
    axis = node.attribute("axis")
    flat = x.reshape(-1) if axis is None else x
    places = np.flatnonzero(condition)
    size = flat.shape[axis or 0]
    if places.size and places[-1] >= size:
        raise node.fail(
            f"Compress: the condition selects element {places[-1]} of {size}",
            "the condition must not be longer than the axis",
        )
    return np.take(flat, places, axis or 0)


@computes("Unique")
def unique(node: NodeView, x: Array) -> tuple[Array, ...]:
    """
    Elements, or slices along `axis`, their first places, the way back, and their counts.

    NaN are equal, as in ONNX's reference; onnxruntime takes them for the least number.
    """
    axis, words = node.attribute("axis"), None
    if holds_text(x):  # NumPy sorts no slices of Python's values: places in a sorted list do.
        words, places = np.unique(texts(x), return_inverse=True)
        x = places.reshape(x.shape)
    found = np.unique(x, True, True, True, axis)
    values, first, back, counts = found[0], found[1], found[2].reshape(-1), found[3]
    if not node.attribute("sorted"):
        order = np.argsort(first)
        values, first, counts = np.take(values, order, axis or 0), first[order], counts[order]
        back = np.argsort(order)[back]
    if words is not None:
        values = words[values]
    return values, *(numbers.astype(np.int64) for numbers in (first, back, counts))


@computes("NonMaxSuppression")
def non_max_suppression(
    node: NodeView,
    boxes: Array,
    scores: Array,
    most: Array | None = None,
    overlap: Array | None = None,
    least: Array | None = None,
) -> Array:
    """
    Selects boxes by falling score; a box that overlaps a selected one beyond the threshold goes.

    Of equal scores the first box comes first. A score must exceed the threshold, as in onnxruntime;
    ONNX's reference keeps equal ones, too.
    """
    count = 0 if most is None else int(most.reshape(()))
    limit = np.float32(0 if overlap is None else overlap.reshape(()))
    low, high = _corners(boxes, centered=bool(node.attribute("center_point_box")))
    rows: list[tuple[int, int, int]] = []
    for batch, label in np.ndindex(*scores.shape[:2]):
        row = scores[batch, label]
        order = np.argsort(-row, kind="stable")
        if least is not None:
            order = order[row[order] > least.reshape(())]
        kept: list[int] = []
        while len(order) and len(kept) < count:
            best, order = int(order[0]), order[1:]
            kept.append(best)
            shared = _overlaps(low[batch], high[batch], best, order)
            order = order[~(shared > limit)]
        rows += [(batch, label, box) for box in kept]
    return np.array(rows, np.int64).reshape(-1, 3)


def _corners(boxes: Array, *, centered: bool) -> tuple[Array, Array]:
    """The lowest and highest corner of each box, whichever diagonal it is given by."""
    first, second = boxes[..., :2], boxes[..., 2:]
    if centered:
        first, second = first - second / 2, first + second / 2
    return np.minimum(first, second), np.maximum(first, second)


def _overlaps(low: Array, high: Array, box: int, others: Array) -> Array:
    """Intersection over union; 0 where boxes have no area."""
    areas = np.prod(high - low, axis=-1)
    sides = np.minimum(high[box], high[others]) - np.maximum(low[box], low[others])
    shared = np.prod(np.maximum(sides, 0), axis=-1)
    union = areas[box] + areas[others] - shared
    return np.where(union > 0, shared / union, 0)
