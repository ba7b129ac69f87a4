"""Which Python value does an attribute of a call have?"""

from __future__ import annotations

from collections.abc import Callable

from popgraph.builder.dsl import literals
from popgraph.builder.dsl.declared_types import declared_type
from popgraph.builder.dsl.operators import Operator
from popgraph.builder.dsl.scope import Failed, Scope
from popgraph.builder.dsl.source import Source
from popgraph.builder.dsl.tree import (
    AnyType,
    Bytes,
    Call,
    Everything,
    Expression,
    Index,
    Items,
    Missing,
    Name,
    Number,
    OtherType,
    Slice,
    Text,
    Truth,
    Type,
)
from popgraph.dialects.onnx.attributes import TypeAttr
from popgraph.dialects.program import BytesAttr
from popgraph.support import dtypes

KINDS = {
    "INT": "a whole number",
    "INTS": "a list of whole numbers",
    "FLOAT": "a number",
    "FLOATS": "a list of numbers",
    "STRING": "a string",
    "STRINGS": "a list of strings",
    "TENSOR": "a tensor",
    "TYPE_PROTO": "a type",
}
"""What messages call each kind of attribute that can be written."""

_EXAMPLES = {
    "INT": "`axis=-1`, `keepdims=true`, `to=f16`",
    "INTS": "`strides=[2, 2]`",
    "FLOAT": "`alpha=0.5`",
    "FLOATS": "`scales=[0.5, 2.0]`",
    "STRING": '`auto_pad="SAME_UPPER"`',
    "STRINGS": '`keys=["a", "b"]`',
    "TENSOR": "`value=f32([0.5, 1.5])`",
    "TYPE_PROTO": "`type=sequence(f32[N])`",
}

_MAX_INT = (1 << 63) - 1


def attribute_value(
    source: Source, operator: Operator, name: Name, expression: Expression, scope: Scope
) -> object:
    """The value of an attribute, of the kind that the operator wants; fails if it is another."""
    kind = operator.kinds.get(name.text)
    if kind is None:
        kind = _kind_of(source, expression)
    if kind not in KINDS:
        source.parse_error(
            name.span,
            f"attribute `{name.text}` of {operator.shown} is a {kind.lower().replace('_', ' ')}, "
            "which .pgraph cannot say",
            "build this model with `popgraph.Builder` or as an ONNX file",
        )
        raise Failed
    match kind:
        case "TENSOR":
            value = _tensor(source, expression)
        case "TYPE_PROTO":
            value = _type(source, expression, scope)
        case _:
            value = _READERS[kind](expression)
    if value is None:
        source.mismatch(
            expression.span,
            f"attribute `{name.text}` of {operator.shown} is {KINDS[kind]}",
            _EXAMPLES[kind],
        )
        raise Failed
    return value


def _kind_of(source: Source, expression: Expression) -> str:
    """The kind of an attribute of an operator that has no schema, by how it is written."""
    for kind in ("INT", "FLOAT", "STRING", "INTS", "FLOATS", "STRINGS"):
        if _READERS[kind](expression) is not None:
            return kind
    if literals.typed_literal(expression) or literals.is_literal(expression):
        return "TENSOR"
    source.parse_error(
        expression.span,
        "an attribute is a number, a string, a list or a tensor that is written out",
        "values of the graph are inputs, which stand first and have no name",
    )
    raise Failed


def _int(expression: Expression) -> int | None:
    match expression:
        case Number(value=int() as value) if -_MAX_INT - 1 <= value <= _MAX_INT:
            return value
        case Truth():
            return int(expression.value)
        case Name(text=text) if text in dtypes.BY_NAME:
            return dtypes.BY_NAME[text].onnx
    return None


def _float(expression: Expression) -> float | None:
    return float(expression.value) if isinstance(expression, Number) else None


def _string(expression: Expression) -> str | bytes | None:
    return expression.value if isinstance(expression, Text | Bytes) else None


def _many(read: Callable[[Expression], object]) -> Callable[[Expression], object]:
    def read_all(expression: Expression) -> list[object] | None:
        if not isinstance(expression, Items):
            return None
        values = [read(item) for item in expression.items]
        return None if None in values else values

    return read_all


_READERS: dict[str, Callable[[Expression], object]] = {
    "INT": _int,
    "FLOAT": _float,
    "STRING": _string,
    "INTS": _many(_int),
    "FLOATS": _many(_float),
    "STRINGS": _many(_string),
}


def _tensor(source: Source, expression: Expression) -> object:
    typed = literals.typed_literal(expression)
    if typed is None and not literals.is_literal(expression):
        return None
    dtype = typed[0].text if typed else literals.default_dtype(expression)
    return literals.array_of(source, typed[1] if typed else expression, dtype)


def _type(source: Source, expression: Expression, scope: Scope) -> object:
    """An attribute that is a type: `sequence(f32[N])` is read as an expression at first."""
    written = type_of(expression)
    if written is None:
        return None
    return TypeAttr(declared_type(source, written, scope), BytesAttr(b""))


def type_of(expression: Expression) -> AnyType | None:
    """The type that an expression spells, if it spells one."""
    match expression:
        case Name():
            return Type(expression.span, expression, ())
        case Index(operand=Name() as dtype, subscripts=[Everything()]):
            return Type(expression.span, dtype, None)
        case Index(operand=Name() as dtype, subscripts=subscripts):
            dims = tuple(one for one in subscripts if not isinstance(one, _NO_DIM))
            return Type(expression.span, dtype, dims) if len(dims) == len(subscripts) else None
        case Call(path=path, arguments=arguments) if len(path.parts) == 1:
            parts = [_part(one.value) for one in arguments if one.keyword is None]
            if None in parts or len(parts) < len(arguments):
                return None
            return OtherType(expression.span, path.parts[0], tuple(filter(None, parts)))
        case _:
            return None


_NO_DIM = (Slice, Everything, Missing)


def _part(value: Expression | Missing) -> AnyType | Text | None:
    if isinstance(value, Missing | Text):
        return None if isinstance(value, Missing) else value
    return type_of(value)
