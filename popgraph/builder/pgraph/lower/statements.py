"""Lowers statements in order; an error skips only its statement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from popgraph.builder.budget import ITERATION
from popgraph.builder.pgraph.check.annotations import Notes, notes_of
from popgraph.builder.pgraph.check.scope import defined_by
from popgraph.builder.pgraph.lower.context import GraphContext, StatementContext
from popgraph.builder.pgraph.lower.expressions import folding
from popgraph.builder.pgraph.syntax.source import TOO_DEEP, Failed
from popgraph.builder.pgraph.syntax.tree import Statement
from popgraph.support.errors import PopgraphError


def lower_statements(context: GraphContext, statements: Sequence[Statement]) -> None:
    """Lowers statements; errors are recorded in the source."""
    context.scope.announce(statements)
    for statement in statements:
        try:
            context.source.spend(statement.span, ITERATION)
            notes = notes_of(context.source, statement.annotations, folding(context), context.notes)
            context.rules.statement(replace(context, notes=notes.inherited), statement, notes)
        except Failed:
            _fail(context, statement)
        except RecursionError:
            context.source.parse_error(statement.span, *TOO_DEEP)
            _fail(context, statement)
        except PopgraphError as error:
            context.source.note(statement.span, error)
            _fail(context, statement)


def _fail(context: GraphContext, statement: Statement) -> None:
    """Defines the names of a failed statement, so that their uses are not reported as well."""
    for name in defined_by(statement):
        if not context.scope.defined_here(name.text):
            context.scope.define(name, None)


def context_of_definition(
    context: GraphContext, statement: Statement, notes: Notes
) -> GraphContext:
    """The context of a statement that defines names; fails if they are already defined."""
    names = defined_by(statement)
    for name in names:
        context.scope.check_new(name)
    stem = names[0].text if names else "_"
    return replace(context, statement=StatementContext(stem, names, notes.overload))
