"""Evaluates operators on sequences of tensors, which are lists of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from popgraph.dialects.onnx.evaluation.given import Given
from popgraph.dialects.onnx.evaluation.registry import computes
from popgraph.support.arrays import Array


@computes("SequenceConstruct")
def construct(given: Given, *tensors: Array) -> list[Array]:
    return list(tensors)


@computes("SequenceEmpty")
def empty(given: Given) -> list[Array]:
    return []


@computes("SequenceLength")
def length(given: Given, sequence: list[Any]) -> Array:
    return np.array(len(sequence), np.int64)


@computes("SequenceAt")
def at(given: Given, sequence: list[Any], position: Array) -> Any:
    return sequence[_position(given, position, len(sequence))]


@computes("SequenceErase")
def erase(given: Given, sequence: list[Any], position: Array | None = None) -> list[Any]:
    """Without a position, the last tensor goes."""
    place = _position(given, np.array(-1) if position is None else position, len(sequence))
    return sequence[:place] + sequence[place + 1 :]


@computes("SequenceInsert")
def insert(
    given: Given, sequence: list[Any], tensor: Any, position: Array | None = None
) -> list[Any]:
    """
    Negative positions count from the last tensor: -1 is the place before it.

    Without a position the tensor goes to the end. onnx.reference puts it in front if the position
    is the end.
    """
    size = len(sequence)
    place = size if position is None else _position(given, position, size, extra=1)
    return [*sequence[:place], tensor, *sequence[place:]]


def _position(given: Given, position: Array, size: int, extra: int = 0) -> int:
    """A position counted from the start; up to `extra` may follow the last tensor."""
    place = int(np.reshape(position, ()))
    if not -size <= place < size + extra:
        raise given.fail(
            f"{given.op.op_type}: position {place} is out of bounds for {size} tensors",
            f"positions go from {-size} to {size + extra - 1}"
            if size + extra
            else "the sequence is empty",
        )
    return place + size if place < 0 else place


@computes("SplitToSequence")
def split(given: Given, x: Array, sizes: Array | None = None) -> list[Array]:
    """Without sizes every slice is one long, and `keepdims` may remove the axis."""
    axis = given["axis"]
    if not -x.ndim <= axis < x.ndim:
        raise given.fail(
            f"SplitToSequence: axis {axis} is out of bounds for {x.ndim} dimensions",
            f"axes go from {-x.ndim} to {x.ndim - 1}",
        )
    whole = x.shape[axis]
    if sizes is None and not given["keepdims"]:
        return [np.asarray(np.take(x, place, axis)) for place in range(whole)]
    step = 1 if sizes is None else sizes
    if np.ndim(step):
        ends = np.cumsum(step)
        if np.min(step, initial=0) < 0 or ends[-1:].sum() != whole:
            raise given.fail(
                f"SplitToSequence: sizes {np.asarray(step).tolist()} for {whole} elements",
                "sizes are not negative, and their sum is the size of the axis",
            )
        return np.split(x, ends[:-1], axis)
    if (width := int(step)) < 1:
        raise given.fail(f"SplitToSequence: slices of size {width}", "give a positive size")
    return np.split(x, range(width, whole, width), axis) if whole else []


@computes("ConcatFromSequence")
def concat(given: Given, sequence: list[Array]) -> Array:
    """`new_axis` stacks the tensors; NumPy checks that they fit."""
    join = np.stack if given["new_axis"] else np.concatenate
    try:
        return join(sequence, axis=given["axis"])
    except ValueError as error:
        shapes = ", ".join(sorted({str(list(np.shape(one))) for one in sequence})) or "none"
        raise given.fail(
            f"ConcatFromSequence: {error}",
            f"the tensors must fit along axis {given['axis']}; their shapes: {shapes}",
        ) from error
