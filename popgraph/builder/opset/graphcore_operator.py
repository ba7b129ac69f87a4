"""The framework of `ai.graphcore` methods: built from a signature and a type rule each."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any, ParamSpec, Protocol, TypeAlias, TypeVar

from xdsl.dialects.builtin import TensorType, UnrankedTensorType
from xdsl.ir import Attribute

from popgraph.builder.opset.arguments import CONTEXTS, bound, evaluated, incompatible_arguments
from popgraph.builder.opset.enums import PopartEnum, ReductionType
from popgraph.dialects.onnx.types import UNKNOWN, static_shape, tensor_type
from popgraph.support import shapes
from popgraph.support.shapes import Shape

DOMAIN = "ai.graphcore"
REDUCTIONS = {"Mean": "Mean", "Sum": "Sum", "NoReduction": "None"}

SCATTER_REDUCTIONS = {"NoReduction": "none"}

Results: TypeAlias = Attribute | Sequence[Attribute]
"""Types of the results; `UNKNOWN` until the model is compiled."""

_P = ParamSpec("_P")
_R = TypeVar("_R")
_NO_ATTRIBUTES = ("self", "args", "num_outputs", *CONTEXTS)


class CustomNodeSink(Protocol):
    """The part of a builder that these operators need."""

    def add_custom_node(
        self,
        op_type: str,
        domain: str,
        args: Sequence[str],
        attributes: Mapping[str, object],
        result_types: Sequence[Attribute],
        debugContext: object,
    ) -> list[str]: ...

    def type_of(self, id: str) -> Attribute: ...

    def isInitializer(self, id: str) -> bool: ...

    def _errors(self) -> AbstractContextManager[None]:
        """Converts errors inside the block to errors of the builder's API."""
        ...

    def refuses(
        self, op_type: str, domain: str, args: Sequence[str], attributes: Mapping[str, object]
    ) -> bool: ...


class Operands:
    """Queries of type rules about the inputs, `args`, of a node."""

    def __init__(self, builder: CustomNodeSink) -> None:
        self._builder = builder

    def _type(self, args: Sequence[str], index: int = 0) -> Attribute:
        return self._builder.type_of(args[index]) if index < len(args) else UNKNOWN

    def _shape(self, args: Sequence[str], index: int = 0) -> Shape | None:
        return static_shape(self._type(args, index))

    def _shaped(self, args: Sequence[str], shape: Sequence[int] | None, like: int = 0) -> Attribute:
        """The element type of argument `like`, with another shape."""
        type_ = self._type(args, like)
        if not isinstance(type_, TensorType | UnrankedTensorType):
            return UNKNOWN
        return tensor_type(type_.element_type, shape)

    def _refuses(self, op_type: str, args: Sequence[str], attributes: Mapping[str, object]) -> bool:
        """Whether a session will reject the operator."""
        given = {name: value for name, value in attributes.items() if value is not None}
        return self._builder.refuses(op_type, DOMAIN, args, given)

    def _broadcast(self, args: Sequence[str]) -> Attribute:
        found = [self._shape(args, index) for index in range(len(args))]
        known = [shape for shape in found if shape is not None]
        return self._shaped(args, shapes.broadcast(*known) if len(known) == len(found) else None)

    def _like(self, args: list[str], debugContext: object = "") -> Results:
        return self._type(args)

    def _like_or_nothing(self, args: list[str] = [], debugContext: object = "") -> Results:
        return self._type(args)

    def _placed(
        self, args: list[str], axes: list[int], sizes: list[int], debugContext: object = ""
    ) -> Results:
        return self._type(args)

    def _broadcasting(self, args: list[str], debugContext: object = "") -> Results:
        return self._broadcast(args)

    def _broadcasting_or_nothing(self, args: list[str] = [], debugContext: object = "") -> Results:
        return self._broadcast(args)

    def _reduced(
        self, args: Sequence[str], reduction: ReductionType, full: Shape | None
    ) -> Attribute:
        return self._shaped(args, full if reduction is ReductionType.NoReduction else ())

    def _add(
        self,
        op_type: str,
        args: Sequence[str],
        attributes: Mapping[str, object],
        results: Results,
        context: object,
    ) -> list[str]:
        """Adds a node; attributes that are None are omitted."""
        types = [results] if isinstance(results, Attribute) else results
        given = {name: value for name, value in attributes.items() if value is not None}
        return self._builder.add_custom_node(op_type, DOMAIN, args, given, types, context)


