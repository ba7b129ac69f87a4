"""Type checks of the arguments of public functions; a RunError names the wrong argument."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection
from functools import wraps
from typing import Any, TypeVar, get_args

from popgraph.builder.opset.arguments import admits, resolved
from popgraph.support.errors import RunError
from popgraph.support.names import check_keywords

_Function = TypeVar("_Function", bound=Callable[..., Any])


def check_types(*own: str) -> Callable[[_Function], _Function]:
    """
    Decorator: checks arguments against their annotations before the function runs.

    Parameters in `own` are skipped; the function has better messages for them. Keywords of
    `**rest: Unpack[T]` must be keys of the TypedDict T.
    """
    return lambda function: _checked(function, own)


def _checked(function: _Function, own: Collection[str]) -> _Function:
    signature = inspect.signature(function)

    @wraps(function)
    def checking(*args: Any, **named: Any) -> Any:
        if rest := _keys(signature, function.__globals__):
            check_keywords(function, signature, named, rest)
        try:
            given = signature.bind(*args, **named).arguments
        except TypeError:
            check_keywords(function, signature, named)
            return function(*args, **named)  # Python says what is missing.
        for name, value in given.items():
            annotation = signature.parameters[name].annotation
            if name in own:
                continue
            kind = resolved(annotation, function.__globals__)
            if kind is inspect.Parameter.empty or admits(kind)(value):
                continue
            wanted = re.sub(r"\s*\|\s*", " or ", str(annotation)).replace("[str]", " of str")
            raise RunError(f"{name} is {wanted}, not {value!r} ({type(value).__name__})", name)
        return function(*args, **named)

    return checking  # type: ignore[return-value]


def _keys(signature: inspect.Signature, names: dict[str, Any]) -> tuple[str, ...]:
    """The keys of the TypedDict of a parameter `**rest: Unpack[T]`."""
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            (keys,) = get_args(resolved(parameter.annotation, names))
            return tuple(keys.__annotations__)
    return ()
