"""The arguments of operators' methods, which are refused as PopART refuses them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from inspect import BoundArguments, Parameter, Signature, formatannotation
from typing import Any

import numpy as np

CONTEXTS = ("debugContext", "debugPrefix", "debugName", "debug_context", "name")
"""What PopART calls a node's name, in one method so and in another so; all of them take all."""


def incompatible_arguments(
    name: str, signature: Signature, args: object, hint: str = ""
) -> TypeError:
    """What PopART says when a method is called with what it does not take."""
    return TypeError(
        f"{name}(): incompatible function arguments. The following argument types are supported:\n"
        f"    1. {name}{signature}\n\nInvoked with: {args}{hint}"
    )


def bound(signature: Signature, args: Sequence[Any], named: Mapping[str, Any]) -> BoundArguments:
    """Arguments by name; a TypeError if there are too many, or of types other than annotated."""
    context = next((one for one in CONTEXTS if one in signature.parameters), None)
    if context is not None:
        named = {context if one in CONTEXTS else one: value for one, value in named.items()}
    found = signature.bind(*args, **named)
    for name, value in found.arguments.items():
        parameter = signature.parameters[name]
        kind = "context" if name in CONTEXTS else _text(parameter.annotation)
        if value is not parameter.default and not _fits(kind, value):
            raise TypeError(f"{name} is {kind}, which {value!r} is not")
    return found


def overloaded(
    name: str, forms: Sequence[Signature], args: Sequence[Any], named: Mapping[str, Any]
) -> dict[str, Any]:
    """Arguments by name, of the first form of a method that takes them."""
    for form in forms:
        try:
            return bound(form, args, named).arguments
        except TypeError:
            continue
    raise incompatible_arguments(name, forms[0], (args, dict(named)))


def _text(annotation: object) -> str:
    if annotation is Parameter.empty:
        return "Any"
    if isinstance(annotation, type):
        return annotation.__name__
    return annotation if isinstance(annotation, str) else formatannotation(annotation)


def _fits(kind: str, value: object) -> bool:
    """Whether an argument is of one of the kinds of an annotation, `int | None`."""
    return any(_is(one, value) for one in kind.split(" | "))


def _is(kind: str, value: object) -> bool:
    if kind.startswith("list["):
        inner = kind.removeprefix("list[").removesuffix("]")
        is_list = isinstance(value, list | tuple | range | np.ndarray)
        return is_list and all(_is(inner, one) for one in value)  # type: ignore[attr-defined]
    if kind in _KINDS:
        return _KINDS[kind](value)
    return kind in _ANYTHING or any(one.__name__ == kind for one in type(value).__mro__)


def _is_whole(value: object) -> bool:
    try:
        operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return False
    return True


def _is_number(value: object) -> bool:
    if isinstance(value, str | bytes | list | tuple):
        return False
    try:
        float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return True


_KINDS: Mapping[str, Callable[[object], bool]] = {
    "int": _is_whole,
    "float": _is_number,
    "str": lambda value: isinstance(value, str | bytes),
    "context": lambda value: not isinstance(value, int | float | list | tuple),
    "None": lambda value: value is None,
}
"""What annotations admit that are no names of classes."""

_ANYTHING = ("Any", "object", "bool")