def one_result(
    op_type: str, results: int = 1
) -> Callable[[Callable[_P, Results]], Callable[_P, str]]:
    """
    Builds a method from an operator's signature and rule; it returns the id of the first result.

    The signature is PopART's: every parameter is an attribute of the node, with the kind of its
    annotation. The body is the rule: it returns the types of the results.
    """

    def method_of(rule: Callable[_P, Results]) -> Callable[_P, str]:
        return checked(_adding(op_type, rule, results, lambda ids: ids[0], "str"))

    return method_of


def all_results(
    op_type: str, results: int | None = None
) -> Callable[[Callable[_P, Results]], Callable[_P, list[str]]]:
    """
    Like `one_result`, but the method returns the ids of all results; a call may give their number.
    """

    def method_of(rule: Callable[_P, Results]) -> Callable[_P, list[str]]:
        return checked(_adding(op_type, rule, results, lambda ids: ids, "list[str]"))

    return method_of


def elementwise(
    op_type: str, rule: Callable[_P, Results], doc: str | None = None
) -> Callable[_P, str]:
    """A method named like the operator, with the arguments of a shared rule."""
    method = _adding(op_type, rule, 1, lambda ids: ids[0], "str")
    method.__name__, method.__doc__ = op_type.lower(), doc
    return checked(method)


def _adding(
    op_type: str,
    rule: Callable[_P, Results],
    count: int | None,
    returned: Callable[[list[str]], _R],
    annotation: str,
) -> Callable[_P, _R]:
    """The method that adds the node."""
    signature = inspect.signature(rule)

    @wraps(rule)
    def method(*args: _P.args, **named: _P.kwargs) -> _R:
        bound = signature.bind(*args, **named)
        bound.apply_defaults()
        given = bound.arguments
        attributes = _attributes(signature, given)
        context = next(given[name] for name in CONTEXTS if name in given)
        self, ids = given["self"], given["args"]
        refused = self._refuses(op_type, ids, attributes)
        results: Results
        try:
            results = rule(*args, **named)
        except Exception:  # rules rely on what the checks refuse
            if not refused:
                raise
            results = [UNKNOWN] * (given["num_outputs"] if count is None else count)
        return returned(self._add(op_type, ids, attributes, results, context))

    shown = signature.replace(return_annotation=annotation)
    method.__signature__ = shown  # type: ignore[attr-defined]
    return method


def checked(method: Callable[_P, _R]) -> Callable[_P, _R]:
    """Reports calls that do not fit the signature as PopART does."""
    signature = inspect.signature(method)
    known = evaluated(signature, inspect.unwrap(method).__globals__)

    @wraps(method)
    def checked(*args: _P.args, **named: _P.kwargs) -> _R:
        try:
            given = bound(known, args, named)
        except TypeError as error:
            raise incompatible_arguments(method.__name__, signature, args[1:], named) from error
        with args[0]._builder._errors():  # type: ignore[attr-defined]
            return method(*given.args, **given.kwargs)

    return checked


def without_operands(method: Callable[_P, _R]) -> Callable[_P, _R]:
    """
    Gives the first parameter, `args`, the default of PopART's binding: no operands.

    In Python, a parameter with a default cannot precede one without.
    """

    @wraps(method)
    def filled(*args: _P.args, **named: _P.kwargs) -> _R:
        if len(args) == 1 and "args" not in named:
            named["args"] = []
        return method(*args, **named)

    return filled


def _attributes(signature: inspect.Signature, given: Mapping[str, Any]) -> dict[str, object]:
    """The attributes of the node: all parameters that are attributes, without empty defaults."""
    return {
        name.rstrip("_"): _value(parameter.annotation, given[name])
        for name, parameter in signature.parameters.items()
        if name not in _NO_ATTRIBUTES and not _is_empty_default(parameter, given[name])
    }


def _is_empty_default(parameter: inspect.Parameter, value: object) -> bool:
    return parameter.default == [] and isinstance(value, list | tuple) and not value


def _value(annotation: str, value: Any) -> object:
    """Converts an argument to its ONNX attribute: enumeration members to integers or names."""
    if annotation == "float":
        return float(value)
    if annotation == "ReductionType":
        return REDUCTIONS[value.name]
    if annotation == "ScatterReduction":
        return SCATTER_REDUCTIONS.get(value.name, value.name.lower())
    return int(value) if isinstance(value, PopartEnum | bool) else value
