"""Editor annotations in a text: inferred types, and kinds of names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.ir import Block, SSAValue

from popgraph.builder.pgraph.syntax.source import Source
from popgraph.builder.pgraph.syntax.tree import Annotation, Call, File, Node, Span, Type
from popgraph.builder.pgraph.tools.uses import templates, walk
from popgraph.dialects.onnx.types import describe

KINDS = ("parameter", "variable", "enumMember", "function", "method", "type", "decorator")
"""Token types of inputs, values, constants, operators, templates, types, annotations."""


@dataclass(frozen=True)
class Hint:
    """An inferred type to show after a name."""

    line: int
    column: int
    text: str


def hints(source: Source) -> Iterator[Hint]:
    """The types of values without a declared type."""
    lines = source.text.split("\n")
    for span, (home, meaning) in source.meanings.items():
        said = lines[span.line - 1][span.end_column - 1 :].lstrip().startswith(":")
        if span == home and isinstance(meaning, SSAValue) and not said:
            yield Hint(span.line, span.end_column, f": {describe(meaning.type)}")


@dataclass(frozen=True)
class Token:
    """A name and its kind."""

    span: Span
    kind: str


def tokens(source: Source, file: File) -> list[Token]:
    """The names of a text in order."""
    known = {template.name.text for template in templates(file)}
    found: dict[Span, str] = {}
    for node in walk(file):
        for span, kind in _of_node(node, known):
            found[span] = kind
    for span, (_, meaning) in source.meanings.items():
        found[span] = _of_meaning(meaning)
    whole = [span for span in found if span.line == span.end_line and source.written(span)]
    in_order = sorted(whole, key=lambda span: (span.line, span.column))
    return [Token(span, found[span]) for span in in_order]


def _of_node(node: Node, known: set[str]) -> Iterator[tuple[Span, str]]:
    match node:
        case Call():
            name = ".".join(part.text for part in node.path.parts)
            yield node.path.span, "method" if name in known else "function"
        case Type():
            yield node.dtype.span, "type"
        case Annotation():
            yield node.path.span, "decorator"


def _of_meaning(meaning: object) -> str:
    if not isinstance(meaning, SSAValue):
        return "enumMember"
    return "parameter" if isinstance(meaning.owner, Block) else "variable"
