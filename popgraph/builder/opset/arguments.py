"""Checks the arguments of PopART's functions as its pybind11 binding does."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from inspect import BoundArguments, Parameter, Signature
from keyword import iskeyword
from types import FunctionType
from typing import Any, TypeVar

from popgraph.support.argument_types import Test, admits, anything, resolved
from popgraph.support.memo import cached_property

CONTEXTS = ("debugContext", "debugPrefix", "debugName", "debug_context", "name")
"""PopART's parameter names for a node's debug context; every method accepts all of them."""

_T = TypeVar("_T", bound=Callable[..., Any])
_STORED = {bool: bool, int: int, float: float}
"""The C++ conversions of numbers when they are stored."""


def incompatible_arguments(
    name: str,
    signature: Signature | str,
    args: Sequence[object],
    named: Mapping[str, object],
    hint: str = "",
) -> TypeError:
    """The TypeError that pybind11 raises for arguments that fit no overload."""
    kind = "constructor" if name == "__init__" else "function"
    form = re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(signature))
    given = ", ".join(map(repr, args))
    given += "; kwargs: " * bool(named) + ", ".join(f"{one}={named[one]!r}" for one in named)
    return TypeError(
        f"{name}(): incompatible {kind} arguments. The following argument types are supported:\n"
        f"    1. {form}\n\nInvoked with: {given}{hint}"
    )


def evaluated(signature: Signature, names: dict[str, Any]) -> Signature:
    """A signature with evaluated annotations."""
    parameters = [
        one.replace(annotation=resolved(one.annotation, names))
        for one in signature.parameters.values()
    ]
    return signature.replace(parameters=parameters)


def bound(signature: Signature, args: Sequence[Any], named: Mapping[str, Any]) -> BoundArguments:
    """
    Binds arguments to names; TypeError if there are too many, or if types differ.

    A parameter whose PopART name is a Python keyword ends in `_` here: `**{"lambda": 0.1}`.
    """
    named = {f"{one}_" if iskeyword(one) else one: value for one, value in named.items()}
    context = next((one for one in CONTEXTS if one in signature.parameters), None)
    if context is not None:
        named = {context if one in CONTEXTS else one: value for one, value in named.items()}
    found = signature.bind(*args, **named)
    for name, value in found.arguments.items():
        if not _test(signature.parameters[name])(value):
            raise TypeError(f"{name} is not {signature.parameters[name].annotation}")
    return found


def overloaded(
    name: str, forms: Sequence[Signature], args: Sequence[Any], named: Mapping[str, Any]
) -> dict[str, Any]:
    """Arguments by name, for the first overload that accepts them."""
    for form in forms:
        try:
            return bound(form, args, named).arguments
        except TypeError:
            continue
    raise incompatible_arguments(name, forms[0], args, named)


def typed(decorated: _T) -> _T:
    """
    Decorator: checks arguments of a function, or of a class's constructor and public methods.

    They are converted and checked against annotations as PopART's binding does for C++, and so are
    assignments to the fields of a dataclass.
    """
    if not isinstance(decorated, type):
        return _checking(decorated, decorated.__name__)  # type: ignore[return-value]
    for name, member in list(vars(decorated).items()):
        if name.startswith("_") and name != "__init__":
            continue
        if isinstance(member, FunctionType):
            setattr(decorated, name, _checking(member, name))
        elif isinstance(member, staticmethod):
            setattr(decorated, name, staticmethod(_checking(member.__func__, name)))
    if is_dataclass(decorated) and "__setattr__" not in vars(decorated):
        _check_fields(decorated)
    return decorated


def _checking(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    plan = _Plan(function, name)
    if not plan.checks_arguments:
        return function

    @wraps(function)
    def checked(*args: Any, **named: Any) -> Any:
        if not plan.takes(args, named):
            raise plan.refusal(args, named)
        try:
            return function(*args, **named)
        except TypeError as error:
            trace = error.__traceback__
            if trace is not None and trace.tb_next is None:  # it was not even begun
                raise plan.refusal(args, named) from error
            raise

    return checked


@dataclass
class _Plan:
    """Precomputed checks of a function's arguments."""

    function: Callable[..., Any]
    name: str
    """The name of the method; one function may implement two methods."""

    @cached_property
    def signature(self) -> Signature:
        return inspect.signature(self.function)

    @cached_property
    def checks_arguments(self) -> bool:
        """Whether any argument has to be checked."""
        parameters = self.signature.parameters.values()
        return any(one.name != "self" and one.annotation not in _OPEN for one in parameters)

    @cached_property
    def tests(self) -> dict[str, Test]:
        known = evaluated(self.signature, self.function.__globals__)
        return {name: _test(one) for name, one in known.parameters.items()}

    @cached_property
    def named_indices(self) -> list[str]:
        """The names of positional arguments."""
        kinds = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
        return [one.name for one in self.signature.parameters.values() if one.kind in kinds]

    @cached_property
    def positional(self) -> list[tuple[int, Test]]:
        """Tests of positional arguments that can fail, by position."""
        tests = [(index, self.tests[name]) for index, name in enumerate(self.named_indices)]
        return [(index, test) for index, test in tests if test is not anything]

    @cached_property
    def rest(self) -> Test:
        """The test of variadic arguments."""
        for one in self.signature.parameters.values():
            if one.kind is Parameter.VAR_POSITIONAL:
                return self.tests[one.name]
        return anything

    def takes(self, args: Sequence[Any], named: Mapping[str, Any]) -> bool:
        given = len(args)
        for index, test in self.positional:
            if index < given and not test(args[index]):
                return False
        indices = len(self.named_indices)
        if given > indices and not all(map(self.rest, args[indices:])):
            return False
        return not named or all(self.tests.get(name, anything)(named[name]) for name in named)

    def refusal(self, args: Sequence[Any], named: Mapping[str, Any]) -> TypeError:
        form, hint = str(self.signature), ""
        if self.name == "__init__":
            owner = self.function.__qualname__.split(".")[-2]
            form = re.sub(r"^\(self(, )?", f"{owner}(", re.sub(r" -> [^>]*$", "", form))
            hint = getattr(args[0], "_advice", "")
            args = args[1:]
        return incompatible_arguments(self.name, form, args, named, hint)


