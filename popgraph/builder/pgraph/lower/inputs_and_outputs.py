"""Lowers the head of a graph: inputs, outputs, and their declared types."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from xdsl.ir import Attribute, SSAValue

from popgraph.builder.pgraph.check.annotations import ValueNotes, value_notes
from popgraph.builder.pgraph.check.declared_types import check_declared, declared_type
from popgraph.builder.pgraph.lower.context import GraphContext
from popgraph.builder.pgraph.lower.expressions import folding
from popgraph.builder.pgraph.lower.nodes import add_node
from popgraph.builder.pgraph.lower.tensor_literals import lower_literal
from popgraph.builder.pgraph.lower.value_names import full_name
from popgraph.builder.pgraph.syntax.source import Failed
from popgraph.builder.pgraph.syntax.tree import Formal, Name, Parameter, Target
from popgraph.dialects.onnx.attributes import ValueInfoAttr
from popgraph.dialects.onnx.metadata import declared
from popgraph.dialects.onnx.types import UNKNOWN


def lower_inputs(
    context: GraphContext,
    parameters: Sequence[Parameter | Formal],
    types: Sequence[Attribute] = (),
) -> None:
    """Lowers inputs; `types` are for those without a declared type."""
    # The inputs of a subgraph are given by its operator, so unused ones are not reported.
    kind = "input" if context.writer.parent is None else ""
    for index, parameter in enumerate(parameters):
        value = None
        with suppress(Failed):
            value = _input(context, parameter, types[index] if index < len(types) else UNKNOWN)
        context.scope.define(parameter.name, value, kind)


def _input(context: GraphContext, parameter: Parameter | Formal, type_: Attribute) -> SSAValue:
    context.scope.check_new(parameter.name)
    if parameter.type is None and context.writer.parent is None and context.writer.typed:
        context.source.parse_error(
            parameter.name.span,
            "an input needs a type",
            "`x: f32[N, 3]`; `x: f32` is a scalar, `x: f32[...]` has any shape",
        )
        raise Failed
    name, notes = full_name(context, parameter.name.text), ValueNotes()
    if isinstance(parameter, Parameter):
        notes = value_notes(context.source, parameter.annotations, folding(context))
    said: Attribute = UNKNOWN
    if parameter.type is not None:
        said = type_ = declared_type(context.source, parameter.type, context.scope)
    info = declared(name, said, notes.about, notes.denotations)
    return context.writer.add_input(name, type_, info=info)


def lower_outputs(context: GraphContext, targets: Sequence[Target]) -> None:
    """Lowers the outputs in the head of the graph."""
    with suppress(Failed):
        context.writer.set_outputs(*outputs_of(context, targets))


def outputs_of(
    context: GraphContext, targets: Sequence[Target]
) -> tuple[list[SSAValue], list[ValueInfoAttr]]:
    """The values and declarations of outputs; fails after reporting all errors."""
    values: list[SSAValue] = []
    infos: list[ValueInfoAttr] = []
    seen: set[str] = set()
    for target in targets:
        try:
            value = output_value(context, target, seen)
        except Failed:
            continue
        values.append(value)
        infos.append(_output_info(context, target, value))
    if len(values) < len(targets):
        raise Failed
    return values, infos


def output_value(context: GraphContext, target: Target, seen: set[str]) -> SSAValue:
    """The value of an output; `seen` are the names of earlier outputs."""
    name = target.name
    assert isinstance(name, Name), "the grammar requires a name here"
    if name.text in seen and not context.is_inner:
        context.source.parse_error(name.span, f"duplicate output `{name.text}`")
        raise Failed
    seen.add(name.text)
    value = result_named(context, name)
    if not context.prefix and context.writer.name_of(value) != name.text:
        names = [full_name(context, name.text)]
        value = add_node(context, "Identity", [value], names, name.span)[0]
    notes = value_notes(context.source, target.annotations, folding(context))
    checked_type(context, target, value, notes)
    return value


def _output_info(context: GraphContext, target: Target, value: SSAValue) -> ValueInfoAttr:
    """
    The declaration of an output.

    For file-level graphs, the inferred type, unless the text declares another.
    """
    notes = value_notes(context.source, target.annotations, folding(context))
    type_: Attribute = UNKNOWN if context.is_inner else value.type
    if target.type is not None:
        type_ = declared_type(context.source, target.type, context.scope)
    return declared(context.writer.name_of(value), type_, notes.about, notes.denotations)


def checked_type(
    context: GraphContext, target: Target, value: SSAValue, notes: ValueNotes
) -> Attribute:
    """The declared type of a value, checked against its inferred type."""
    if target.type is None:
        return UNKNOWN
    assert isinstance(target.name, Name)
    return check_declared(
        context.source,
        target.name.text,
        target.type,
        value,
        context.scope,
        unchecked=notes.unchecked,
    )


def result_named(context: GraphContext, name: Name) -> SSAValue:
    """The value of an output in the head."""
    if not context.scope.taken(name.text):
        close = context.scope.closest(name.text)
        hint = f"did you mean `{close}`?" if close else f"`{name.text} = ...` in the body"
        context.source.parse_error(name.span, f"nothing defines the output `{name.text}`", hint)
        raise Failed
    meaning = context.scope.meaning(name)
    if isinstance(meaning, SSAValue):
        return meaning
    return lower_literal(context, meaning, None, full_name(context, name.text))
