"""Evaluates operators on sequences of tensors, which are lists of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from popgraph.dialects.onnx.view import NodeView
from popgraph.operators.record import computes
from popgraph.support.arrays import Array


@computes("SequenceConstruct")
def construct(node: NodeView, *tensors: Array) -> list[Array]:
    return list(tensors)


@computes("SequenceEmpty")
def empty(node: NodeView) -> list[Array]:
    return []


@computes("SequenceLength")
def length(node: NodeView, sequence: list[Any]) -> Array:
    return np.array(len(sequence), np.int64)


@computes("SequenceAt")
def at(node: NodeView, sequence: list[Any], position: Array) -> Any:
    return sequence[_position(node, position, len(sequence))]


@computes("SequenceErase")
def erase(node: NodeView, sequence: list[Any], position: Array | None = None) -> list[Any]:
    """Without a position, the last tensor goes."""
    place = _position(node, np.array(-1) if position is None else position, len(sequence))
    return sequence[:place] + sequence[place + 1 :]


@computes("SequenceInsert")
def insert(
    node: NodeView, sequence: list[Any], tensor: Any, position: Array | None = None
) -> list[Any]:
    """
    Negative positions count from the last tensor: -1 is the place before it.

    Without a position the tensor goes to the end. onnx.reference puts it in front if the position
    is the end.
    """
    size = len(sequence)
    place = size if position is None else _position(node, position, size, extra=1)
    return [*sequence[:place], tensor, *sequence[place:]]


def _position(node: NodeView, position: Array, size: int, extra: int = 0) -> int:
    """A position counted from the start; up to `extra` may follow the last tensor."""
    place = int(np.reshape(position, ()))
    if not -size <= place < size + extra:
        raise node.fail(
            f"{node.op.op_type}: position {place} is out of bounds for {size} tensors",
            f"positions go from {-size} to {size + extra - 1}"
            if size + extra
            else "the sequence is empty",
        )
    return place + size if place < 0 else place


@computes("SplitToSequence")
def split(node: NodeView, x: Array, sizes: Array | None = None) -> list[Array]:
    """Without sizes every slice is one long, and `keepdims` may remove the axis."""
    axis = node.attribute("axis")
    if not -x.ndim <= axis < x.ndim:
        raise node.fail(
            f"SplitToSequence: axis {axis} is out of bounds for {x.ndim} dimensions",
            f"axes go from {-x.ndim} to {x.ndim - 1}",
        )
    whole = x.shape[axis]
    if sizes is None and not node.attribute("keepdims"):
        return [np.asarray(np.take(x, place, axis)) for place in range(whole)]
    step = 1 if sizes is None else sizes
    if np.ndim(step):
        ends = np.cumsum(step)
        if np.min(step, initial=0) < 0 or ends[-1:].sum() != whole:
            raise node.fail(
                f"SplitToSequence: sizes {np.asarray(step).tolist()} for {whole} elements",
                "sizes are not negative, and their sum is the size of the axis",
            )
        return np.split(x, ends[:-1], axis)
    if (width := int(step)) < 1:
        raise node.fail(f"SplitToSequence: slices of size {width}", "give a positive size")
    return np.split(x, range(width, whole, width), axis) if whole else []


@computes("ConcatFromSequence")
def concat(node: NodeView, sequence: list[Array]) -> Array:
    """`new_axis` stacks the tensors; NumPy checks that they fit."""
    axis = node.integer("axis")
    join = np.stack if node.attribute("new_axis") else np.concatenate
    try:
        return join(sequence, axis=axis)
    except ValueError as error:
        shapes = ", ".join(sorted({str(list(np.shape(one))) for one in sequence})) or "none"
        raise node.fail(
            f"ConcatFromSequence: {error}",
            f"the tensors must fit along axis {axis}; their shapes: {shapes}",
        ) from error
