"""ONNX's operators on sequences and optionals; lengths are known at compile time."""

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
from popgraph.operators.lookups import i64_scalar
from popgraph.operators.movement import reshaped, sliced
from popgraph.operators.node import Node
from popgraph.operators.record import Lowered, computes, lowers
from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.support.errors import NeedsHostError, TypeMismatchError
from popgraph.support.shapes import Shape

I64 = dtypes.BY_NAME["i64"]


def _where_shapes_differ(index: int) -> Callable[[OnnxOp], Sequence[int]]:
    """A position is structural unless all tensors of the sequence have one known shape."""

    def found(op: OnnxOp) -> Sequence[int]:
        shapes = set().union(*map(_shapes, op.operands[:index]))
        return () if len(shapes) == 1 and None not in shapes else (index,)

    return found


def _shapes(value: SSAValue, assumed: Collection[SSAValue] = ()) -> set[Shape | None]:
    """
    The shapes of a sequence's tensors, or of a tensor; None is an unknown shape.

    The type does not show them if tensors are appended to a sequence that is empty at first, so the
    operators are followed. `assumed` are states of enclosing loops: they have the shapes of their
    initial values and results.
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
    """An element; if the position is computed, a row of all elements stacked."""
    size = size_of(node[0])
    place = _known_position(node, 1, size)
    if place is not None:
        return element(node[0], place)
    rows = _stacked(node, node[0])
    return gc.GatherOp(rows, run_time_position(node, 1, size), axis=0)


@lowers("SequenceErase", structural=_where_shapes_differ(1))
def erase(node: Node) -> Lowered:
    """Removes an element, by default the last one."""
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
    """Inserts before a position, by default at the end; -1 is before the last element."""
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
    return _reordered(node, longer, gc.WhereOp(is_new, i64_scalar(node, size), old))


@lowers("SplitToSequence", structural=[1])
def split(node: Node) -> Lowered:
    """Splits an axis; without sizes, slices have size 1, and `keepdims` 0 drops the axis."""
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
    """The size of each slice of an axis; if one size is given, the last slice may be smaller."""
    if node.optional(1) is None:
        return [1] * size
    sizes = node.numbers(1, "the sizes of slices")
    if shape_of(node[1]):
        if min(sizes, default=0) < 0 or sum(sizes) != size:
            raise TypeMismatchError(
                f"the sizes {list(sizes)} do not split {size} elements",
                hint="give sizes of 0 or more that add up to the size of the axis",
            )
        return sizes
    (width,) = sizes
    if width < 1:
        raise TypeMismatchError(f"the size of slices is {width}", hint="give a positive size")
    return [min(width, size - start) for start in range(0, size, width)]


@lowers("ConcatFromSequence")
def concat(node: Node) -> Lowered:
    if not size_of(node[0]):
        raise TypeMismatchError("ConcatFromSequence cannot join an empty sequence")
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
    """True for a tensor, a sequence or a filled optional; False for an absent input."""
    return node.literal(np.array(node.optional(0) is not None and not is_nothing(node[0])))


@lowers("OptionalGetElement")
def optional_get_element(node: Node) -> Lowered:
    if is_nothing(node[0]):
        raise NeedsHostError(
            "the optional of OptionalGetElement is empty",
            hint="check OptionalHasElement first, or give the optional a value",
        )
    return node[0]


# Positions


def _known_position(
    node: Node, index: int, size: int, *, extra: int = 0, absent: int | None = None
) -> int | None:
    """A position counted from the start; None if it is only known at run time."""
    given = node.optional(index)
    known = None if given is None else node.lowering.array(given)
    if given is not None and known is None:
        return None
    place = int(known.reshape(-1)[0]) if known is not None else absent
    assert place is not None, "a position without a default is required"
    if not -size <= place < size + extra:
        raise NeedsHostError(
            f"position {place} is out of bounds for {size} tensors",
            hint=f"use {-size} to {size + extra - 1}" if size else "the sequence is empty",
        )
    return place + size if place < 0 else place


def run_time_position(node: Node, index: int, size: int, extra: int = 0) -> SSAValue:
    """A position counted from the start, at run time; it may exceed the last by `extra`."""
    given = SSAValue.get(cast(reshaped(node[index], ()), I64))
    low, last = -size, size + extra - 1
    if node.lowering.checked:
        place = node.op.where()
        given = gc.CheckIndicesOp(
            given, low=(low,), last=(last,), what="position", place=place
        ).result
    else:
        given = gc.MinOp(gc.MaxOp(given, i64_scalar(node, low)), i64_scalar(node, last)).result
    negative = gc.CompareOp(given, i64_scalar(node, 0), predicate="lt")
    return gc.WhereOp(negative, gc.AddOp(given, i64_scalar(node, size)), given).result


def _stacked(node: Node, held: SSAValue) -> SSAValue:
    """All elements stacked as rows of one tensor, to be indexed at run time."""
    if len(set(types_of([held]))) != 1:
        raise NeedsHostError(
            f"a position in a sequence of {size_of(held)} tensors of different shapes "
            "depends on data",
            hint="make the position constant, or pad the tensors to one shape",
        )
    return joined(held, 0, is_new=True)


def _reordered(node: Node, held: SSAValue, order: Operand) -> SSAValue:
    """A sequence of some of the tensors, in an order that is only known at run time."""
    return sequence([rows_as_elements(gc.GatherOp(_stacked(node, held), order, axis=0))])


# Evaluation in Python, where sequences are lists of arrays


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
    """Removes a tensor, by default the last one."""
    place = _host_position(node, np.array(-1) if position is None else position, len(sequence))
    return sequence[:place] + sequence[place + 1 :]


@computes("SequenceInsert")
def compute_insert(
    node: NodeView, sequence: list[Any], tensor: Any, position: Array | None = None
) -> list[Any]:
    """
    Inserts before a position, by default at the end; -1 is before the last tensor.

    onnx.reference inserts at the front if the position is the end.
    """
    size = len(sequence)
    place = size if position is None else _host_position(node, position, size, extra=1)
    return [*sequence[:place], tensor, *sequence[place:]]


def _host_position(node: NodeView, position: Array, size: int, extra: int = 0) -> int:
    """A position counted from the start; it may exceed the last by `extra`."""
    place = int(np.reshape(position, ()))
    if not -size <= place < size + extra:
        raise node.fail(
            f"{node.op.op_type}: position {place} is out of bounds for {size} tensors",
            f"use {-size} to {size + extra - 1}" if size + extra else "the sequence is empty",
        )
    return place + size if place < 0 else place


@computes("SplitToSequence")
def compute_split(node: NodeView, x: Array, sizes: Array | None = None) -> list[Array]:
    """Splits an axis; without sizes, slices have size 1, and `keepdims` 0 drops the axis."""
    axis = node.attribute("axis")
    if not -x.ndim <= axis < x.ndim:
        raise node.fail(
            f"SplitToSequence: axis {axis} is out of bounds for {x.ndim} dimensions",
            f"use {-x.ndim} to {x.ndim - 1}",
        )
    whole = x.shape[axis]
    if sizes is None and not node.attribute("keepdims"):
        return [np.asarray(np.take(x, place, axis)) for place in range(whole)]
    step = 1 if sizes is None else sizes
    if np.ndim(step):
        ends = np.cumsum(step)
        if np.min(step, initial=0) < 0 or ends[-1:].sum() != whole:
            raise node.fail(
                f"SplitToSequence: the sizes {np.asarray(step).tolist()} do not split {whole} "
                "elements",
                "give sizes of 0 or more that add up to the size of the axis",
            )
        return np.split(x, ends[:-1], axis)
    if (width := int(step)) < 1:
        raise node.fail(f"SplitToSequence: the size of slices is {width}", "give a positive size")
    return np.split(x, range(width, whole, width), axis) if whole else []


@computes("ConcatFromSequence")
def compute_concat(node: NodeView, sequence: list[Array]) -> Array:
    """Concatenates the tensors, or stacks them with `new_axis`; NumPy checks their shapes."""
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
