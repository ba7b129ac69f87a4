"""Resolves calls of `graphcore` operators, and infers their result types."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from xdsl.ir import Attribute, SSAValue

from popgraph.builder.opset import enums
from popgraph.builder.opset.checks import Node, complaint
from popgraph.builder.opset.checks.reading import VERSION
from popgraph.builder.opset.enums import PopartEnum
from popgraph.builder.opset.graphcore_opset import AiGraphcoreOpset1
from popgraph.builder.pgraph.syntax.source import Failed, Source
from popgraph.builder.pgraph.syntax.tree import Call
from popgraph.dialects.onnx.types import UNKNOWN
from popgraph.support.errors import CallError, PopgraphError
from popgraph.support.names import closest


@dataclass(frozen=True)
class Described:
    """A node as PopART's builder would add it."""

    op_type: str
    attributes: Mapping[str, object]
    result_types: Sequence[Attribute]


CHECKED_LATER = frozenset(["Nll"])
"""Operators whose operands are checked later, with more precise messages."""


class _Sink:
    """Replaces the builder for the opset, and records the added node."""

    def __init__(self, operands: Sequence[SSAValue | None]) -> None:
        self.operands = operands
        self.described: Described | None = None

    def type_of(self, id: str) -> Attribute:
        value = self.operands[int(id)]
        return UNKNOWN if value is None else value.type

    def _errors(self) -> AbstractContextManager[None]:
        return nullcontext()

    def isInitializer(self, id: str) -> bool:
        """True: texts have their own rules for weights."""
        return True

    def refuses(
        self, op_type: str, domain: str, args: Sequence[str], attributes: Mapping[str, object]
    ) -> bool:
        """Raises an error for operators that PopART's sessions reject."""
        if op_type in CHECKED_LATER:
            return False
        types = [self.type_of(id) for id in args]
        node = Node(op_type, VERSION[domain], "", args, (), types, attributes, domain)
        if (said := complaint(node)) is not None:
            raise CallError(said)
        return False

    def add_custom_node(
        self,
        op_type: str,
        domain: str,
        args: Sequence[str],
        attributes: Mapping[str, object],
        result_types: Sequence[Attribute],
        debugContext: object,
    ) -> list[str]:
        self.described = Described(op_type, attributes, result_types)
        return [""] * len(result_types)


METHODS: dict[str, Callable[..., Any]] = {
    name: method
    for name, method in vars(AiGraphcoreOpset1).items()
    if callable(method) and not name.startswith("_")
}
"""PopART's operators by builder method."""


def describe(
    source: Source,
    call: Call,
    operands: Sequence[SSAValue | None],
    attributes: Mapping[str, object],
) -> Described | None:
    """
    The node of a call by builder method, checked like a builder call.

    None if the name is a node type, such as `Nll`, without a known signature.
    """
    name = call.path.parts[-1].text
    method = METHODS.get(name)
    if method is None:
        if name.islower():
            close = closest(name, METHODS, 0.5)
            hint = f"did you mean `{close}`?" if close else f"one of {', '.join(METHODS)}"
            source.parse_error(call.path.span, f"ai.graphcore has no operator `{name}`", hint)
            raise Failed
        return None
    sink = _Sink(operands)
    named = _arguments(source, call, method, attributes)
    try:
        method(AiGraphcoreOpset1(sink), [str(i) for i in range(len(operands))], **named)
    except PopgraphError as error:
        source.note(call.path.span, error)
        raise Failed from error
    assert sink.described is not None, f"{name} adds no node"
    return sink.described


def _arguments(
    source: Source, call: Call, method: Callable[..., Any], attributes: Mapping[str, object]
) -> dict[str, object]:
    """Converts attributes to the names and types of the method's parameters."""
    parameters = dict(inspect.signature(method).parameters)
    for name in ("self", "args", "debugContext"):
        parameters.pop(name, None)
    named = {}
    for name, value in attributes.items():
        key = name if name in parameters else f"{name}_"
        if key not in parameters:
            _refuse(source, call, f"has no attribute `{name}`", parameters)
        named[key] = _converted(source, call, name, value, str(parameters[key].annotation))
    for name, parameter in parameters.items():
        if parameter.default is inspect.Parameter.empty and name not in named:
            _refuse(source, call, f"needs the attribute `{name.rstrip('_')}`", parameters)
    return named


def _refuse(source: Source, call: Call, what: str, parameters: Mapping[str, object]) -> None:
    known = ", ".join(name.rstrip("_") for name in parameters)
    source.parse_error(
        call.path.span, f"`{call.path.text}` {what}", f"it takes {known or 'no attributes'}"
    )
    raise Failed


def _converted(source: Source, call: Call, name: str, value: object, annotation: str) -> object:
    """Converts a string to an enumeration member if the parameter requires one."""
    kind = getattr(enums, annotation, None)
    if not (isinstance(kind, type) and issubclass(kind, PopartEnum)):
        return value
    members = {member.name: member for member in kind}
    if value not in members:
        source.mismatch(call.path.span, f"`{name}` must be one of {', '.join(map(repr, members))}")
        raise Failed
    return members[str(value)]
