"""Lowers literals such as `[1, 2]` and `f16(0.5)` to constants of a fitting element type."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from popgraph.builder.pgraph.check.operators import Operator
from popgraph.builder.pgraph.lower.context import GraphContext
from popgraph.builder.pgraph.lower.nodes import add_constant
from popgraph.builder.pgraph.lower.value_names import next_step
from popgraph.builder.pgraph.syntax.literals import (
    array_of,
    default_dtype,
    is_literal,
    typed_literal,
)
from popgraph.builder.pgraph.syntax.source import Failed
from popgraph.builder.pgraph.syntax.tree import Expression
from popgraph.dialects.onnx.types import describe


def lower_literal(
    context: GraphContext, expression: Expression, dtype: str | None, name: str | None
) -> SSAValue:
    """Lowers a literal to a constant; without a `name`, it is an intermediate value."""
    typed = typed_literal(expression)
    if typed is None and not is_literal(expression):
        context.source.parse_error(
            expression.span,
            "a list holds numbers, strings and lists only",
            "`Concat(a, b, axis=0)` joins values",
        )
        raise Failed
    if typed is not None:
        dtype, expression = typed[0].text, typed[1]
    array = array_of(context.source, expression, dtype or default_dtype(expression))
    return add_constant(context, array, name or next_step(context), expression.span)


def literal_dtype(
    operator: Operator,
    index: int,
    values: Sequence[SSAValue | None],
    expression: Expression,
) -> str:
    """The element type of a literal input: that of related inputs, or an allowed one."""
    for other in operator.like(index):
        value = values[other] if other < len(values) else None
        if value is not None and (dtype := dtype_of(value)):
            return dtype
    usual = default_dtype(expression)
    allowed = operator.allowed(index)
    choices = [one for one in (usual, "f32", "i64") if one in allowed] or allowed or [usual]
    return choices[0]


def dtype_of(value: SSAValue) -> str:
    """The element type of a tensor; empty if unknown."""
    shown = describe(value.type)
    return shown.split("[")[0] if "[" in shown else ""
