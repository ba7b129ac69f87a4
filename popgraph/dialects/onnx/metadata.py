"""Metadata of nodes, values, graphs and models: doc strings, properties, unknown fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
)
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute

from popgraph.dialects.onnx.annotations import is_note, notes_in
from popgraph.dialects.onnx.attributeproto import kind_of, write_attribute
from popgraph.dialects.onnx.attributes import TensorAttr, ValueInfoAttr
from popgraph.dialects.onnx.containers import Function, Model, standard_domain
from popgraph.dialects.onnx.op import Graph, OnnxOp
from popgraph.dialects.onnx.typeproto import read_type, write_type, write_value_info
from popgraph.dialects.onnx.types import UNKNOWN
from popgraph.dialects.program import BytesAttr, WeightStore

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Metadata:
    """Doc string, metadata, and all other fields as a serialized message."""

    doc: str = ""
    metadata: Pairs = ()
    proto: bytes = b""

    def __bool__(self) -> bool:
        return self != NOTHING


NOTHING = Metadata()


def _read(kind: type[Any], data: bytes) -> Metadata:
    """The metadata in a message that has no fields stored elsewhere."""
    message = kind.FromString(data)
    metadata = tuple((entry.key, entry.value) for entry in message.metadata_props)
    doc = message.doc_string
    message.ClearField("doc_string")
    message.ClearField("metadata_props")
    _drop_empty(message)
    return Metadata(doc, metadata, message.SerializeToString())


def _drop_empty(message: Any) -> None:
    """Removes fields that are present but equal to their defaults."""
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for one in [value] if hasattr(value, "ListFields") else value:
                _drop_empty(one)
        elif is_empty(value) and field.containing_oneof is None:
            message.ClearField(field.name)


def is_empty(value: object) -> bool:
    """Whether a field with this value is equivalent to an absent one."""
    # -0.0 is falsy, but not the default of a float field.
    return not value and str(value) != "-0.0"


def _write(kind: type[Any], about: Metadata) -> bytes:
    message = kind.FromString(about.proto)
    if about.doc:
        message.doc_string = about.doc
    for key, value in about.metadata:
        message.metadata_props.add(key=key, value=value)
    return bytes(message.SerializeToString())


def _held(attribute: Attribute | None) -> bytes:
    return attribute.data if isinstance(attribute, BytesAttr) else b""


# nodes


def node_metadata(op: OnnxOp) -> Metadata:
    """All metadata except name, overload and notes."""
    rest = NodeProto.FromString(_held(op.attributes.get("rest")))
    documented = [_doc_of(one) for one in rest.attribute if not is_note(op, one.name)]
    rest.ClearField("attribute")
    rest.attribute.extend(filter(None, documented))
    if not standard_domain(rest.domain):
        rest.ClearField("domain")
    found = _read(NodeProto, rest.SerializeToString())
    return replace(found, doc=_held(op.attributes.get("doc")).decode())


def _doc_of(attribute: AttributeProto) -> AttributeProto | None:
    """The attribute with only its doc string, if it has one; its value is stored elsewhere."""
    if not attribute.doc_string:
        return None
    kind = AttributeProto.AttributeType.Value(kind_of(attribute))
    return AttributeProto(name=attribute.name, type=kind, doc_string=attribute.doc_string)


def notes_on(op: OnnxOp, store: WeightStore) -> dict[str, Attribute]:
    """The notes, which the schema does not know, such as PopART's `__ipu_number`."""
    return notes_in(op, store)


def set_node_metadata(op: OnnxOp, about: Metadata) -> None:
    """Writes metadata to a node."""
    if about.doc:
        op.attributes["doc"] = BytesAttr.of(about.doc)
    if not about.metadata and not about.proto:
        return
    rest = NodeProto.FromString(_held(op.attributes.get("rest")))
    rest.MergeFromString(_write(NodeProto, replace(about, doc="")))
    op.attributes["rest"] = BytesAttr(rest.SerializeToString())


def with_notes(about: Metadata, key: str, note: Attribute, store: WeightStore) -> Metadata:
    """The metadata with an additional note that the text format has no syntax for."""
    rest = NodeProto.FromString(about.proto)
    rest.attribute.append(write_attribute(key, note, store))
    return replace(about, proto=rest.SerializeToString())


# values


