"""Lowers expressions: folds what is known now, then follows the rule of the kind of expression."""

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
    The values of an expression that has as many results as `names`.

    These are names in the graph, "" where nobody wants the result.
    """
    expression = _piped(context, _from_left(context, fold(context, expression)))
    return context.rules.expression(context, expression, names)


def lower_value(context: GraphContext, expression: Expression) -> SSAValue:
    """The value of an expression within another."""
    return _folded_value(context, _from_left(context, fold(context, expression)))


def _folded_value(context: GraphContext, expression: Expression) -> SSAValue:
    return context.rules.expression(context, _piped(context, expression), None)[0]


def fold(context: GraphContext, expression: Expression) -> Expression:
    """The expression with everything computed that is known now."""
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
    """`fold` here, for those who know of no graph."""
    return partial(fold, context)


def known(context: GraphContext, expression: Expression) -> Expression:
    """What an expression comes to; fails if that is not known now."""
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
    """`a + b + c` with `a + b` computed, so that long sums and pipes are not deep ones."""
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
    """`x |> f(1)` as `f(x, 1)`."""
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
                other.span, "after `|>` stands what the value goes to", "`x |> Relu |> f(1)`"
            )
            raise Failed
