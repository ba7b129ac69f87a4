"""Lowers symbols: `a + b`, `-x`, `not x`, and the choice `a if c else b`."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from popgraph.builder.pgraph.check.operators import SYMBOLS, Operator
from popgraph.builder.pgraph.lower.context import GraphContext
from popgraph.builder.pgraph.lower.nodes import add_step, operator_named
from popgraph.builder.pgraph.lower.operands import operands_of
from popgraph.builder.pgraph.lower.tensor_literals import dtype_of
from popgraph.builder.pgraph.syntax.tree import Binary, Choice, Unary
from popgraph.support import dtypes


def lower_binary(context: GraphContext, expression: Binary, name: str | None) -> SSAValue:
    """`a + b`  ->  Add; `a != b`  ->  Not(Equal(a, b))."""
    span = expression.span
    symbol = "==" if expression.symbol == "!=" else expression.symbol
    operator = operator_named(context, SYMBOLS[symbol], span)
    operands = operands_of(context, operator, [expression.lhs, expression.rhs])
    if expression.symbol != "!=":
        attributes = _implied_attributes(operator, operands)
        return add_step(context, operator.op_type, operands, name, span, attributes)
    equal = add_step(context, "Equal", operands, None, span)
    return add_step(context, "Not", [equal], name, span)


def _implied_attributes(
    operator: Operator, operands: Sequence[SSAValue | None]
) -> dict[str, object]:
    """Attributes required for the meaning of a symbol: `%` of floats is Mod with fmod."""
    floats = any(value is not None and _is_float(dtype_of(value)) for value in operands)
    return {"fmod": 1} if operator.op_type == "Mod" and floats else {}


def _is_float(dtype: str) -> bool:
    return dtype in dtypes.BY_NAME and dtypes.BY_NAME[dtype].is_float


def lower_unary(context: GraphContext, expression: Unary, name: str | None) -> SSAValue:
    """`-x`, `not x`."""
    op_type = "Neg" if expression.symbol == "-" else "Not"
    operator = operator_named(context, op_type, expression.span)
    operands = operands_of(context, operator, [expression.operand])
    return add_step(context, op_type, operands, name, expression.span)


def lower_choice(context: GraphContext, choice: Choice, name: str | None) -> SSAValue:
    """`a if c else b`  ->  Where, elementwise."""
    where = operator_named(context, "Where", choice.span)
    operands = operands_of(context, where, [choice.condition, choice.then, choice.otherwise])
    return add_step(context, "Where", operands, name, choice.span)
