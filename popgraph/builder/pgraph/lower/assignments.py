"""Lowers assignments `(y, z: f32[N]) = ...` with the declarations of their results."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from popgraph.builder.pgraph.check.annotations import Notes, value_notes
from popgraph.builder.pgraph.check.declared_types import declared_type
from popgraph.builder.pgraph.lower.context import GraphContext
from popgraph.builder.pgraph.lower.expressions import folding, lower_results
from popgraph.builder.pgraph.lower.inputs_and_outputs import checked_type
from popgraph.builder.pgraph.lower.nodes import describe_node
from popgraph.builder.pgraph.lower.value_names import full_name
from popgraph.builder.pgraph.syntax.tree import Assignment, Missing, Name, Target
from popgraph.dialects.onnx.metadata import declared


def lower_assignment(context: GraphContext, statement: Assignment, notes: Notes) -> None:
    """Evaluates the right side and defines the names on the left."""
    targets = statement.targets
    names = ["" if isinstance(one.name, Missing) else one.name.text for one in targets]
    _check_types(context, targets)
    values = lower_results(context, statement.value, [full_name(context, name) for name in names])
    describe_node(context, values, notes)
    given, kind = iter(values), "result" if len(targets) > 1 else "value"
    for target in targets:
        if isinstance(target.name, Name):
            value = next(given)
            _declare(context, target, value)
            context.scope.define(target.name, value, kind)


def _check_types(context: GraphContext, targets: Sequence[Target]) -> None:
    """Fails on invalid types before anything is lowered."""
    for target in targets:
        if target.type is not None:
            declared_type(context.source, target.type, context.scope)


def _declare(context: GraphContext, target: Target, value: SSAValue) -> None:
    """Records the declared type and annotations of a result."""
    if target.type is None and not target.annotations:
        return
    notes = value_notes(context.source, target.annotations, folding(context))
    type_ = checked_type(context, target, value, notes)
    name = context.writer.name_of(value)
    context.infos.append(declared(name, type_, notes.about, notes.denotations))
