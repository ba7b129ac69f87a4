"""Which type does `f32[N, 3]` declare, and does the value that stands there have it?"""

from __future__ import annotations

from xdsl.dialects.builtin import TensorType, UnrankedTensorType
from xdsl.ir import Attribute, SSAValue

from popgraph.builder.dsl import literals
from popgraph.builder.dsl.scope import Failed
from popgraph.builder.dsl.source import Source
from popgraph.builder.dsl.tree import Name, Number, Type
from popgraph.dialects.onnx.inference import set_type
from popgraph.dialects.onnx.types import Dim, UnknownType, describe, dims, refined, tensor_type
from popgraph.support.shapes import Shape

_LARGEST = 1 << 40
"""Dimensions beyond this are a mistake: no such tensor fits into a computer."""


def declared_type(source: Source, type_: Type) -> Attribute:
    """The IR type; fails if the element type does not exist."""
    if not literals.check_dtype(source, type_.dtype):
        raise Failed
    if type_.dims is None:
        return tensor_type(type_.dtype.text, None)
    return tensor_type(type_.dtype.text, [_dim(source, dim) for dim in type_.dims])


def _dim(source: Source, dim: object) -> Dim:
    if isinstance(dim, Number):
        assert isinstance(dim.value, int)
        if dim.value > _LARGEST:
            source.mismatch(dim.span, f"a dimension of {dim.value} is too large")
            raise Failed
        return dim.value
    return dim.text if isinstance(dim, Name) else None


def static_type(source: Source, type_: Type, what: str) -> tuple[str, Shape]:
    """The dtype and the shape of a type that must not leave anything open."""
    declared_type(source, type_)
    for dim in type_.dims or ():
        if not isinstance(dim, Number):
            source.mismatch(dim.span, f"the shape of {what} must be numbers only")
            raise Failed
    if type_.dims is None:
        source.mismatch(type_.span, f"the shape of {what} must be numbers only")
        raise Failed
    return type_.dtype.text, tuple(int(dim.value) for dim in type_.dims)  # type: ignore[union-attr]


def check_declared(source: Source, name: str, type_: Type, value: SSAValue) -> None:
    """Fails unless `value` can have the declared type; from then on it is known to have it."""
    wanted = declared_type(source, type_)
    found = value.type
    if not _may_be(found, wanted):
        source.mismatch(
            type_.span,
            f"`{name}` is declared as {describe(wanted)}, but it is {describe(found)}",
            f"write `{name}: {describe(found)}`, or look at what makes it so",
        )
        raise Failed
    set_type(value, refined(found, wanted))


def _may_be(found: Attribute, wanted: Attribute) -> bool:
    if isinstance(found, UnknownType):
        return True
    if not isinstance(found, TensorType | UnrankedTensorType) or not isinstance(
        wanted, TensorType | UnrankedTensorType
    ):
        return False
    if found.element_type != wanted.element_type:
        return False
    mine, other = dims(found), dims(wanted)
    if mine is None or other is None:
        return True
    return len(mine) == len(other) and all(
        a is None or b is None or a == b for a, b in zip(mine, other, strict=True)
    )
