"""The parameters of a text: its `let` lines with written values, which a caller may replace."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from popgraph.builder.pgraph.syntax.parser import parse_file
from popgraph.builder.pgraph.syntax.source import Source
from popgraph.builder.pgraph.syntax.tree import (
    Expression,
    Items,
    Number,
    Span,
    Static,
    Text,
    Truth,
    Unary,
)
from popgraph.support.errors import ParseError
from popgraph.support.names import closest

Value: TypeAlias = "bool | int | float | str | list[Value]"


@dataclass(frozen=True)
class Parameter:
    """A `let` of a file whose value is written out."""

    value: Value
    about: str
    """The comment on its line, or on the line above."""
    span: Span
    """The span of the value."""


def parameters_of(text: str, filename: str = "<text>") -> dict[str, Parameter]:
    """
    The parameters of a text by name, in the order of the text.

    A computed `let`, such as `let patches = size / patch`, is none.
    """
    source = Source(text, filename)
    file = parse_file(source)
    source.raise_mistakes()
    lines = text.split("\n")
    return {
        item.name.text: Parameter(value, _comment(lines, item.span), item.value.span)
        for item in file.items
        if isinstance(item, Static) and (value := _value(item.value)) is not None
    }


def with_parameters(text: str, values: Mapping[str, object], filename: str = "<text>") -> str:
    """The text with other values of its parameters; ParseError for an unknown name or a type."""
    known = parameters_of(text, filename)
    changes = []
    for name, value in values.items():
        if name not in known:
            meant = closest(name, known)
            raise ParseError(
                f"{filename} has no parameter {name!r}",
                name,
                (f"did you mean {meant!r}? " if meant else "")
                + f"it has {', '.join(known) or 'none'}",
            )
        changes.append((known[name].span, _written(name, value, known[name].value)))
    lines = text.split("\n")
    for span, new in sorted(changes, key=lambda change: change[0].line, reverse=True):
        first, last = lines[span.line - 1], lines[span.end_line - 1]
        whole = first[: span.column - 1] + new + last[span.end_column - 1 :]
        lines[span.line - 1 : span.end_line] = [whole]
    return "\n".join(lines)


def _comment(lines: list[str], span: Span) -> str:
    """The comment at the end of a statement, or on the line above it."""
    after = lines[span.end_line - 1][span.end_column - 1 :].strip()
    above = lines[span.line - 2].strip() if span.line > 1 else ""
    found = after if after.startswith("#") else above if above.startswith("#") else ""
    return found.lstrip("# ")


def _value(expression: Expression) -> Value | None:
    """The value of a literal; None for any other expression."""
    match expression:
        case Number(value=value) | Truth(value=value) | Text(value=value):
            return value
        case Unary(symbol="-", operand=Number(value=number)):
            return -number
        case Items(items=items):
            found = [_value(item) for item in items]
            return None if None in found else [one for one in found if one is not None]
        case _:
            return None


def _written(name: str, value: object, like: Value) -> str:
    """A value as the language writes it; it has the type of the value that it replaces."""
    kinds = {bool: "true or false", int: "an integer", float: "a number", str: "a string"}
    if isinstance(like, list):
        if not isinstance(value, list | tuple):
            raise ParseError(f"{name!r} is a list, not {value!r}", name, f"{name}={like!r}")
        given = [
            _written(name, one, like[min(at, len(like) - 1)]) if like else json.dumps(one)
            for at, one in enumerate(value)
        ]
        return f"[{', '.join(given)}]"
    number = getattr(value, "item", lambda: value)()  # a scalar of NumPy
    fits = type(number) is type(like) or (type(like) is float and type(number) is int)
    if not fits:
        raise ParseError(
            f"{name!r} is {kinds[type(like)]}, not {value!r}", name, f"{name}={like!r}"
        )
    return json.dumps(number)
