"""Checks of public functions' arguments: unknown keywords, and values of other types."""

from __future__ import annotations

import inspect
import operator
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import MISSING, fields
from functools import cache, wraps
from types import NoneType, UnionType
from typing import Any, TypeAlias, TypeVar, Union, get_args, get_origin

from popgraph.support.errors import ArgumentError
from popgraph.support.names import check_keywords

Test: TypeAlias = Callable[[object], bool]
"""Whether a value has a certain kind."""
_Function = TypeVar("_Function", bound=Callable[..., Any])


def check_types(*own: str) -> Callable[[_Function], _Function]:
    """
    Decorator: checks arguments against their annotations before the function runs.

    Parameters in `own` are skipped; the function has better messages for them. Errors for unknown
    keywords list the valid ones. Keywords of `**rest: Unpack[T]` must be keys of the TypedDict T.
    """
    return lambda function: _checked(function, own)


def _checked(function: _Function, own: Collection[str]) -> _Function:
    signature = inspect.signature(function)
    parameters, module = signature.parameters, function.__module__

    @wraps(function)
    def checking(*args: Any, **named: Any) -> Any:
        check_keywords(function, signature, named, _keys(signature, module))
        try:
            given = signature.bind(*args, **named).arguments
        except TypeError:
            return function(*args, **named)  # Python says what is missing.
        for name, value in given.items():
            if name not in own:
                one = parameters[name]
                _check(value, one.annotation, module, name, one.default)
        return function(*args, **named)

    return checking  # type: ignore[return-value]


def _keys(signature: inspect.Signature, module: str) -> tuple[str, ...]:
    """The keys of the TypedDict of a parameter `**rest: Unpack[T]`."""
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            (keys,) = get_args(_kind(parameter.annotation, module))
            return tuple(keys.__annotations__)
    return ()


def check_fields(made: Any) -> None:
    """ArgumentError unless the fields of a dataclass have the types of their annotations."""
    owner = type(made)
    for one in fields(made):
        where = f"{owner.__name__}.{one.name}"
        _check(getattr(made, one.name), one.type, owner.__module__, where, one.default)


def _check(value: object, annotation: object, module: str, where: str, default: object) -> None:
    if _test(annotation, module)(value):
        return
    wanted = re.sub(r"\s*\|\s*", " or ", str(annotation)).replace("[str]", " of str")
    hint = ""
    if default is not inspect.Parameter.empty and default is not MISSING:
        is_short = default is None or isinstance(default, bool | int | float | str)
        hint = "leave it out for the default" + f", {default!r}" * is_short
    name = where.rpartition(".")[2]
    raise ArgumentError(f"{name} is {wanted}, not {value!r} ({type(value).__name__})", where, hint)


@cache
def _test(annotation: object, module: str) -> Test:
    return admits(_kind(annotation, module))


@cache
def _kind(annotation: object, module: str) -> Any:
    """The evaluated annotation of a module."""
    if annotation is inspect.Parameter.empty:
        return Any
    return resolved(annotation, vars(sys.modules[module]))


def anything(value: object) -> bool:
    return True


def resolved(annotation: object, names: dict[str, Any]) -> Any:
    """Evaluates an annotation; Any if that fails."""
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, names)
    except (NameError, AttributeError, TypeError):
        return Any


@cache
def admits(kind: Any) -> Test:
    """
    The test of an annotation, with the conversions of pybind11.

    `int` accepts objects with `__index__`, `float` those with `__float__`, `bool` those with
    `__bool__`, and lists any sequence. Enumerations and classes accept their own members only.
    """
    if kind in _PLAIN:
        return _PLAIN[kind]
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _either([admits(one) for one in inner])
    if origin is Callable:
        return callable
    if origin is not None:
        return _container(origin, [admits(one) for one in inner if one is not Ellipsis])
    if not isinstance(kind, type) or not _supports_isinstance(kind):
        return anything
    return _container(kind, []) if issubclass(kind, Iterable) else _instance(kind)


def _either(tests: list[Test]) -> Test:
    return lambda value: any(test(value) for test in tests)


def _instance(kind: type) -> Test:
    return lambda value: isinstance(value, kind)


def _supports_isinstance(kind: type) -> bool:
    """Whether `isinstance` supports the class; some protocols do not."""
    try:
        isinstance(None, kind)
    except TypeError:
        return False
    return True


def _container(origin: type, inner: list[Test]) -> Test:
    """The test of a container: a mapping, a set, an array or a sequence."""
    if not isinstance(origin, type):
        return anything
    if hasattr(origin, "__array__"):
        return lambda value: hasattr(value, "__array__") or isinstance(value, list)
    if issubclass(origin, Mapping):
        key, item = inner or (anything, anything)
        return lambda value: (
            isinstance(value, Mapping)
            and all(key(name) and item(one) for name, one in value.items())
        )
    if issubclass(origin, str | bytes):
        return _instance(origin)
    each = inner[0] if inner else anything
    if issubclass(origin, Set):
        return _each(each, _instance(Set))
    if origin is Iterable:
        return _each(each, _is_listable)
    if issubclass(list, origin) or origin is tuple:
        return _each(each, _is_sequence)
    return _instance(origin)


def _each(test: Test, is_container: Callable[[Any], bool]) -> Test:
    def all_are(value: Any) -> bool:
        return is_container(value) and all(map(test, value))

    return all_are


def _is_sequence(value: Any) -> bool:
    if isinstance(value, str | bytes | Mapping):
        return False
    return isinstance(value, list | tuple) or (
        hasattr(value, "__getitem__") and hasattr(value, "__len__")
    )


def _is_listable(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes)


def _is_integer(value: object) -> bool:
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


def _is_bool(value: object) -> bool:
    return value is None or hasattr(value, "__bool__")


_PLAIN: Mapping[object, Test] = {
    Any: anything,
    object: anything,
    None: lambda value: value is None,
    NoneType: lambda value: value is None,
    bool: _is_bool,
    int: _is_integer,
    float: _is_number,
    str: lambda value: isinstance(value, str | bytes),
    os.PathLike: lambda value: isinstance(value, os.PathLike),
}
