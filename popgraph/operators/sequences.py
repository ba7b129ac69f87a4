"""Lowers ONNX's operators on sequences and optionals: all but the elements is known already."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import accumulate, islice, pairwise
from typing import Any

import numpy as np
from xdsl.dialects.builtin import TensorType
from xdsl.ir import SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, shape_of
from popgraph.dialects.onnx import OnnxOp
from popgraph.dialects.onnx.schema_op import SchemaOp
from popgraph.dialects.onnx.types import SeqType, static_shape
from popgraph.dialects.onnx.view import NodeView
from popgraph.operators.arithmetic import cast
from popgraph.operators.elements import (
    element,
    inserted,
    is_nothing,
    joined,
    nothing,
    parts_of,
    rows_as_elements,
    sequence,
    size_of,
    types_of,
)
from popgraph.operators.lookups import whole
from popgraph.operators.movement import reshaped, sliced
from popgraph.operators.node import Node
from popgraph.operators.record import Lowered, computes, lowers
from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.support.errors import NeedsHostError, TypeMismatchError
from popgraph.support.shapes import Shape

I64 = dtypes.BY_NAME["i64"]


def _where_shapes_differ(index: int) -> Callable[[OnnxOp], Sequence[int]]:
    """A position decides the structure, unless all tensors that there are have one shape."""

    def found(op: OnnxOp) -> Sequence[int]:
        shapes = set().union(*map(_shapes, op.operands[:index]))
        return () if len(shapes) == 1 and None not in shapes else (index,)

    return found


def _shapes(value: SSAValue, assumed: Collection[SSAValue] = ()) -> set[Shape | None]:
    """
    The shapes of the tensors of a sequence; a tensor is one of them.

    A type alone does not say them if tensors are appended to a sequence that is empty at first.
    `assumed` are the states of loops around it, which have no other shapes than their results.
    """
    found = set[Shape | None]()
    while value not in assumed:
        shape, op = static_shape(getattr(value.type, "element", value.type)), value.owner
        is_unknown = shape is None and isinstance(value.type, SeqType)
        if not is_unknown or not isinstance(op, SchemaOp) or op.domain:
            return {*found, shape}
        match op.op_type:
            case "SequenceEmpty":
                return found
            case "SequenceInsert":
                found.add(static_shape(op.operands[1].type))
                value = op.operands[0]
            case "SequenceErase" | "Identity":
                value = op.operands[0]
            case "Loop":
                (body,), at = op.graphs()["body"], op.output_values().index(value)
                states = zip(
                    op.input_values()[2:], body.block.args[2:], body.yielded[1:], strict=False
                )
                first, argument, new = next(islice(states, at, None), (None, None, None))
                if first is None or argument is None or new is None:
                    return {None}
                found |= _shapes(new, {argument, *assumed})
                value = first
            case _:
                return {None}
    return found


@lowers("SequenceConstruct")
def construct(node: Node) -> Lowered:
    return sequence(node.inputs)


@lowers("SequenceEmpty")
def empty(node: Node) -> Lowered:
    return sequence([])


@lowers("SequenceLength")
def length(node: Node) -> Lowered:
    return node.literal(np.array(size_of(node[0]), np.int64))


@lowers("SequenceAt", structural=_where_shapes_differ(1))
def at(node: Node) -> Lowered:
    """One of the elements; where the position is computed, a row of all of them."""
    size = size_of(node[0])
    place = _known_position(node, 1, size)
    if place is not None:
        return element(node[0], place)
    rows = _stacked(node, node[0])
    return gc.GatherOp(rows, run_time_position(node, 1, size), axis=0)


@lowers("SequenceErase", structural=_where_shapes_differ(1))
def erase(node: Node) -> Lowered:
    """Without a position, the last element goes."""
    size = size_of(node[0])
    place = _known_position(node, 1, size, absent=-1)
    if place is not None:
        return sequence([*parts_of(node[0], 0, place), *parts_of(node[0], place + 1)])
    position = run_time_position(node, 1, size)
    order = node.literal(np.arange(size - 1))
    moved = gc.CompareOp(order, position, predicate="ge")
    return _reordered(node, node[0], gc.AddOp(order, cast(moved, I64)))


@lowers("SequenceInsert", structural=_where_shapes_differ(2))
def insert(node: Node) -> Lowered:
    """Without a position the tensor goes to the end; -1 is the place before the last one."""
    size = size_of(node[0])
    place = _known_position(node, 2, size, extra=1, absent=size)
    longer = inserted(node[0], size if place is None else place, [node[1]])
    if place is not None:
        return longer
    position = run_time_position(node, 2, size, extra=1)
    order = node.literal(np.arange(size + 1))
    moved = cast(gc.CompareOp(order, position, predicate="gt"), I64)
    is_new = gc.CompareOp(order, position, predicate="eq")
    old = gc.SubOp(order, moved)
    return _reordered(node, longer, gc.WhereOp(is_new, whole(node, size), old))


@lowers("SplitToSequence", structural=[1])
def split(node: Node) -> Lowered:
    """Without sizes every slice is one long, and `keepdims` may remove the axis."""
    axis = node.axis(node.integer("axis"))
    size = node.shape[axis]
    parts = _parts(node, size)
    slices = [
        SSAValue.get(sliced(node[0], {axis: (start, end - start, 1)}))
        for start, end in pairwise(accumulate(parts, initial=0))
    ]
    if node.optional(1) is None and not node.integer("keepdims", 1):
        shape = [*node.shape[:axis], *node.shape[axis + 1 :]]
        return sequence([reshaped(one, shape) for one in slices])
    return sequence(slices)


def _parts(node: Node, size: int) -> Sequence[int]:
    """How long each slice of an axis is; of one size for all, the last one may be shorter."""
    if node.optional(1) is None:
        return [1] * size
    sizes = node.numbers(1, "the sizes of slices")
    if shape_of(node[1]):
        if min(sizes, default=0) < 0 or sum(sizes) != size:
            raise TypeMismatchError(
                f"sizes {list(sizes)} for {size} elements",
                hint="sizes are not negative, and their sum is the size of the axis",
            )
        return sizes
    (width,) = sizes
    if width < 1:
        raise TypeMismatchError(f"slices of size {width}", hint="give a positive size")
    return [min(width, size - start) for start in range(0, size, width)]


@lowers("ConcatFromSequence")
def concat(node: Node) -> Lowered:
    if not size_of(node[0]):
        raise TypeMismatchError("an empty sequence has nothing to join")
    is_new = bool(node.integer("new_axis"))
    first = types_of([node[0]])[0]
    assert isinstance(first, TensorType)
    axis = node.axis(node.integer("axis"), len(first.get_shape()) + is_new)
    return joined(node[0], axis, is_new=is_new)


# Optionals


@lowers("Optional")
def optional(node: Node) -> Lowered:
    return nothing() if node.optional(0) is None else node[0]


@lowers("OptionalHasElement")
def optional_has_element(node: Node) -> Lowered:
    """Of a tensor or a sequence, which is there, or of nothing."""
    return node.literal(np.array(node.optional(0) is not None and not is_nothing(node[0])))


@lowers("OptionalGetElement")
def optional_get_element(node: Node) -> Lowered:
    if is_nothing(node[0]):
        raise NeedsHostError(
            "OptionalGetElement has nothing to get",
            hint="ask OptionalHasElement first, or give the optional a value",
        )
    return node[0]


# Positions


def _known_position(
    node: Node, index: int, size: int, *, extra: int = 0, absent: int | None = None
) -> int | None:
    """A position counted from the start; None if it is known at run time only."""
    given = node.optional(index)
    known = None if given is None else node.lowering.array(given)
    if given is not None and known is None:
        return None
    place = int(known.reshape(-1)[0]) if known is not None else absent
    assert place is not None, "only where a default is, a position may be absent"
    if not -size <= place < size + extra:
        raise NeedsHostError(
            f"position {place} is out of bounds for {size} tensors",
            hint=f"positions go from {-size} to {size + extra - 1}" if size else "it is empty",
        )
    return place + size if place < 0 else place


def run_time_position(node: Node, index: int, size: int, extra: int = 0) -> SSAValue:
    """The same at run time; up to `extra` may follow the last tensor."""
    given = SSAValue.get(cast(reshaped(node[index], ()), I64))
    low, last = -size, size + extra - 1
    if node.lowering.checked:
        place = node.op.where()
        given = gc.CheckIndicesOp(
            given, low=(low,), last=(last,), what="position", place=place
        ).result
    else:
        given = gc.MinOp(gc.MaxOp(given, whole(node, low)), whole(node, last)).result
    negative = gc.CompareOp(given, whole(node, 0), predicate="lt")
    return gc.WhereOp(negative, gc.AddOp(given, whole(node, size)), given).result


def _stacked(node: Node, held: SSAValue) -> SSAValue:
    """All elements as rows of one tensor: which one is wanted is known at run time."""
    if len(set(types_of([held]))) != 1:
        raise NeedsHostError(
            f"data decide a position in a sequence of {size_of(held)} tensors "
            "that are not all of one shape",
            hint="make the position constant, or pad the tensors to one shape",
        )
    return joined(held, 0, is_new=True)


def _reordered(node: Node, held: SSAValue, order: Operand) -> SSAValue:
    """A sequence of some of these tensors, in an order that is known at run time."""
    return sequence([rows_as_elements(gc.GatherOp(_stacked(node, held), order, axis=0))])


# In Python, sequences are lists of arrays


@computes("SequenceConstruct")
def compute_construct(node: NodeView, *tensors: Array) -> list[Array]:
    return list(tensors)


@computes("SequenceEmpty")
def compute_empty(node: NodeView) -> list[Array]:
    return []


@computes("SequenceLength")
def compute_length(node: NodeView, sequence: list[Any]) -> Array:
    return np.array(len(sequence), np.int64)


@computes("SequenceAt")
def compute_at(node: NodeView, sequence: list[Any], position: Array) -> Any:
    return sequence[_host_position(node, position, len(sequence))]


@computes("SequenceErase")
def compute_erase(node: NodeView, sequence: list[Any], position: Array | None = None) -> list[Any]:
    """Without a position, the last tensor goes."""
    place = _host_position(node, np.array(-1) if position is None else position, len(sequence))
    return sequence[:place] + sequence[place + 1 :]


@computes("SequenceInsert")
def compute_insert(
    node: NodeView, sequence: list[Any], tensor: Any, position: Array | None = None
) -> list[Any]:
    """
    Negative positions count from the last tensor: -1 is the place before it.

    Without a position the tensor goes to the end. onnx.reference puts it in front if the position
    is the end.
    """
    size = len(sequence)
    place = size if position is None else _host_position(node, position, size, extra=1)
    return [*sequence[:place], tensor, *sequence[place:]]


def _host_position(node: NodeView, position: Array, size: int, extra: int = 0) -> int:
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
def compute_split(node: NodeView, x: Array, sizes: Array | None = None) -> list[Array]:
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
def compute_concat(node: NodeView, sequence: list[Array]) -> Array:
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