_OPEN = (Parameter.empty, "Any", "object", Any, object)
"""Annotations without constraints."""


def _test(parameter: Parameter) -> Test:
    """The test of a parameter, which also accepts its default."""
    if parameter.name in CONTEXTS and parameter.default == "":
        return _is_context
    kind = parameter.annotation
    test = anything if kind is Parameter.empty else admits(kind)
    default = parameter.default
    if default is Parameter.empty or test(default):
        return test
    return lambda value: value is default or test(value)


def _is_context(value: object) -> bool:
    kinds = {one.__name__ for one in type(value).__mro__}
    return value is None or not kinds.isdisjoint(_CONTEXT_KINDS)


_CONTEXT_KINDS = ("str", "bytes", "DebugContext", "DebugInfo", "SourceLocation")
"""Class names of debug contexts; sessions define the classes."""


def _check_fields(kind: type) -> None:
    """Makes attributes of a dataclass reject values that violate their annotations."""
    tests: dict[str, tuple[Test, Callable[[Any], Any] | None]] = {}

    def known() -> dict[str, tuple[Test, Callable[[Any], Any] | None]]:
        if not tests:
            names = vars(sys.modules[kind.__module__])
            for one in fields(kind):
                found = resolved(one.type, names)
                tests[one.name] = admits(found), _STORED.get(found)
        return tests

    def set_field(self: object, name: str, value: Any) -> None:
        test, stored = known().get(name, (anything, None))
        if not test(value):
            form = f"(self: {kind.__name__}, arg0: {kind.__annotations__[name]}) -> None"
            raise incompatible_arguments("", form, (self, value), {})
        object.__setattr__(self, name, value if stored is None else stored(value))

    kind.__setattr__ = set_field  # type: ignore[method-assign, assignment]
