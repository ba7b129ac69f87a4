"""Finds the uses of a name, and renames them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass

from popgraph.builder.pgraph.print.expression_text import name_text
from popgraph.builder.pgraph.syntax.source import Source
from popgraph.builder.pgraph.syntax.tree import Call, File, Node, Span, Template
from popgraph.support.errors import PopgraphError


def uses(source: Source, file: File, line: int, column: int) -> list[Span]:
    """All positions of the name at a position, including its definition."""
    for span, (home, _) in source.meanings.items():
        if is_at(span, line, column):
            word = source.written(span)
            same = [one for one, (other, _) in source.meanings.items() if other == home]
            found = {one for one in (home, *same) if source.written(one) == word}
            return in_order(found)
    for template in templates(file):
        spans = [template.name.span, *_calls(file, template.name.text)]
        if any(is_at(span, line, column) for span in spans):
            return in_order(set(spans))
    return []


def renamed(source: Source, file: File, line: int, column: int, name: str) -> list[Span]:
    """The positions to rename; an error if the new name is already used."""
    found = uses(source, file, line, column)
    others = {source.written(span) for span in source.meanings if span not in found}
    others |= {template.name.text for template in templates(file)}
    if not name:
        raise PopgraphError("a name has at least one character")
    if name_text(name) in others:
        raise PopgraphError(f"{name!r} is already used in this text")
    return found


def with_name(text: str, spans: Iterable[Span], name: str) -> str:
    """The text with another name at these positions."""
    lines = text.split("\n")
    for span in sorted(spans, key=lambda span: (span.line, -span.column)):
        line = lines[span.line - 1]
        lines[span.line - 1] = line[: span.column - 1] + name + line[span.end_column - 1 :]
    return "\n".join(lines)


def templates(file: File) -> Iterator[Template]:
    return (item for item in file.items if isinstance(item, Template))


def _calls(file: File, name: str) -> Iterator[Span]:
    """The positions of calls of a template."""
    for node in walk(file):
        if isinstance(node, Call) and [part.text for part in node.path.parts] == [name]:
            yield node.path.parts[0].span


def walk(node: object) -> Iterator[Node]:
    """A node and its descendants, in text order."""
    if isinstance(node, tuple):
        for one in node:
            yield from walk(one)
    elif isinstance(node, Node):
        yield node
        for field in fields(node) if is_dataclass(node) else ():
            yield from walk(getattr(node, field.name))


def is_at(span: Span, line: int, column: int) -> bool:
    return span.line == line and span.column <= column <= span.end_column


def in_order(spans: set[Span]) -> list[Span]:
    return sorted(spans, key=lambda span: (span.line, span.column))
