"""Keyword arguments of public functions: unknown names are errors that list the known ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, TypeVar

from popgraph.support.errors import PopgraphError
from popgraph.support.names import closest

_Function = TypeVar("_Function", bound=Callable[..., Any])


class ArgumentError(PopgraphError, TypeError):
    """A public function was called with the name of an argument that it does not have."""


def names_arguments(function: _Function) -> _Function:
    """Errors for unknown names of arguments list those that the function has."""
    taken = signature(function)

    @wraps(function)
    def called(*args: Any, **named: Any) -> Any:
        check_keywords(function, taken, named)
        return function(*args, **named)

    return called  # type: ignore[return-value]


def check_keywords(function: Callable[..., Any], taken: Signature, named: Iterable[str]) -> None:
    """ArgumentError unless a function of this signature has arguments of these names."""
    kinds = {parameter.kind for parameter in taken.parameters.values()}
    unknown = [name for name in named if name not in taken.parameters]
    if not unknown or Parameter.VAR_KEYWORD in kinds:
        return
    known = [name for name in taken.parameters if name != "self"]
    called = function.__qualname__.removesuffix(".__init__")
    meant = closest(unknown[0], known)
    raise ArgumentError(
        f"{called} has no argument {unknown[0]!r}",
        hint=(f"did you mean {meant!r}? " if meant else "") + f"it has {', '.join(known)}",
    )
