"""Lowers the inputs of a node: expressions first, then untyped literals."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from popgraph.builder.pgraph.check.operators import Operator
from popgraph.builder.pgraph.lower.context import GraphContext
from popgraph.builder.pgraph.lower.expressions import fold, lower_value
from popgraph.builder.pgraph.lower.tensor_literals import literal_dtype, lower_literal
from popgraph.builder.pgraph.syntax.literals import is_literal
from popgraph.builder.pgraph.syntax.source import Failed
from popgraph.builder.pgraph.syntax.tree import Expression, Missing


def operands_of(
    context: GraphContext, operator: Operator, inputs: Sequence[Expression | Missing]
) -> list[SSAValue | None]:
    """
    The values of a node's inputs.

    Literals are lowered last: their element type follows the other inputs.
    """
    values: list[SSAValue | None] = [None] * len(inputs)
    failed = False
    given = [one if isinstance(one, Missing) else fold(context, one) for one in inputs]
    for literals in (False, True):
        for index, expression in enumerate(given):
            if isinstance(expression, Missing) or is_literal(expression) != literals:
                continue
            try:
                if literals:
                    dtype = literal_dtype(operator, index, values, expression)
                    values[index] = lower_literal(context, expression, dtype, None)
                else:
                    values[index] = lower_value(context, expression)
            except Failed:
                failed = True
    if failed:
        raise Failed
    return values
