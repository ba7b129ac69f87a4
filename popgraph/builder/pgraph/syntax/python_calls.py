"""Binds arguments of calls to Python functions, such as `normal(std=0.02)`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import Parameter, signature

from popgraph.builder.pgraph.syntax.source import Failed, Source
from popgraph.builder.pgraph.syntax.tree import Argument, Name

Numbers = dict[str, int | float]


def parameters(function: Callable[..., object]) -> dict[str, Parameter]:
    """The parameters available to a text: all except the first, which the caller supplies."""
    return dict(list(signature(function).parameters.items())[1:])


def bound(
    source: Source,
    name: Name,
    function: Callable[..., object],
    arguments: Sequence[Argument],
    number: Callable[[Argument, str], int | float],
    others: Sequence[str] = (),
) -> Numbers:
    """
    The arguments by parameter; `number` reads each of them.

    `others` are keywords that the caller handles itself. Fails on unknown and missing arguments.
    Keyword-only parameters without a default are supplied by the caller.
    """
    known = parameters(function)
    keyword_only = [key for key, one in known.items() if one.kind is Parameter.KEYWORD_ONLY]
    positional = [key for key in (*known, *others) if key not in keyword_only]
    keys = [*known, *others]
    given: Numbers = {}
    for index, argument in enumerate(arguments):
        key = argument.keyword.text if argument.keyword else [*positional[index:], ""][0]
        if key not in keys or key in given:
            taken = ", ".join(keys) or "no arguments"
            source.parse_error(
                argument.span, f"`{name.text}` does not take this", f"it takes {taken}"
            )
            raise Failed
        given[key] = number(argument, key)
    for key in positional:
        if key in known and known[key].default is Parameter.empty and key not in given:
            source.parse_error(name.span, f"`{name.text}` needs `{key}`", f"`{name.text}({key}=2)`")
            raise Failed
    return given
