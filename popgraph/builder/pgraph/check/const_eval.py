"""Constant evaluation of expressions: integers, strings, lists, conditions."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import replace

from popgraph.builder.budget import PART
from popgraph.builder.pgraph.syntax.source import Failed, Source
from popgraph.builder.pgraph.syntax.tree import (
    Binary,
    Choice,
    Expression,
    Index,
    Items,
    Name,
    Number,
    Span,
    Text,
    Truth,
    Unary,
    left_spine,
)

Lookup = Callable[[Name], Expression | None]
"""
The constant value of a name: number, string, boolean, or a list of these; None if not constant.
"""

_MAX_BITS = 256
_MAX_CHARACTERS = 1 << 12

_ARITHMETIC: Mapping[str, Callable[[int | float, int | float], int | float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda a, b: a // b if _divides(a, b) else a / b,
    "%": lambda a, b: math.fmod(a, b) if isinstance(a + b, float) else a % b,
    "**": operator.pow,
}
_COMPARISONS: Mapping[str, Callable[[object, object], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,  # type: ignore[dict-item]
    "<=": operator.le,  # type: ignore[dict-item]
    ">": operator.gt,  # type: ignore[dict-item]
    ">=": operator.ge,  # type: ignore[dict-item]
}


def _divides(a: int | float, b: int | float) -> bool:
    return isinstance(a, int) and isinstance(b, int) and a % b == 0


def folded(source: Source, expression: Expression, lookup: Lookup) -> Expression:
    """
    Folds constants in an expression.

    Integers that divide without a remainder yield an integer: `width / heads` is a count.
    """
    source.spend(expression.span, PART)
    match expression:
        case Name():
            found = lookup(expression)
            return expression if found is None else _placed(source, found, expression.span)
        case Items():
            items = tuple(folded(source, item, lookup) for item in expression.items)
            return replace(expression, items=items)
        case Unary():
            return _unary(replace(expression, operand=folded(source, expression.operand, lookup)))
        case Binary():
            return _from_left(source, expression, lookup)
        case Choice():
            return _choice(source, expression, lookup)
        case Index():
            return _index(source, expression, lookup)
        case _:
            return expression


def _from_left(source: Source, expression: Binary, lookup: Lookup) -> Expression:
    """Folds a left-deep chain such as `a + b + c` without recursion."""
    spine = left_spine(expression)
    found = folded(source, spine[-1].lhs, lookup)
    for outer in reversed(spine):
        source.spend(outer.span, PART)
        rhs = folded(source, outer.rhs, lookup)
        found = _binary(source, replace(outer, lhs=found, rhs=rhs))
    return found


def _placed(source: Source, known: Expression, span: Span) -> Expression:
    """A constant with the position of its use, for messages."""
    source.spend(span, PART)
    if isinstance(known, Items):
        return Items(span, tuple(_placed(source, item, span) for item in known.items))
    return replace(known, span=span)


def _unary(expression: Unary) -> Expression:
    match expression:
        case Unary(symbol="-", operand=Number(value=value)):
            return Number(expression.span, -value)
        case Unary(symbol="not", operand=Truth(value=value)):
            return Truth(expression.span, not value)
        case _:
            return expression


def _binary(source: Source, expression: Binary) -> Expression:
    symbol, span = expression.symbol, expression.span
    match expression.lhs, expression.rhs:
        case Number(value=a), Number(value=b) if symbol in _ARITHMETIC:
            return Number(span, _computed(source, expression, a, b))
        case (Number(value=a) | Text(value=a), Number(value=b) | Text(value=b)) if symbol == "+":
            return Text(span, f"{a}{b}")
        case (Number(value=c), Number(value=d)) if symbol in _COMPARISONS:
            return Truth(span, _COMPARISONS[symbol](c, d))
        case (Text(value=e), Text(value=f)) if symbol in ("==", "!="):
            return Truth(span, _COMPARISONS[symbol](e, f))
        case Truth(value=g), Truth(value=h) if symbol in ("and", "or", "==", "!="):
            both = {"and": g and h, "or": g or h, "==": g == h, "!=": g != h}
            return Truth(span, both[symbol])
        case _:
            return expression


def _computed(source: Source, expression: Binary, a: int | float, b: int | float) -> int | float:
    try:
        if expression.symbol == "**" and abs(b) * max(1, int(abs(a))).bit_length() > _MAX_BITS:
            raise OverflowError
        value = _ARITHMETIC[expression.symbol](a, b)
        if isinstance(value, int) and value.bit_length() > _MAX_BITS:
            raise OverflowError
    except ZeroDivisionError as error:
        source.parse_error(expression.span, "this divides by zero")
        raise Failed from error
    except (OverflowError, ValueError) as error:
        source.parse_error(expression.span, "this number is too large")
        raise Failed from error
    if isinstance(value, complex):
        source.parse_error(expression.span, "this is not a real number")
        raise Failed
    return value


def _choice(source: Source, expression: Choice, lookup: Lookup) -> Expression:
    condition = folded(source, expression.condition, lookup)
    if isinstance(condition, Truth):
        chosen = expression.then if condition.value else expression.otherwise
        return folded(source, chosen, lookup)
    return replace(
        expression,
        condition=condition,
        then=folded(source, expression.then, lookup),
        otherwise=folded(source, expression.otherwise, lookup),
    )


def _index(source: Source, expression: Index, lookup: Lookup) -> Expression:
    """Evaluates `[64, 128][i]` of a constant list; indexing of tensors is left unchanged."""
    operand = folded(source, expression.operand, lookup)
    if not isinstance(operand, Items) or len(expression.subscripts) != 1:
        return replace(expression, operand=operand)
    index = folded(source, expression.subscripts[0], lookup)  # type: ignore[arg-type]
    match index:
        case Number(value=int() as number) if -len(operand.items) <= number < len(operand.items):
            return operand.items[number]
        case Number():
            source.parse_error(
                expression.span,
                f"this list has no item {index.value}",
                f"it has {len(operand.items)}, counted from 0",
            )
            raise Failed
        case _:
            return replace(expression, operand=operand)
