"""Names with parts known at compile time: `past.{i}.key` in a `for`, and after `@each(i, n)`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from popgraph.builder.budget import ITERATION
from popgraph.builder.pgraph.check.annotations import EACH
from popgraph.builder.pgraph.check.const_eval import folded
from popgraph.builder.pgraph.check.file_context import FileContext
from popgraph.builder.pgraph.syntax.source import Failed
from popgraph.builder.pgraph.syntax.tree import (
    Annotation,
    Expression,
    Graph,
    Name,
    Node,
    Number,
    Parameter,
    Target,
    Text,
    walk,
)

_Node = TypeVar("_Node", bound=Node)
_Declared = TypeVar("_Declared", Parameter, Target)


def has_parts(root: Node) -> bool:
    """Whether a name below this node has a part in braces."""
    return any(isinstance(node, Name) and "{" in node.text for node in walk(root))


def with_parts(root: _Node, values: Mapping[str, Expression]) -> _Node:
    """Replaces `{i}` in all names below a node by the value of `i`, a number or a string."""
    texts = {
        f"{{{name}}}": str(value.value)
        for name, value in values.items()
        if isinstance(value, Number | Text)
    }
    return _replaced(root, texts) if texts else root


def _replaced(node: _Node, texts: Mapping[str, str]) -> _Node:
    if isinstance(node, Name):
        made = node.text
        for part, text in texts.items():
            made = made.replace(part, text)
        return node if made == node.text else replace(node, text=made)
    changed: dict[str, object] = {}
    for field, value in vars(node).items():
        if isinstance(value, Node):
            new: object = _replaced(value, texts)
        elif isinstance(value, tuple):
            new = tuple(_replaced(one, texts) if isinstance(one, Node) else one for one in value)
        else:
            continue
        if new != value:
            changed[field] = new
    return replace(node, **changed) if changed else node  # type: ignore[arg-type]


def with_each(context: FileContext, graph: Graph) -> Graph:
    """The graph with the inputs and outputs of every `@each` written out."""
    declared: list[Parameter | Target] = [*graph.inputs, *graph.outputs]
    if not any(map(_each, declared)):
        return graph
    inputs = tuple(made for one in graph.inputs for made in _written_out(context, one))
    outputs = tuple(made for one in graph.outputs for made in _written_out(context, one))
    plain = {one.name for one in graph.outputs}
    added = (one.name for one in outputs if one.name not in plain)
    numbered = frozenset(name.text for name in added if isinstance(name, Name))
    return replace(graph, inputs=inputs, outputs=outputs, numbered=numbered)


def _each(declared: Parameter | Target) -> Annotation | None:
    found = (one for one in declared.annotations if one.path.text == EACH)
    return next(found, None)


def _written_out(context: FileContext, declared: _Declared) -> Iterator[_Declared]:
    annotation = _each(declared)
    if annotation is None:
        yield declared
        return
    try:
        name, count = _range(context, annotation)
    except Failed:
        return
    others = tuple(one for one in declared.annotations if one is not annotation)
    plain = replace(declared, annotations=others)
    if not isinstance(plain.name, Name) or f"{{{name}}}" not in plain.name.text:
        context.source.parse_error(
            plain.name.span,
            f"this name is the same for each `{name}`",
            f"`past.{{{name}}}.key`, in backquotes",
        )
        return
    context.source.spend(annotation.span, ITERATION * count)
    for number in range(count):
        yield with_parts(plain, {name: Number(annotation.span, number)})


def _range(context: FileContext, annotation: Annotation) -> tuple[str, int]:
    """The name and the number of numbers of `@each(i, 12)`."""
    values = [one.value for one in annotation.arguments or () if one.keyword is None]
    if len(values) == 2 and isinstance(values[0], Name) and isinstance(values[1], Expression):
        count = folded(context.source, values[1], context.scope.known)
        if isinstance(count, Number) and isinstance(count.value, int) and count.value >= 0:
            return values[0].text, count.value
    context.source.parse_error(
        annotation.span,
        f"`@{EACH}` takes a name and a number that is known",
        f"`@{EACH}(i, 12)` declares twelve inputs",
    )
    raise Failed
