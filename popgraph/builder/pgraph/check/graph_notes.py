"""Checks and reads annotations of graphs, functions and models, such as `@ir_version(8)`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from xdsl.dialects.builtin import IntegerAttr, i64
from xdsl.ir import Attribute

from popgraph.builder.pgraph.check.annotations import Value, added_about, read_annotations, refuse
from popgraph.builder.pgraph.syntax.source import Source
from popgraph.builder.pgraph.syntax.tree import Annotation, Expression
from popgraph.dialects.onnx.attributes import MetadataAttr
from popgraph.dialects.onnx.metadata import NOTHING, Metadata, split_proto
from popgraph.dialects.onnx.types import NamesAttr
from popgraph.dialects.onnx.writer import IR_VERSION
from popgraph.dialects.program import BytesAttr

ON_GRAPHS = ("names", "doc", "meta", "proto")
"""Annotations of subgraphs and functions."""

ON_FUNCTIONS = (*ON_GRAPHS, "overload")

ON_MODELS = (
    *("ir_version", "producer", "domain", "version", "names", "doc", "meta", "graph_doc"),
    *("graph_meta", "weights", "weights_are_inputs", "unnamed", "proto"),
)
"""Annotations of file-level graphs, mostly about the resulting model."""


@dataclass(frozen=True)
class GraphNotes:
    """The annotations of a graph or function."""

    rule: str | None = None
    """The naming rule of its nodes."""
    about: Metadata = NOTHING
    overload: str = ""


@dataclass(frozen=True)
class ModelNotes(GraphNotes):
    """The annotations of a file-level graph."""

    model: Metadata = NOTHING
    ir_version: int = IR_VERSION
    producer: tuple[str, str] = ("", "")
    domain: str = ""
    version: int = 0
    unnamed: bool = False
    weights: str = ""
    """The file with its weights, beside the text."""
    weights_are_inputs: bool = False
    """Whether every weight is listed after the inputs, as in models before IR version 4."""

    def attributes(self, doc: str) -> dict[str, Attribute]:
        """The properties of the model; `doc` is the comment at the beginning of the file."""
        texts = {
            "producer": self.producer[0],
            "producer_version": self.producer[1],
            "model_domain": self.domain,
            "doc": self.model.doc or doc,
        }
        found: dict[str, Attribute] = {
            key: BytesAttr.of(text) for key, text in texts.items() if text
        }
        if self.version:
            found["model_version"] = IntegerAttr(self.version, i64)
        if self.model.metadata:
            pairs = [text for pair in self.model.metadata for text in pair]
            found["metadata"] = MetadataAttr(NamesAttr.of(pairs))
        if self.model.proto:
            found["rest"] = BytesAttr(self.model.proto)
        return found


def graph_notes(
    source: Source,
    annotations: Iterable[Annotation],
    fold: Callable[[Expression], Expression],
    doc: str,
    kind: str = "graph",
) -> GraphNotes:
    """The annotations of a subgraph or function; `doc` is the comment in its body."""
    notes = GraphNotes(about=Metadata(doc))
    for annotation, values in read_annotations(source, annotations, fold):
        word = annotation.path.text
        about = added_about(notes.about, word, values, kind)
        if about is not None:
            notes = replace(notes, about=about)
            continue
        match word, values:
            case "names", [str(rule)]:
                notes = replace(notes, rule=rule)
            case "overload", [str(text)] if kind == "function":
                notes = replace(notes, overload=text)
            case _:
                refuse(source, annotation, ON_FUNCTIONS if kind == "function" else ON_GRAPHS)
    return notes


def model_notes(
    source: Source,
    annotations: Iterable[Annotation],
    fold: Callable[[Expression], Expression],
    doc: str,
) -> ModelNotes:
    """The annotations of a file-level graph; `doc` is the comment in its body."""
    notes = ModelNotes(about=Metadata(doc))
    for annotation, values in read_annotations(source, annotations, fold):
        added = _added(notes, annotation.path.text, values)
        if added is None:
            refuse(source, annotation, ON_MODELS)
        notes = added or notes
    return notes


def _added(notes: ModelNotes, word: str, values: list[Value]) -> ModelNotes | None:
    match word, values:
        case "names", [str(rule)]:
            return replace(notes, rule=rule)
        case "ir_version", [int(number)]:
            return replace(notes, ir_version=number)
        case "producer", [str(name)]:
            return replace(notes, producer=(name, ""))
        case "producer", [str(name), str(version)]:
            return replace(notes, producer=(name, version))
        case "domain", [str(domain)]:
            return replace(notes, domain=domain)
        case "version", [int(number)]:
            return replace(notes, version=number)
        case "weights", [str(file)]:
            return replace(notes, weights=file)
        case "unnamed", []:
            return replace(notes, unnamed=True)
        case "weights_are_inputs", []:
            return replace(notes, weights_are_inputs=True)
        case (("graph_doc" | "graph_meta"), _):
            about = added_about(notes.about, word.removeprefix("graph_"), values, "graph")
            return None if about is None else replace(notes, about=about)
    model = added_about(notes.model, word, values, "model")
    if model is None:
        return None
    if word != "proto":
        return replace(notes, model=model)
    rest, graph = split_proto(model.proto)
    return replace(notes, model=replace(model, proto=rest), about=replace(notes.about, proto=graph))
