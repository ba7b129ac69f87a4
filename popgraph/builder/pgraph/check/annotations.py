"""Checks and reads annotations of nodes, weights and values, such as `@ipu(1)`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from xdsl.dialects.builtin import NameLoc, StringAttr

from popgraph.builder.opset.enums import RecomputeType
from popgraph.builder.pgraph.check.declared_types import type_of
from popgraph.builder.pgraph.syntax.literals import python_value
from popgraph.builder.pgraph.syntax.source import Failed, Source
from popgraph.builder.pgraph.syntax.tree import Annotation, Expression, Missing
from popgraph.dialects.onnx.annotations import (
    EXCLUDED,
    IPU,
    MEMORY,
    PARTIALS,
    PHASE,
    PRIORITY,
    RECOMPUTE,
    STAGE,
    set_attribute,
)
from popgraph.dialects.onnx.attributeproto import from_python
from popgraph.dialects.onnx.metadata import NOTHING, Metadata, is_message, set_node_metadata
from popgraph.dialects.onnx.op import OnnxOp
from popgraph.dialects.program import BytesAttr, WeightStore
from popgraph.support.names import closest

Value = int | float | bool | str | bytes | list[object]


def _recompute(wanted: Value = True) -> int:
    return int(RecomputeType.Recompute if wanted else RecomputeType.Checkpoint)


NODE_NOTES: Mapping[str, tuple[str, Callable[..., object]]] = {
    "ipu": (IPU, int),
    "stage": (STAGE, int),
    "phase": (PHASE, int),
    "priority": (PRIORITY, float),
    "memory": (MEMORY, float),
    "partials": (PARTIALS, lambda type_: str(type_).upper()),
    "exclude": (EXCLUDED, lambda *patterns: list(patterns)),
    "recompute": (RECOMPUTE, _recompute),
}
"""Annotations of nodes: the attribute that the builder would set, and its type."""

ABOUT = ("name", "doc", "meta", "attribute", "overload", "input", "proto")
"""Further annotations of nodes and weights: names, texts, metadata."""

EACH = "each"
"""`@each(i, 12)`: an input or output of a file's graph for each number."""

ON_VALUES = ("doc", "meta", "denotation", "unchecked", "proto", EACH)
"""Annotations of inputs, results and outputs."""


@dataclass(frozen=True)
class Notes:
    """The annotations of nodes and weights, for a whole region and for a single one."""

    attributes: Mapping[str, object] = field(default_factory=dict)
    name: str | None = None
    about: Metadata = NOTHING
    overload: str = ""
    place: int | None = None
    """Index of a weight among the inputs of its graph, if listed there."""
    declared: Expression | None = None
    """The declared type in that list, if it differs."""

    @property
    def inherited(self) -> Notes:
        """The annotations that apply to every node of a region."""
        return Notes(self.attributes)

    def put(self, op: OnnxOp, store: WeightStore) -> None:
        """Sets the annotations on a node."""
        set_node_metadata(op, self.about)
        for note, held in self.attributes.items():
            set_attribute(op, note, from_python(note, held, None, store), store)
        if self.name is not None:
            name_node(op, self.name)


def name_node(op: OnnxOp, name: str) -> None:
    """Sets the name of a node; an empty one removes it."""
    op.attributes.pop("name", None)
    if not name:
        return
    op.attributes["name"] = BytesAttr.of(name)
    place = op.location
    inner = place.location if isinstance(place, NameLoc) else place
    op.location = NameLoc(StringAttr(name), inner)


@dataclass(frozen=True)
class ValueNotes:
    """The annotations of an input, a result or an output."""

    about: Metadata = NOTHING
    denotations: tuple[str, ...] = ()
    unchecked: bool = False
    """Whether the declared type is kept even if inference finds another."""


def notes_of(
    source: Source,
    annotations: Iterable[Annotation],
    fold: Callable[[Expression], Expression],
    before: Notes,
) -> Notes:
    """Adds annotations to the current notes; errors are reported and skipped."""
    notes = before
    for annotation, values in read_annotations(source, annotations, fold):
        added = _added(notes, annotation, values)
        if added is None:
            refuse(source, annotation, [*NODE_NOTES, *ABOUT])
        notes = added or notes
    return notes


def read_annotations(
    source: Source,
    annotations: Iterable[Annotation],
    fold: Callable[[Expression], Expression],
) -> Iterator[tuple[Annotation, list[Value]]]:
    """Annotations with their arguments, without those with invalid arguments."""
    for annotation in annotations:
        with suppress(Failed):
            yield annotation, _arguments(source, annotation, fold)


def _arguments(
    source: Source, annotation: Annotation, fold: Callable[[Expression], Expression]
) -> list[Value]:
    """The arguments of an annotation, which must be unnamed and constant."""
    values: list[Value] = []
    for argument in annotation.arguments or ():
        value: Value | None = None
        if argument.keyword is None and not isinstance(argument.value, Missing):
            folded = fold(argument.value)
            value = python_value(folded)
            if value is None and annotation.path.text == "input" and values and type_of(folded):
                value = True
        if value is None:
            source.parse_error(
                argument.span,
                "an annotation takes numbers, strings and lists of them",
                '`@ipu(1)`, `@name("conv1")`',
            )
            raise Failed
        values.append(value)
    return values


