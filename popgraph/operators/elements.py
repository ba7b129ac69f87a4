"""
Sequences and optionals while a graph is lowered: lists of values that are known by their number.

    s = SequenceConstruct(a, b); y = SequenceAt(s, 1)  ->  s = elements(a, b); y = b

No operation computes a sequence: whatever reads one takes its elements. An optional is what it
holds, or nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from xdsl.dialects.builtin import ArrayAttr, NoneType, TupleType
from xdsl.ir import Attribute, SSAValue, TypeAttribute
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import Pure

from popgraph.dialects.graphcore.base import Operand
from popgraph.dialects.onnx.types import STRING, describe


@irdl_op_definition
class ElementsOp(IRDLOperation):
    """The elements of a sequence, or the nothing that an empty optional is; it is never kept."""

    name = "onnx.elements"
    elements = var_operand_def()
    held = result_def()
    traits = traits_def(Pure())

    def __init__(self, elements: Sequence[SSAValue], type_: Attribute) -> None:
        super().__init__(operands=[elements], result_types=[type_])


def sequence(elements: Iterable[Operand]) -> SSAValue:
    """A sequence of these tensors."""
    values = [SSAValue.get(one) for one in elements]
    types = [cast(TypeAttribute, one.type) for one in values]
    return ElementsOp(values, TupleType(ArrayAttr(types))).held


def nothing() -> SSAValue:
    """An empty optional."""
    return ElementsOp([], NoneType()).held


def elements_of(value: SSAValue) -> Sequence[SSAValue]:
    """The tensors of a sequence."""
    assert isinstance(value.owner, ElementsOp), "ONNX says what is a sequence"
    return value.owner.elements


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
    """These values, and the tensors of a sequence in its place."""
    return [one for value in values for one in (elements_of(value) if is_held(value) else [value])]


def packed(tensors: Iterable[SSAValue], like: Iterable[SSAValue]) -> list[SSAValue]:
    """Values made of these tensors, with a sequence wherever `like` has one."""
    given = iter(tensors)
    return [_packed(given, value) for value in like]


def _packed(tensors: Iterator[SSAValue], like: SSAValue) -> SSAValue:
    if not is_held(like):
        return next(tensors)
    return ElementsOp([next(tensors) for _ in elements_of(like)], like.type).held


def described(value: SSAValue) -> str:
    """The type of a value in a message: `f32[2, 3]`, `a sequence of 2 tensors`."""
    if not is_held(value):
        return describe(value.type)
    if is_strings(value):
        return "strings"
    return "nothing" if is_nothing(value) else f"a sequence of {len(elements_of(value))} tensors"
