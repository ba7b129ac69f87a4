"""Lowers expressions: folds constants, then applies the rule of the expression's kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from xdsl.ir import SSAValue

from popgraph.builder.pgraph.check.const_eval import folded
from popgraph.builder.pgraph.lower.context import GraphContext
from popgraph.builder.pgraph.syntax.literals import is_known, typed_literal
from popgraph.builder.pgraph.syntax.source import Failed
from popgraph.builder.pgraph.syntax.tree import (
    Argument,
    Binary,
    Call,
    Computed,
    Expression,
    Missing,
    Name,
    Path,
    left_spine,
)


def lower_results(
    context: GraphContext, expression: Expression, names: Sequence[str]
) -> list[SSAValue]:
    """
    Lowers an expression with as many results as `names`.

    These are names in the graph, "" for an unused result.
    """
    expression = _piped(context, _from_left(context, fold(context, expression)))
    return context.rules.expression(context, expression, names)


def lower_value(context: GraphContext, expression: Expression) -> SSAValue:
    """Lowers a nested expression to a value."""
    return _folded_value(context, _from_left(context, fold(context, expression)))


def _folded_value(context: GraphContext, expression: Expression) -> SSAValue:
    return context.rules.expression(context, _piped(context, expression), None)[0]


def fold(context: GraphContext, expression: Expression) -> Expression:
    """Folds the constants in an expression."""
    source, scope = context.source, context.scope
    expression = folded(source, expression, scope.known)
    match expression:
        case Call(path=path, arguments=[Argument(keyword=None, value=argument) as only]) if len(
            path.parts
        ) == 1 and not isinstance(argument, Missing):
            inner = replace(only, value=folded(source, argument, scope.known))
            typed = replace(expression, arguments=(inner,))
            return typed if typed_literal(typed) else expression
        case _:
            return expression


def folding(context: GraphContext) -> Callable[[Expression], Expression]:
    """`fold` bound to this context, for callers without a graph."""
    return partial(fold, context)


def known(context: GraphContext, expression: Expression) -> Expression:
    """The constant value of an expression; fails if it is not constant."""
    found = fold(context, expression)
    if not is_known(found):
        context.source.parse_error(
            found.span,
            "this is not known before the graph runs",
            "`let` names numbers, strings, `true`, `false` and lists of them",
        )
        raise Failed
    return found


def _from_left(context: GraphContext, expression: Expression) -> Expression:
    """Lowers `a + b` of `a + b + c` first, so that long chains do not recurse deeply."""
    if not isinstance(expression, Binary):
        return expression
    found, *others = reversed(left_spine(expression))
    for outer in others:
        computed = None
        with suppress(Failed):
            computed = _folded_value(context, found)
        found = replace(outer, lhs=Computed(found.span, computed))
    return found


def _piped(context: GraphContext, expression: Expression) -> Expression:
    """`x |> f(1)`  ->  `f(x, 1)`."""
    if not isinstance(expression, Binary) or expression.symbol != "|>":
        return expression
    first = Argument(expression.lhs.span, None, expression.lhs)
    match expression.rhs:
        case Name() as name:
            return Call(name.span, Path(name.span, (name,)), (first,))
        case Call() as call:
            return replace(call, arguments=(first, *call.arguments))
        case other:
            context.source.parse_error(
                other.span, "`|>` must be followed by a call", "`x |> Relu |> f(1)`"
            )
            raise Failed
