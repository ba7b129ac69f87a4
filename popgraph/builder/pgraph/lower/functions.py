"""Lowers `function` definitions to functions of the ONNX model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from xdsl.ir import Attribute

from popgraph.builder.pgraph.check.declared_types import declared_type
from popgraph.builder.pgraph.check.file_context import FileContext
from popgraph.builder.pgraph.check.graph_notes import GraphNotes, graph_notes
from popgraph.builder.pgraph.check.operators import Operator, domain_of
from popgraph.builder.pgraph.check.scope import Scope
from popgraph.builder.pgraph.lower.attribute_values import attribute_value
from popgraph.builder.pgraph.lower.context import GraphContext
from popgraph.builder.pgraph.lower.expressions import fold
from popgraph.builder.pgraph.lower.inputs_and_outputs import lower_inputs, lower_outputs
from popgraph.builder.pgraph.lower.rules import RULES
from popgraph.builder.pgraph.lower.statements import lower_statements
from popgraph.builder.pgraph.syntax.source import Failed
from popgraph.builder.pgraph.syntax.tree import (
    Argument,
    Assignment,
    Call,
    Formal,
    Function,
    Node,
    Text,
    walk,
)
from popgraph.dialects.onnx.attributeproto import from_python, kind_of_attribute
from popgraph.dialects.onnx.attributes import ValueInfoAttr
from popgraph.dialects.onnx.metadata import written_function
from popgraph.dialects.onnx.writer import FunctionKey, GraphWriter


def key_of(context: FileContext, function: Function) -> FunctionKey:
    """Domain, name and overload of a function."""
    domain = ".".join(part.text for part in function.path.parts[:-1])
    return domain, function.path.parts[-1].text, _notes(context, function).overload


def calls_itself(
    context: FileContext, key: FunctionKey, functions: Mapping[FunctionKey, Function]
) -> bool:
    """Whether a function is recursive, directly or indirectly."""
    pending, seen = [key], set[FunctionKey]()
    while pending:
        function = functions.get(pending.pop())
        called = set() if function is None else set(_called(context, function.body))
        if key in called:
            return True
        pending += called - seen
        seen |= called
    return False


def count_calls(context: FileContext, functions: Mapping[FunctionKey, Function]) -> None:
    """Computes the number of calls that a call of each function expands to."""
    calls = {key: list(_called(context, one.body)) for key, one in functions.items()}
    begun = set[FunctionKey]()
    waiting = list(functions)
    while waiting:
        key = waiting[-1]
        inner = [one for one in calls[key] if one in functions]
        if key not in begun:
            begun.add(key)
            waiting += [one for one in inner if one not in begun]
            continue
        waiting.pop()
        context.unfolded[key] = 1 + sum(context.unfolded.get(one, 1) for one in inner)


def _called(context: FileContext, root: Node) -> Iterator[FunctionKey]:
    """The functions called within a node."""
    overloads: dict[int, str] = {}
    for node in walk(root):
        if isinstance(node, Assignment):
            overloads[id(node.value)] = _overload(node)
        if isinstance(node, Call):
            overload = overloads.get(id(node), "")
            yield domain_of(node.path, context.opsets), node.path.parts[-1].text, overload


def _overload(node: Node) -> str:
    for annotation in node.annotations if isinstance(node, Assignment) else ():
        match annotation.path.text, annotation.arguments:
            case "overload", [Argument(value=Text(value=text))]:
                return text
    return ""


def _notes(context: FileContext, function: Function) -> GraphNotes:
    return graph_notes(
        context.source, function.annotations, lambda one: one, function.body.doc, "function"
    )


def lower_function(file: FileContext, key: FunctionKey, function: Function) -> None:
    """Adds a function to the model; its values are untyped."""
    writer = GraphWriter(file.opsets, file.store, name=key[1], calls=file.calls, typed=False)
    scope = Scope(file.source, file.scope)
    context = GraphContext(file, writer, scope, RULES, is_inner=True)
    context = context.described(_notes(file, function))
    defaults = _defaults(context, function.attributes)
    context = replace(context, references=_references(function.attributes, defaults))
    lower_inputs(context, function.inputs)
    lower_statements(context, function.body.statements)
    lower_outputs(context, function.outputs)
    if writer.outputs is not None:
        infos = [*_declared(context, function.inputs), *context.infos]
        file.functions[key] = writer.function(
            *key,
            attributes=[one.name.text for one in function.attributes if one.default is None],
            defaults=defaults,
            infos=infos,
            rest=written_function(context.about.about),
        )


def _references(formals: Sequence[Formal], defaults: Mapping[str, Attribute]) -> dict[str, str]:
    """The attributes of a function, with their kinds if defaults determine them."""
    return {
        formal.name.text: kind_of_attribute(defaults[formal.name.text])
        if formal.name.text in defaults
        else ""
        for formal in formals
    }


def _defaults(context: GraphContext, formals: Sequence[Formal]) -> dict[str, Attribute]:
    file, found = context.file, dict[str, Attribute]()
    for formal in formals:
        if formal.default is None:
            continue
        name = formal.name
        try:
            operator = Operator(name.text, "")
            folded = fold(context, formal.default)
            value = attribute_value(file, operator, name, folded, context.scope)
            found[name.text] = from_python(name.text, value, None, file.store)
        except Failed:
            continue
    return found


def _declared(context: GraphContext, formals: Sequence[Formal]) -> list[ValueInfoAttr]:
    """The declared types of inputs."""
    infos = []
    for formal in formals:
        if formal.type is None:
            continue
        try:
            type_ = declared_type(context.source, formal.type, context.scope)
        except Failed:
            continue
        infos.append(ValueInfoAttr.of(formal.name.text, type_))
    return infos
