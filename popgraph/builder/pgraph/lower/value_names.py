"""Names of values: prefixed names of the text, intermediate values, calls."""

from __future__ import annotations

from collections.abc import Sequence

from popgraph.builder.pgraph.lower.context import GraphContext


def full_name(context: GraphContext, name: str) -> str:
    """The unique name in the graph for a name of the text."""
    wanted = context.renamed.get(name, context.prefix + name)
    full, number = wanted, 1
    while name and context.writer.has_value(full):
        number += 1
        full = f"{wanted}_{number}"
    return full if name else ""


def next_step(context: GraphContext) -> str:
    """The name of the next intermediate value of this statement."""
    statement = context.statement
    stem = context.renamed.get(statement.stem, context.prefix + statement.stem)
    while True:
        statement.steps += 1
        name = f"{stem}/{statement.steps}"
        if not context.scope.taken(name) and not context.writer.has_value(name):
            return name


def call_label(context: GraphContext, template: str, names: Sequence[str] | None) -> str:
    """The unique prefix of values inside a call."""
    stem = f"{context.prefix}{template}"
    defined = context.statement.stem
    if defined not in context.renamed:
        stem = f"{context.prefix}{defined}" + ("" if names is not None else f"/{template}")
    while True:
        count = context.labels.get(stem, 0) + 1
        context.labels[stem] = count
        label = stem if count == 1 else f"{stem}{count}"
        if names is not None or not context.writer.has_value(label):
            return label
