"""Dispatches expressions and statements to the functions that lower them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from xdsl.ir import SSAValue

from popgraph.builder.pgraph.check.annotations import Notes
from popgraph.builder.pgraph.lower.assignments import lower_assignment
from popgraph.builder.pgraph.lower.branches import lower_if
from popgraph.builder.pgraph.lower.calls import lower_call
from popgraph.builder.pgraph.lower.context import GraphContext, Rules
from popgraph.builder.pgraph.lower.loops import lower_loop
from popgraph.builder.pgraph.lower.nodes import add_node
from popgraph.builder.pgraph.lower.statements import context_of_definition, lower_statements
from popgraph.builder.pgraph.lower.subscripts import lower_subscripts
from popgraph.builder.pgraph.lower.symbols import lower_binary, lower_choice, lower_unary
from popgraph.builder.pgraph.lower.tensor_literals import lower_literal
from popgraph.builder.pgraph.lower.unrolling import lower_for
from popgraph.builder.pgraph.lower.weights import lower_constant, lower_let, lower_weight
from popgraph.builder.pgraph.syntax.literals import typed_literal
from popgraph.builder.pgraph.syntax.source import Failed
from popgraph.builder.pgraph.syntax.tree import (
    Assignment,
    Binary,
    Branches,
    Call,
    Choice,
    Computed,
    Constant,
    Expression,
    For,
    Freeze,
    Graph,
    Index,
    Loop,
    Name,
    Region,
    Statement,
    Static,
    Unary,
    Weight,
)


def lower_statement(context: GraphContext, statement: Statement, notes: Notes) -> None:
    """Lowers a statement by kind; `notes` are its annotations."""
    match statement:
        case Region():
            lower_statements(context, statement.body.statements)
        case For():
            lower_for(context, statement, notes)
        case Weight():
            lower_weight(context_of_definition(context, statement, notes), statement, notes)
        case Constant():
            lower_constant(context_of_definition(context, statement, notes), statement, notes)
        case Static():
            lower_let(context_of_definition(context, statement, notes), statement)
        case Assignment():
            lower_assignment(context_of_definition(context, statement, notes), statement, notes)
        case Freeze():
            _refuse_freeze(context, statement)
        case _:
            assert_never(statement)


def lower_expression(
    context: GraphContext, expression: Expression, names: Sequence[str] | None
) -> list[SSAValue]:
    """
    Lowers an expression by kind, after constant folding.

    `names` are the result names in the graph; None for a nested expression.
    """
    match expression:
        case Branches():
            return lower_if(context, expression, names)
        case Loop():
            return lower_loop(context, expression, names)
        case Call() if typed_literal(expression) is None:
            return lower_call(context, expression, names)
    name = _only_name(context, expression, names)
    match expression:
        case Name():
            return _lower_name(context, expression, name)
        case Binary():
            return [lower_binary(context, expression, name)]
        case Unary():
            return [lower_unary(context, expression, name)]
        case Choice():
            return [lower_choice(context, expression, name)]
        case Index():
            return [lower_subscripts(context, expression, name)]
        case Computed():
            return [_lower_computed(expression)]
        case Graph():
            return _refuse_graph(context, expression)
        case _:
            return [lower_literal(context, expression, None, name)]


RULES = Rules(lower_expression, lower_statement)


def _only_name(
    context: GraphContext, expression: Expression, names: Sequence[str] | None
) -> str | None:
    """The name of an expression's only result; fails if several are requested."""
    if names is None:
        return None
    if len(names) != 1:
        context.source.parse_error(
            expression.span,
            f"this has one result, not {len(names)}",
            "only a call of an operator has several",
        )
        raise Failed
    return names[0]


def _lower_name(context: GraphContext, name: Name, result: str | None) -> list[SSAValue]:
    """The value of a name; under another name it becomes an Identity."""
    value = context.scope.value(name)
    return (
        [value] if result is None else add_node(context, "Identity", [value], [result], name.span)
    )


def _lower_computed(expression: Computed) -> SSAValue:
    if not isinstance(expression.value, SSAValue):
        raise Failed
    return expression.value


def _refuse_graph(context: GraphContext, graph: Graph) -> list[SSAValue]:
    context.source.parse_error(
        graph.span,
        "a graph is not a value",
        "pass it as an attribute: `Loop(n, true, x, body=graph ...)`, `If(c, then_branch=graph "
        "..., else_branch=graph ...)`",
    )
    raise Failed


def _refuse_freeze(context: GraphContext, statement: Freeze) -> None:
    context.source.parse_error(
        statement.span, f"`{statement.keyword}` belongs in a `train` section", ""
    )
