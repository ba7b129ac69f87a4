"""Evaluates attribute arguments of calls to the kinds that operators expect."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, StringAttr, i64
from xdsl.ir import Attribute

from popgraph.builder.pgraph.check.declared_types import declared_type, type_of
from popgraph.builder.pgraph.check.file_context import FileContext
from popgraph.builder.pgraph.check.operators import Operator
from popgraph.builder.pgraph.check.scope import Scope
from popgraph.builder.pgraph.lower.initial_values import SPARSE, call_of, sparse_value, tensor_value
from popgraph.builder.pgraph.syntax import literals
from popgraph.builder.pgraph.syntax.source import Failed, Source
from popgraph.builder.pgraph.syntax.tree import (
    Argument,
    Bytes,
    Call,
    Expression,
    Items,
    Missing,
    Name,
    Number,
    Text,
    Truth,
)
from popgraph.dialects.onnx.attributes import FloatsAttr, ManyAttr, TypeAttr
from popgraph.dialects.onnx.tensorproto import from_value
from popgraph.dialects.onnx.typeproto import type_attribute_of
from popgraph.dialects.onnx.types import NamesAttr
from popgraph.dialects.program import BytesAttr
from popgraph.support import dtypes

KINDS = {
    "INT": "an integer",
    "INTS": "a list of integers",
    "FLOAT": "a number",
    "FLOATS": "a list of numbers",
    "STRING": "a string",
    "STRINGS": "a list of strings",
    "TENSOR": "a tensor",
    "TENSORS": "a list of tensors",
    "SPARSE_TENSOR": "a sparse tensor",
    "SPARSE_TENSORS": "a list of sparse tensors",
    "TYPE_PROTO": "a type",
    "TYPE_PROTOS": "a list of types",
    "GRAPH": "a graph",
    "GRAPHS": "a list of graphs",
}
"""Kinds of attributes as named in messages; `INTS([])` states the kind of an ambiguous value."""

_EXAMPLES = {
    "INT": "`axis=-1`, `keepdims=true`, `to=f16`",
    "INTS": "`strides=[2, 2]`",
    "FLOAT": "`alpha=0.5`",
    "FLOATS": "`scales=[0.5, 2.0]`",
    "STRING": '`auto_pad="SAME_UPPER"`',
    "STRINGS": '`keys=["a", "b"]`',
    "TENSOR": "`value=f32([0.5, 1.5])`",
    "SPARSE_TENSOR": "`sparse_value=sparse(f32([1.5]), i64([[0, 1]]), [3, 4])`",
    "TYPE_PROTO": "`type=sequence(f32[N])`",
}

_GRAPHS = {
    "If": "`y = if c { y = a } else { y = b }`, or `then_branch=graph () -> y { y = a }`",
    "Loop": "`body=graph (i: i64, go: bool, x: f32) -> (go, y) { ... }`",
    "Scan": "`body=graph (sum: f32, x: f32) -> (sum_out, y) { ... }`",
}
"""Example graph attributes, by operator."""

_MAX_INT = (1 << 63) - 1


def of_kind(expression: Expression) -> tuple[str, Expression] | None:
    """The kind and the value of a form such as `INTS([])`."""
    match expression:
        case Call(path=path, arguments=[Argument(keyword=None, value=value)]) if (
            path.text in KINDS and not isinstance(value, Missing)
        ):
            return path.text, value
    return None


def attribute_value(
    context: FileContext, operator: Operator, name: Name, expression: Expression, scope: Scope
) -> object:
    """The value of an attribute, of the kind that the operator requires; fails otherwise."""
    kind = operator.kinds.get(name.text)
    if written := of_kind(expression):
        kind, expression = kind or written[0], written[1]
    if kind is None:
        kind = _kind_of(context.source, expression)
    value = _value(context, kind, expression, scope)
    if value is None:
        context.source.mismatch(
            expression.span,
            f"attribute `{name.text}` of {operator.shown} is {KINDS[kind]}",
            _GRAPHS.get(operator.op_type, "") if kind == "GRAPH" else _EXAMPLES.get(kind, ""),
        )
        raise Failed
    return value


def _value(context: FileContext, kind: str, expression: Expression, scope: Scope) -> object:
    """The attribute, or its Python value; None if the expression is of another kind."""
    if kind in _READERS:
        value = _READERS[kind](expression)
        empty = isinstance(value, list) and not value
        return _EMPTY[kind] if empty else value
    if kind.endswith("S"):
        if not isinstance(expression, Items):
            return None
        single = kind.removesuffix("S")
        values = [_value(context, single, item, scope) for item in expression.items]
        if not all(isinstance(one, Attribute) for one in values):
            return None
        return ManyAttr(StringAttr(kind), ArrayAttr(values))  # type: ignore[arg-type]
    match kind:
        case "TENSOR":
            array = tensor_value(context, expression, scope)
            return None if array is None else from_value(array, context.store)
        case "SPARSE_TENSOR":
            call = call_of(SPARSE, expression)
            return None if call is None else sparse_value(context, call, scope)
        case "TYPE_PROTO":
            return _type(context, expression, scope)
    return None


def _kind_of(source: Source, expression: Expression) -> str:
    """The kind of an attribute without schema, inferred from its spelling."""
    for kind in ("INT", "FLOAT", "STRING", "INTS", "FLOATS", "STRINGS"):
        if _READERS[kind](expression) is not None:
            return kind
    if call_of(SPARSE, expression):
        return "SPARSE_TENSOR"
    if isinstance(expression, Call) or literals.is_literal(expression):
        return "TENSOR"
    source.parse_error(
        expression.span,
        "an attribute must be a number, a string, a list or a literal tensor",
        "values of the graph are inputs, which come first and have no name",
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
    match literals.bits_of(expression):
        case Number(value=int() as bits) if bits < 1 << 32:
            return float(np.uint32(bits).view(np.float32))
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

_EMPTY: dict[str, Attribute] = {
    "INTS": DenseArrayBase.from_list(i64, []),
    "FLOATS": FloatsAttr.of([]),
    "STRINGS": NamesAttr(()),
}
"""Typed empty lists."""


def _type(context: FileContext, expression: Expression, scope: Scope) -> TypeAttr | None:
    """A type attribute; `sequence(f32[N])` was parsed as an expression."""
    if isinstance(expression, Bytes):
        return type_attribute_of(expression.value)
    written = type_of(expression)
    if written is None:
        return None
    return TypeAttr(declared_type(context.source, written, scope), BytesAttr(b""))