def _added(notes: Notes, annotation: Annotation, values: list[Value]) -> Notes | None:
    """The notes with one annotation more; None for unknown words and wrong arguments."""
    word = annotation.path.text
    try:
        if word in NODE_NOTES:
            attribute, made = NODE_NOTES[word]
            return replace(notes, attributes={**notes.attributes, attribute: made(*values)})
        match word, values:
            case "name", [str(text)]:
                return replace(notes, name=text)
            case "overload", [str(text)]:
                return replace(notes, overload=text)
            case "attribute", [str(key), value]:
                return replace(notes, attributes={**notes.attributes, key: value})
            case "input", [int(place)] if place >= 0:
                return replace(notes, place=place)
            case "input", [int(place), _] if place >= 0 and type_of(_second(annotation)):
                return replace(notes, place=place, declared=_second(annotation))
    except (TypeError, ValueError):
        return None
    about = added_about(notes.about, word, values, "node")
    return None if about is None else replace(notes, about=about)


def _second(annotation: Annotation) -> Expression | None:
    arguments = annotation.arguments or ()
    found = arguments[1].value if len(arguments) > 1 else None
    return None if isinstance(found, Missing) else found


def added_about(about: Metadata, word: str, values: list[Value], kind: str) -> Metadata | None:
    """The metadata after `@doc`, `@meta` or `@proto`; None for other words and wrong arguments."""
    match word, values:
        case "doc", [str(text)]:
            return replace(about, doc=text)
        case "meta", [str(key), str(value)]:
            return replace(about, metadata=(*about.metadata, (key, value)))
        case "proto", [bytes(data)] if is_message(kind, data):
            return replace(about, proto=data)
    return None


def value_notes(
    source: Source,
    annotations: Iterable[Annotation],
    fold: Callable[[Expression], Expression],
) -> ValueNotes:
    """The annotations of a value; errors are reported and skipped."""
    notes, known = ValueNotes(), list[Annotation]()
    for annotation in annotations:
        # Arguments of others need not be constants, such as the name in `@each(i, 12)`.
        if annotation.path.text in ON_VALUES and annotation.path.text != EACH:
            known.append(annotation)
        else:
            refuse(source, annotation, ON_VALUES)
    for annotation, values in read_annotations(source, known, fold):
        word = annotation.path.text
        about = added_about(notes.about, word, values, "value")
        if about is not None:
            notes = replace(notes, about=about)
        elif word == "denotation" and all(isinstance(one, str) for one in values):
            notes = replace(notes, denotations=tuple(map(str, values)))
        elif word == "unchecked" and not values:
            notes = replace(notes, unchecked=True)
        else:
            refuse(source, annotation, ON_VALUES)
    return notes


def refuse(source: Source, annotation: Annotation, known: Iterable[str]) -> None:
    """Reports an annotation that is not allowed here, or has wrong arguments."""
    word = annotation.path.text
    if word not in known:
        unknown_annotation(source, annotation, known)
        return
    source.parse_error(annotation.span, f"`@{word}` does not take this", _EXAMPLES.get(word, ""))


def unknown_annotation(source: Source, annotation: Annotation, known: Iterable[str]) -> None:
    """Reports an unknown annotation."""
    words = list(known)
    close = closest(annotation.path.text, words, 0.5)
    listed = ", ".join(f"`@{word}`" for word in words)
    hint = f"did you mean `@{close}`?" if close else f"what can be said here is {listed}"
    source.parse_error(annotation.span, f"there is no annotation `@{annotation.path.text}`", hint)


_EXAMPLES = {
    "ipu": "`@ipu(1)` places on the second IPU",
    "stage": "`@stage(2)` is a stage of the pipeline",
    "phase": "`@phase(0)` is a phase of execution",
    "priority": "`@priority(1.0)`: what is higher runs first",
    "memory": "`@memory(0.3)` is a share of the memory",
    "partials": '`@partials("half")`',
    "exclude": '`@exclude("PreUniRepl")` names patterns',
    "recompute": "`@recompute`, or `@recompute(false)`",
    "name": '`@name("conv1")`',
    "doc": '`@doc("what it does")`',
    "meta": '`@meta("key", "value")`',
    "attribute": '`@attribute("__my_note", 1)`',
    "overload": '`@overload("f16")`',
    "input": "`@input(2)` lists a weight as the third input",
    "denotation": '`@denotation("IMAGE")`, `@denotation("", "DATA_BATCH", "DATA_CHANNEL")`',
    "unchecked": "`@unchecked y: f32[N]`",
    EACH: "`@each(i, 12)` is for inputs and outputs of a graph of the file",
    "names": '`@names("_output_0")`, `@names("{operator}_{number}")`',
    "ir_version": "`@ir_version(8)`",
    "producer": '`@producer("pytorch", "2.0")`',
    "domain": '`@domain("com.example")`',
    "version": "`@version(3)`",
    "graph_doc": '`@graph_doc("what it does")`',
    "graph_meta": '`@graph_meta("key", "value")`',
    "weights": '`@weights("model.safetensors")`: where `weight w: f32[3] = load` looks',
    "weights_are_inputs": "`@weights_are_inputs`",
    "unnamed": "`@unnamed`",
    "proto": '`@proto(b"...")` is written by `popgraph convert`',
}
