"""Prints annotations from the metadata of nodes, values, graphs and models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from popgraph.builder.pgraph.check.annotations import NODE_NOTES
from popgraph.builder.pgraph.check.node_names import Named, NodeNames, rule_of
from popgraph.builder.pgraph.print.formatter import docstring
from popgraph.builder.pgraph.print.from_values import NOWHERE, name
from popgraph.builder.pgraph.syntax.transform import docstring_text
from popgraph.builder.pgraph.syntax.tree import (
    Annotation,
    Argument,
    Bytes,
    Expression,
    Items,
    Number,
    Path,
    Text,
    Truth,
)
from popgraph.dialects.onnx import Graph, Model, OnnxOp
from popgraph.dialects.onnx.attributeproto import from_python
from popgraph.dialects.onnx.attributes import ValueInfoAttr
from popgraph.dialects.onnx.custom import Custom
from popgraph.dialects.onnx.metadata import (
    Metadata,
    graph_metadata,
    merged_proto,
    model_metadata,
    node_metadata,
    notes_on,
    value_metadata,
    with_declarations,
    with_notes,
)
from popgraph.dialects.onnx.op import to_python
from popgraph.dialects.onnx.writer import IR_VERSION
from popgraph.dialects.program import WeightStore


def note(word: str, *values: object) -> Annotation:
    """`@ipu(1)`; without values, no parentheses."""
    arguments = tuple(Argument(NOWHERE, None, _literal(value)) for value in values)
    return Annotation(NOWHERE, Path(NOWHERE, (name(word),)), arguments or None)


def _literal(value: object) -> Expression:
    match value:
        case bool():
            return Truth(NOWHERE, value)
        case int() | float():
            return Number(NOWHERE, value)
        case bytes():
            return Bytes(NOWHERE, value)
        case list():
            return Items(NOWHERE, tuple(map(_literal, value)))
        case _:
            return Text(NOWHERE, str(value))


def about_notes(about: Metadata, prefix: str = "") -> list[Annotation]:
    """`@doc`, `@meta` and `@proto`."""
    found = [note(f"{prefix}doc", about.doc)] if about.doc else []
    found += [note(f"{prefix}meta", *pair) for pair in about.metadata]
    return found + ([note("proto", about.proto)] if about.proto else [])


def is_docstring(doc: str) -> bool:
    """Whether a doc string can express this text."""
    return docstring_text(docstring(doc, "")) == doc


# nodes


def node_notes(op: OnnxOp, expected: str, weights: WeightStore) -> tuple[Annotation, ...]:
    """The annotations of a node; `expected` is its name by default."""
    found = [] if op.node_name == expected else [note("name", op.node_name)]
    if isinstance(op, Custom) and op.overload is not None:
        found.append(note("overload", op.overload.text))
    about = node_metadata(op)
    for key, attribute in notes_on(op, weights).items():
        said = _note(key, to_python(attribute, weights))
        if said is not None and from_python(key, said[1], None, weights) == attribute:
            found.append(said[0])
        else:
            about = with_notes(about, key, attribute, weights)
    return (*found, *about_notes(about))


def _note(key: str, value: object) -> tuple[Annotation, object] | None:
    """The annotation of a PopART attribute, and the value that it will set."""
    for word, (attribute, made) in NODE_NOTES.items():
        if attribute != key or isinstance(value, list):
            continue
        if word == "recompute":
            truth = value == made(True)
            return (note(word), made(True)) if truth else (note(word, False), made(False))
        return note(word, value), made(value)
    plain = isinstance(value, int | float | str | bytes | list)
    return (note("attribute", key, value), value) if plain else None


# values


def value_notes(info: ValueInfoAttr) -> tuple[Annotation, ...]:
    """The annotations of a declared value."""
    about, denotations = value_metadata(info)
    shown = [note("denotation", *denotations)] if denotations else []
    return (*shown, *about_notes(about))


# graphs and models


def names_rule(nodes: Sequence[OnnxOp]) -> tuple[NodeNames, list[Annotation]]:
    """The naming rule of a graph's nodes, and the annotation for it."""
    rule = rule_of([named(node) for node in nodes])
    return NodeNames(rule), [] if rule is None else [note("names", rule)]


def named(op: OnnxOp) -> Named:
    first = next(filter(None, op.output_names), "")
    return Named(op.node_name, op.op_type, first)


def graph_annotations(
    about: Metadata, loose: Sequence[ValueInfoAttr], kind: str = "graph"
) -> tuple[str, list[Annotation]]:
    """The doc string of a body, and other annotations; `loose` are declarations of other values."""
    if loose:
        about = with_declarations(kind, about, loose)
    doc = about.doc if is_docstring(about.doc) else ""
    return doc, about_notes(replace(about, doc="" if doc else about.doc))


def model_annotations(
    model: Model, graph: Graph, loose: Sequence[ValueInfoAttr]
) -> tuple[str, str, list[Annotation]]:
    """The doc strings of the file and its graph, and other annotations of the model."""
    said, about = model_metadata(model), graph_metadata(graph)
    if loose:
        about = with_declarations("graph", about, loose)
    proto = merged_proto(said.proto, about.proto)
    doc = said.doc if is_docstring(said.doc) else ""
    graph_doc = about.doc if is_docstring(about.doc) else ""
    left = replace(said, doc="" if doc else said.doc, proto=b"")
    graph_left = replace(about, doc="" if graph_doc else about.doc, proto=b"")
    found = [*_versions(model), *about_notes(left), *about_notes(graph_left, "graph_")]
    if not graph.graph_name.data:
        found.append(note("unnamed"))
    if proto:
        found.append(note("proto", proto))
    return doc, graph_doc, found


def _versions(model: Model) -> list[Annotation]:
    found = []
    if (number := model.ir_version.value.data) != IR_VERSION:
        found.append(note("ir_version", number))
    producer = ["" if one is None else one.text for one in (model.producer, model.producer_version)]
    if any(producer):
        found.append(note("producer", *(producer if producer[1] else producer[:1])))
    if model.model_domain is not None and model.model_domain.data:
        found.append(note("domain", model.model_domain.text))
    if model.model_version is not None and model.model_version.value.data:
        found.append(note("version", model.model_version.value.data))
    return found