def value_metadata(info: ValueInfoAttr) -> tuple[Metadata, tuple[str, ...]]:
    """
    The metadata of a declaration, and denotations: of its type, then of each dimension.

    Denotations within other types are rarer and stay in the message.
    """
    proto = ValueInfoProto.FromString(info.exact.data)
    proto.ClearField("name")
    denotations = _take_denotations(proto.type)
    if write_type(read_type(proto.type)) == proto.type or not _has_denotation(proto.type):
        proto.ClearField("type")
    return _read(ValueInfoProto, proto.SerializeToString()), denotations


def _take_denotations(proto: TypeProto) -> tuple[str, ...]:
    found = [proto.denotation]
    proto.ClearField("denotation")
    if proto.HasField("tensor_type"):
        for dim in proto.tensor_type.shape.dim:
            found.append(dim.denotation)
            dim.ClearField("denotation")
    while found and not found[-1]:
        found.pop()
    return tuple(found)


def _has_denotation(proto: TypeProto) -> bool:
    return b"denotation" in str(proto).encode()


def declared(
    name: str, type_: Attribute, about: Metadata = NOTHING, denotations: tuple[str, ...] = ()
) -> ValueInfoAttr:
    """The declaration of a value."""
    if not about and not denotations:
        return ValueInfoAttr.of(name, type_)
    proto = ValueInfoProto.FromString(_write(ValueInfoProto, about))
    proto.name = name
    if not proto.HasField("type") and type_ != UNKNOWN:
        proto.type.CopyFrom(write_type(type_))
    if denotations[:1] > ("",):
        proto.type.denotation = denotations[0]
    for dim, text in zip(proto.type.tensor_type.shape.dim, denotations[1:], strict=False):
        if text:
            dim.denotation = text
    return ValueInfoAttr.of(name, type_, proto.SerializeToString())


def tensor_metadata(tensor: TensorAttr) -> Metadata:
    """The metadata of a tensor: all but its elements and name."""
    header = TensorProto.FromString(tensor.header.data)
    about = TensorProto(doc_string=header.doc_string, metadata_props=header.metadata_props)
    return _read(TensorProto, about.SerializeToString())


def with_tensor_metadata(tensor: TensorAttr, about: Metadata) -> TensorAttr:
    """The tensor with other metadata."""
    return TensorAttr(tensor.elements, StringAttr("raw"), BytesAttr(_write(TensorProto, about)))


# graphs and functions


def graph_metadata(graph: Graph) -> Metadata:
    return _read(GraphProto, _held(graph.rest))


def function_metadata(function: Function) -> Metadata:
    rest = FunctionProto.FromString(_held(function.rest))
    documented = [_doc_of(one) for one in rest.attribute_proto]
    rest.ClearField("attribute_proto")
    rest.attribute_proto.extend(filter(None, documented))
    return _read(FunctionProto, rest.SerializeToString())


def model_metadata(model: Model) -> Metadata:
    """The metadata of a model; the message also holds that of its graph."""
    said = _read(ModelProto, _held(model.rest))
    doc = "" if model.doc is None else model.doc.text
    metadata = () if model.metadata is None else tuple(model.metadata.entries)
    return Metadata(doc, metadata + said.metadata, said.proto)


def written_graph(about: Metadata) -> bytes:
    """The content of `Graph.rest`."""
    return _write(GraphProto, about)


def written_function(about: Metadata) -> bytes:
    """The content of `Function.rest`."""
    return _write(FunctionProto, about)


def with_declarations(kind: str, about: Metadata, infos: Sequence[ValueInfoAttr]) -> Metadata:
    """Adds declarations of values to the metadata of a graph or a function."""
    proto = _PROTOS[kind].FromString(about.proto)
    proto.value_info.extend(map(write_value_info, infos))
    return replace(about, proto=proto.SerializeToString())


_PROTOS: dict[str, type[Any]] = {"graph": GraphProto, "function": FunctionProto}


def merged_proto(model: bytes, graph: bytes) -> bytes:
    """Merges the messages of a model and its graph."""
    proto = ModelProto.FromString(model)
    if graph:
        proto.graph.MergeFromString(graph)
    return bytes(proto.SerializeToString())


def split_proto(data: bytes) -> tuple[bytes, bytes]:
    """Splits a merged message into the model's and the graph's."""
    proto = ModelProto.FromString(data)
    graph = proto.graph.SerializeToString()
    proto.ClearField("graph")
    return proto.SerializeToString(), graph


def is_message(kind: str, data: bytes) -> bool:
    """Whether bytes are a serialized message of a kind: node, value, graph, function, model."""
    kinds = {**_PROTOS, "node": NodeProto, "value": ValueInfoProto, "model": ModelProto}
    try:
        kinds[kind].FromString(data)
    except DecodeError:
        return False
    return True
