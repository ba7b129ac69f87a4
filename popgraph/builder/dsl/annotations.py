"""What do annotations such as `@ipu(1)` and `@name("conv1")` say about what they stand before?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches

from onnx import NodeProto
from xdsl.dialects.builtin import NameLoc, StringAttr

from popgraph.builder import annotations as popart
from popgraph.builder.dsl.literals import python_value
from popgraph.builder.dsl.scope import Failed
from popgraph.builder.dsl.source import Source
from popgraph.builder.dsl.tree import Annotation, Expression, Missing
from popgraph.builder.enums import RecomputeType
from popgraph.dialects.onnx.annotations import set_attribute
from popgraph.dialects.onnx.attributeproto import from_python
from popgraph.dialects.onnx.op import OnnxOp
from popgraph.dialects.program import BytesAttr, WeightStore

Value = int | float | bool | str | bytes | list[object]


def _recompute(wanted: Value = True) -> int:
    return int(RecomputeType.Recompute if wanted else RecomputeType.Checkpoint)


NODE_NOTES: Mapping[str, tuple[str, Callable[..., object]]] = {
    "ipu": (popart.IPU, int),
    "stage": (popart.STAGE, int),
    "phase": (popart.PHASE, int),
    "priority": (popart.PRIORITY, float),
    "memory": (popart.MEMORY, float),
    "partials": (popart.PARTIALS, lambda type_: str(type_).upper()),
    "exclude": (popart.EXCLUDED, lambda *patterns: list(patterns)),
    "recompute": (popart.RECOMPUTE, _recompute),
}
"""What is said about nodes: the attribute that the builder would set, and its value."""

ABOUT = ("name", "doc", "meta", "attribute", "overload", "proto")
"""What else is said about nodes: their names, texts, and what no other word can say."""


@dataclass(frozen=True)
class Notes:
    """What annotations say about nodes: of all in a stretch, and of one only."""

    attributes: Mapping[str, object] = field(default_factory=dict)
    name: str = ""
    doc: str = ""
    metadata: tuple[tuple[str, str], ...] = ()
    overload: str = ""
    proto: bytes = b""
    """A serialized NodeProto with what is rarer still."""

    @property
    def shared(self) -> Notes:
        """What is said about every node of a stretch."""
        return Notes(self.attributes)

    def put(self, op: OnnxOp, store: WeightStore) -> None:
        """Writes on a node what is said about it."""
        rest = NodeProto.FromString(self.proto)
        for key, value in self.metadata:
            rest.metadata_props.add(key=key, value=value)
        if said := rest.SerializeToString():
            op.attributes["rest"] = BytesAttr(said)
        for note, held in self.attributes.items():
            set_attribute(op, note, from_python(note, held, None, store), store)
        if self.doc:
            op.attributes["doc"] = BytesAttr.of(self.doc)
        if self.name:
            op.attributes["name"] = BytesAttr.of(self.name)
            place = op.location
            inner = place.location if isinstance(place, NameLoc) else place
            op.location = NameLoc(StringAttr(self.name), inner)


def notes_of(
    source: Source,
    annotations: Iterable[Annotation],
    fold: Callable[[Expression], Expression],
    before: Notes,
) -> Notes:
    """What annotations add to what holds already; mistakes are noted and left out."""
    notes = before
    for annotation in annotations:
        try:
            values = arguments_of(source, annotation, fold)
            notes = _added(source, notes, annotation, values)
        except Failed:
            continue
    return notes


def arguments_of(
    source: Source, annotation: Annotation, fold: Callable[[Expression], Expression]
) -> list[Value]:
    """The arguments of an annotation, which have no names and are known now."""
    values = []
    for argument in annotation.arguments or ():
        value = None
        if argument.keyword is None and not isinstance(argument.value, Missing):
            value = python_value(fold(argument.value))
        if value is None:
            source.parse_error(
                argument.span,
                "an annotation takes numbers, strings and lists of them",
                '`@ipu(1)`, `@name("conv1")`',
            )
            raise Failed
        values.append(value)
    return values


def _added(source: Source, notes: Notes, annotation: Annotation, values: list[Value]) -> Notes:
    word = annotation.path.text
    try:
        if word in NODE_NOTES:
            attribute, made = NODE_NOTES[word]
            return replace(notes, attributes={**notes.attributes, attribute: made(*values)})
        match word, values:
            case "name", [str(text)]:
                return replace(notes, name=text)
            case "doc", [str(text)]:
                return replace(notes, doc=text)
            case "overload", [str(text)]:
                return replace(notes, overload=text)
            case "proto", [bytes(data)]:
                return replace(notes, proto=data)
            case "meta", [str(key), str(value)]:
                return replace(notes, metadata=(*notes.metadata, (key, value)))
            case "attribute", [str(key), value]:
                return replace(notes, attributes={**notes.attributes, key: value})
    except (TypeError, ValueError):
        pass
    if word in (*NODE_NOTES, *ABOUT):
        source.parse_error(
            annotation.span, f"`@{word}` does not take this", _EXAMPLES.get(word, "")
        )
    else:
        unknown_annotation(source, annotation, [*NODE_NOTES, *ABOUT])
    raise Failed


def unknown_annotation(source: Source, annotation: Annotation, known: Iterable[str]) -> None:
    """Notes that an annotation has no meaning where it stands."""
    words = list(known)
    close = get_close_matches(annotation.path.text, words, 1, 0.5)
    listed = ", ".join(f"`@{word}`" for word in words)
    hint = f"did you mean `@{close[0]}`?" if close else f"what can be said here is {listed}"
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
    "proto": '`@proto(b"...")` is written by `popgraph convert`',
}
