"""Lowers `for` by unrolling its body."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from popgraph.builder.budget import ITERATION
from popgraph.builder.pgraph.check.annotations import Notes
from popgraph.builder.pgraph.check.scope import Scope
from popgraph.builder.pgraph.lower.context import GraphContext
from popgraph.builder.pgraph.lower.expressions import known
from popgraph.builder.pgraph.lower.statements import lower_statements
from popgraph.builder.pgraph.syntax.source import Failed
from popgraph.builder.pgraph.syntax.tree import Expression, For, Items, Name, Number, Range


def lower_for(context: GraphContext, loop: For, notes: Notes) -> None:
    """Unrolls a `for`; names of values are prefixed by the iteration."""
    for target in loop.targets:
        if isinstance(target.name, Name):
            context.scope.check_new(target.name)
    first = loop.targets[0].name
    stem = notes.name or (first.text if isinstance(first, Name) else "for")
    for number, meanings in _iterations(context, loop):
        scope = Scope(context.source, context.scope, carries=True)
        body = context.within(scope, f"{context.prefix}{stem}{number}/")
        for target, meaning in zip(loop.targets, meanings, strict=True):
            if isinstance(target.name, Name):
                scope.define(target.name, meaning)
        lower_statements(body, loop.body.statements)


def _iterations(context: GraphContext, loop: For) -> Iterator[tuple[int, Sequence[Expression]]]:
    """Yields each iteration's number, and the values of the loop names in it."""
    if isinstance(loop.range, Range):
        first, last = _range_end(context, loop.range.first), _range_end(context, loop.range.last)
        context.source.spend(loop.range.span, ITERATION * max(0, last - first))
        for number in range(first, last):
            yield number, _unpacked(context, loop, Number(loop.range.span, number))
        return
    items = known(context, loop.range)
    if not isinstance(items, Items):
        context.source.parse_error(
            loop.range.span, "`for` iterates over a range or a list", "`0..12`, `[64, 128]`"
        )
        raise Failed
    context.source.spend(loop.range.span, ITERATION * len(items.items))
    for number, item in enumerate(items.items):
        yield number, _unpacked(context, loop, item)


def _unpacked(context: GraphContext, loop: For, item: Expression) -> Sequence[Expression]:
    """Unpacks an item into the names of a loop."""
    if len(loop.targets) == 1:
        return [item]
    if isinstance(item, Items) and len(item.items) == len(loop.targets):
        return item.items
    context.source.parse_error(
        item.span,
        f"this cannot be unpacked into {len(loop.targets)} names",
        "`for (c, stride) in [[64, 1], [128, 2]]`",
    )
    raise Failed


def _range_end(context: GraphContext, expression: Expression) -> int:
    found = known(context, expression)
    if isinstance(found, Number) and isinstance(found.value, int):
        return found.value
    context.source.parse_error(found.span, "the ends of a range must be integers")
    raise Failed
