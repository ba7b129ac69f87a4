"""Which values PopART's Python binding takes for an annotated parameter."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterable, Mapping, Set
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeAlias, Union, get_args, get_origin

import numpy as np

Test: TypeAlias = Callable[[object], bool]
"""Whether a value is of a kind."""


def anything(value: object) -> bool:
    return True


def resolved(annotation: object, names: dict[str, Any]) -> Any:
    """What an annotation means where those names are known; Any if it cannot be told."""
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, names)
    except (NameError, AttributeError, TypeError):
        return Any


@cache
def admits(kind: Any) -> Test:
    """
    The test of an annotation, as pybind11 converts arguments.

    Integers are what has an index, floats what has a value, booleans what has a truth but is no
    text; lists are any sequences, enumerations and classes their own members only.
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
    if not isinstance(kind, type) or not _can_be_asked_for(kind):
        return anything
    return _container(kind, []) if issubclass(kind, Iterable) else _instance(kind)


def _either(tests: list[Test]) -> Test:
    return lambda value: any(test(value) for test in tests)


def _instance(kind: type) -> Test:
    return lambda value: isinstance(value, kind)


def _can_be_asked_for(kind: type) -> bool:
    """Whether `isinstance` knows the class; protocols it does not."""
    try:
        isinstance(None, kind)
    except TypeError:
        return False
    return True


def _container(origin: type, inner: list[Test]) -> Test:
    """Of a class with parts: mappings, sets, arrays and sequences."""
    if not isinstance(origin, type):
        return anything
    if issubclass(origin, np.ndarray):
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
    return isinstance(value, list | tuple | np.ndarray) or (
        hasattr(value, "__getitem__") and hasattr(value, "__len__")
    )


def _is_listable(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes)


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


def _is_truth(value: object) -> bool:
    return value is None or hasattr(value, "__bool__")


_PLAIN: Mapping[object, Test] = {
    Any: anything,
    object: anything,
    None: lambda value: value is None,
    NoneType: lambda value: value is None,
    bool: _is_truth,
    int: _is_whole,
    float: _is_number,
    str: lambda value: isinstance(value, str | bytes),
    os.PathLike: lambda value: isinstance(value, os.PathLike),
}
