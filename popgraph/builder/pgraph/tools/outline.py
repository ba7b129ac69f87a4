"""The outline of a text: its graphs, templates and functions, with their inputs and weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from popgraph.builder.pgraph.syntax.tree import (
    Constant,
    File,
    Formal,
    Function,
    Graph,
    Item,
    Name,
    Parameter,
    Span,
    Template,
    Train,
    Weight,
)


@dataclass(frozen=True)
class Symbol:
    """A named item, and the items inside it."""

    name: str
    kind: str
    """graph, template, function, train, input, weight or constant."""
    span: Span
    """The span of the whole item."""
    name_span: Span
    inside: Sequence[Symbol] = ()


def outline(file: File) -> list[Symbol]:
    return [symbol for item in file.items for symbol in _symbols(item)]


def _symbols(item: Item) -> Iterator[Symbol]:
    match item:
        case Graph(name=Name() as name):
            inside = [*_inputs(item.inputs), *_weights(item.body.statements)]
            yield Symbol(name.text, "graph", item.span, name.span, inside)
        case Template():
            inside = [*_inputs(item.formals), *_weights(item.body.statements)]
            yield Symbol(item.name.text, "template", item.span, item.name.span, inside)
        case Function():
            inside = [*_inputs(item.inputs), *_weights(item.body.statements)]
            whole = ".".join(part.text for part in item.path.parts)
            yield Symbol(whole, "function", item.span, item.path.span, inside)
        case Train():
            yield Symbol("train", "train", item.span, item.span)


def _inputs(formals: Sequence[Parameter | Formal]) -> Iterator[Symbol]:
    for one in formals:
        yield Symbol(one.name.text, "input", one.span, one.name.span)


def _weights(statements: Sequence[object]) -> Iterator[Symbol]:
    for one in statements:
        if isinstance(one, Weight | Constant):
            kind = "weight" if isinstance(one, Weight) else "constant"
            yield Symbol(one.name.text, kind, one.span, one.name.span)
