"""Lowers calls of a `def` by inlining its statements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from xdsl.ir import SSAValue

from popgraph.builder.budget import ITERATION
from popgraph.builder.pgraph.check.file_context import Definition
from popgraph.builder.pgraph.check.scope import Scope
from popgraph.builder.pgraph.lower.context import GraphContext
from popgraph.builder.pgraph.lower.inputs_and_outputs import output_value
from popgraph.builder.pgraph.lower.statements import lower_statements
from popgraph.builder.pgraph.lower.template_arguments import bind
from popgraph.builder.pgraph.lower.value_names import call_label
from popgraph.builder.pgraph.syntax.source import Failed
from popgraph.builder.pgraph.syntax.tree import Call, Name, Template

MAX_CALLS = 80
"""Deepest nesting of `def` calls."""


def lower_template_call(
    context: GraphContext, definition: Definition, call: Call, names: Sequence[str] | None
) -> list[SSAValue]:
    """Inlines a `def`; returns its results."""
    template = definition.template
    definition.context.called.add(template.name.text)
    context.source.spend(call.path.span, ITERATION)
    _check_depth(context, definition, call)
    _check_results(context, template, call, names)
    scope = Scope(definition.context.source, definition.context.scope)
    passed = bind(context, definition, call, scope)
    known = {**definition.context.definitions, **passed}
    own = context.file
    label = call_label(context, template.name.text, names)
    given = [label] if names is None else names
    inner = GraphContext(
        replace(definition.context, opsets=own.opsets, definitions=known, weights=own.weights),
        context.writer,
        scope,
        context.rules,
        is_inner=context.is_inner,
        calls=(*context.calls, definition.full_name),
        prefix=label + "/",
        renamed=_renamed(template, given),
        notes=context.notes,
        node_names=context.node_names,
        infos=context.infos,
    )
    with context.source.calling(call.path.span):
        return _written_out(inner, template, given)


def _renamed(template: Template, given: Sequence[str]) -> dict[str, str]:
    """The caller's names of the results."""
    return {
        target.name.text: name
        for target, name in zip(template.outputs, given, strict=False)
        if isinstance(target.name, Name) and name
    }


def _written_out(inner: GraphContext, template: Template, given: Sequence[str]) -> list[SSAValue]:
    """Lowers the statements of a template; returns the results that have a name in `given`."""
    lower_statements(inner, template.body.statements)
    inner.scope.use(target.name for target in template.outputs)
    return [
        output_value(inner, target, set())
        for target, name in zip(template.outputs, given, strict=False)
        if name
    ]


def _check_depth(context: GraphContext, called: Definition, call: Call) -> None:
    """Fails if calls are nested too deeply."""
    if len(context.calls) < MAX_CALLS:
        return
    name = called.template.name.text
    what = f"calls of `def`s are nested more than {MAX_CALLS} levels deep"
    hint = "inline some of them, or let the graph call them in sequence"
    if called.full_name in context.calls:
        what, hint = f"`{name}` calls itself endlessly", ""
    context.source.parse_error(call.path.span, what, hint)
    raise Failed


def _check_results(
    context: GraphContext, template: Template, call: Call, names: Sequence[str] | None
) -> None:
    """Fails if a call requests more results than there are."""
    count = len(template.outputs)
    if names is None or len(names) <= count:
        return
    results = "one result" if count == 1 else f"{count} results"
    context.source.parse_error(
        call.path.span, f"`{template.name.text}` has {results}, not {len(names)}"
    )
    raise Failed
