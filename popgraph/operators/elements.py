"""
Sequences and optionals during lowering: lists of values, whose length is known.

    s = SequenceConstruct(a, b); y = SequenceAt(s, 1)  ->  s = elements(a, b); y = b

No operation computes a sequence: its readers take the elements. Elements that a loop appends stay
rows of one tensor until one of them is read. An optional is its element, or nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from xdsl.dialects.builtin import ArrayAttr, NoneType, TensorType, TupleType
from xdsl.ir import Attribute, SSAValue, TypeAttribute
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import Pure

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, dtype_of, shape_of
from popgraph.dialects.onnx.types import STRING, describe
from popgraph.operators.movement import reshaped, sliced
from popgraph.support.dtypes import DType
from popgraph.support.errors import TypeMismatchError


@irdl_op_definition
class ElementsOp(IRDLOperation):
    """The elements of a sequence, or an empty optional; erased before lowering ends."""

    name = "onnx.elements"
    elements = var_operand_def()
    held = result_def()
    traits = traits_def(Pure())

    def __init__(self, elements: Sequence[SSAValue], type_: Attribute) -> None:
        super().__init__(operands=[elements], result_types=[type_])


@irdl_op_definition
class RowsOp(IRDLOperation):
    """All rows of a tensor, as one operand of `onnx.elements`."""

    name = "onnx.rows"
    rows = operand_def(TensorType)
    held = result_def(TupleType)
    traits = traits_def(Pure())

    def __init__(self, rows: SSAValue) -> None:
        count, *shape = shape_of(rows)
        row = TensorType(cast(TensorType[Attribute], rows.type).element_type, shape)
        super().__init__(operands=[rows], result_types=[TupleType(ArrayAttr([row] * count))])


def sequence(parts: Iterable[Operand]) -> SSAValue:
    """A sequence of these tensors; a part may be `rows_as_elements`."""
    values = [SSAValue.get(one) for one in parts]
    types = [cast(TypeAttribute, type_) for type_ in types_of(values)]
    return ElementsOp(values, TupleType(ArrayAttr(types))).held


def rows_as_elements(rows: Operand) -> SSAValue:
    """All rows of a tensor, as one part of a sequence."""
    return RowsOp(SSAValue.get(rows)).held


def extended(value: SSAValue, parts: Sequence[SSAValue]) -> SSAValue:
    """A sequence with parts appended."""
    return inserted(value, size_of(value), parts)


def inserted(value: SSAValue, place: int, parts: Sequence[SSAValue]) -> SSAValue:
    """A sequence with parts inserted at an index; an error if element types differ."""
    for first in map(_dtype_of, parts_of(value)[:1]):
        for other in map(_dtype_of, parts):
            if other != first:
                raise TypeMismatchError(
                    f"a tensor of {other.name} is inserted into a sequence of {first.name}",
                    hint="convert it with Cast: a sequence has one element type",
                )
    return sequence([*parts_of(value, 0, place), *parts, *parts_of(value, place)])


def joined(value: SSAValue, axis: int, *, is_new: bool) -> SSAValue:
    """Concatenates the tensors of a sequence along an axis, or stacks them along a new one."""
    parts = [_along(part, axis, is_new) for part in parts_of(value)]
    return gc.ConcatOp(parts, axis=axis).result if len(parts) > 1 else parts[0]


def _along(part: SSAValue, axis: int, is_new: bool) -> SSAValue:
    """A part of a sequence, ready to be concatenated: rows are moved to `axis`."""
    rows = rows_in(part)
    if rows is None:
        return _with_axis(part, axis) if is_new else part
    count, *shape = shape_of(rows)
    order = [*range(1, axis + 1), 0, *range(axis + 1, len(shape) + 1)]
    moved = gc.TransposeOp(rows, perm=order).result if axis else rows
    if is_new:
        return moved
    return reshaped(moved, (*shape[:axis], count * shape[axis], *shape[axis + 1 :]))


def _with_axis(value: SSAValue, axis: int) -> SSAValue:
    """A tensor with a new axis of size 1."""
    shape = shape_of(value)
    return reshaped(value, (*shape[:axis], 1, *shape[axis:]))


def nothing() -> SSAValue:
    """An empty optional."""
    return ElementsOp([], NoneType()).held


def elements_of(value: SSAValue) -> Sequence[SSAValue]:
    """The tensors of a sequence."""
    return [one for part in parts_of(value) for one in _separated(part)]


def element(value: SSAValue, place: int) -> SSAValue:
    """One of the tensors of a sequence."""
    (part,) = parts_of(value, place, place + 1)
    (found,) = _separated(part)
    return found


def parts_of(value: SSAValue, start: int = 0, end: int | None = None) -> list[SSAValue]:
    """The elements from `start` to `end`; rows of one tensor stay one part."""
    assert isinstance(value.owner, ElementsOp), "ONNX says what is a sequence"
    found, end = list[SSAValue](), size_of(value) if end is None else end
    for part in value.owner.elements:
        count = len(types_of([part]))
        low, high = max(start, 0), min(end, count)
        if low < high:
            rows = rows_in(part)
            is_whole = high - low == count
            found.append(part if rows is None or is_whole else _rows_between(rows, low, high))
        start, end = start - count, end - count
    return found


def rows_in(part: SSAValue) -> SSAValue | None:
    """The tensor whose rows are a part of a sequence; None if the part is a single element."""
    return part.owner.rows if isinstance(part.owner, RowsOp) else None


def size_of(value: SSAValue) -> int:
    """The number of tensors of a sequence."""
    return len(types_of([value]))


def _separated(part: SSAValue) -> list[SSAValue]:
    """The elements of a part."""
    rows = rows_in(part)
    if rows is None:
        return [part]
    count, *shape = shape_of(rows)
    return [reshaped(sliced(rows, {0: (at, 1, 1)}), shape) for at in range(count)]


def _rows_between(rows: SSAValue, start: int, end: int) -> SSAValue:
    return rows_as_elements(sliced(rows, {0: (start, end - start, 1)}))


def _dtype_of(part: SSAValue) -> DType:
    rows = rows_in(part)
    return dtype_of(part if rows is None else rows)


def is_nothing(value: SSAValue) -> bool:
    return isinstance(value.type, NoneType)


def strings(codes: Operand) -> SSAValue:
    """Strings, by their code points along a last axis."""
    return ElementsOp([SSAValue.get(codes)], STRING).held


def is_strings(value: SSAValue) -> bool:
    return value.type == STRING


def codes_of(value: SSAValue) -> SSAValue:
    """The code points of strings."""
    (codes,) = elements_of(value)
    return codes


def is_held(value: SSAValue) -> bool:
    """Whether a value is a sequence or an empty optional, which no operation computes."""
    return isinstance(value.owner, ElementsOp)


def flat(values: Iterable[SSAValue]) -> list[SSAValue]:
    """The values, with every sequence replaced by its tensors."""
    return [one for value in values for one in (elements_of(value) if is_held(value) else [value])]


def types_of(values: Iterable[SSAValue]) -> list[Attribute]:
    """The types of `flat(values)`, without building operations."""
    return [type_ for value in values for type_ in _types_of(value)]


def _types_of(value: SSAValue) -> Iterable[Attribute]:
    if isinstance(value.type, TupleType):
        return value.type.types
    elements = value.owner.elements if isinstance(value.owner, ElementsOp) else [value]
    return [one.type for one in elements]


def packed(tensors: Iterable[SSAValue], like: Iterable[SSAValue]) -> list[SSAValue]:
    """The inverse of `flat`: tensors regrouped into sequences wherever `like` has one."""
    given = iter(tensors)
    return [_packed(given, value) for value in like]


def _packed(tensors: Iterator[SSAValue], like: SSAValue) -> SSAValue:
    if not is_held(like):
        return next(tensors)
    return ElementsOp([next(tensors) for _ in types_of([like])], like.type).held


def described(value: SSAValue) -> str:
    """The type of a value in a message: `f32[2, 3]`, `a sequence of 2 tensors`."""
    if not is_held(value):
        return describe(value.type)
    if is_strings(value):
        return "strings"
    return "nothing" if is_nothing(value) else f"a sequence of {size_of(value)} tensors"
