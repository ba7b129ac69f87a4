"""Writes nodes, graphs, functions and models as protobuf messages."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Any

from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    OperatorSetIdProto,
)
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Operation, SSAValue

from popgraph.dialects.onnx.annotations import is_note
from popgraph.dialects.onnx.attributeproto import read_attribute, write_attribute
from popgraph.dialects.onnx.attributes import (
    OpsetAttr,
    SparseTensorAttr,
    TensorAttr,
    ValueInfoAttr,
)
from popgraph.dialects.onnx.containers import Function, Model, value_name
from popgraph.dialects.onnx.custom import Custom
from popgraph.dialects.onnx.initializer import Initializer
from popgraph.dialects.onnx.op import Graph, OnnxOp
from popgraph.dialects.onnx.tensorproto import write_sparse, write_tensor
from popgraph.dialects.onnx.typeproto import write_value_info
from popgraph.dialects.onnx.types import NamesAttr
from popgraph.dialects.program import BytesAttr, WeightStore

NameOf = Callable[[SSAValue], str]


def remainder(proto: Any, stored: AbstractSet[str]) -> bytes:
    """
    The serialized message without the fields that are stored elsewhere.

    Fields that are present but empty stay, so that the message is reproduced exactly.
    """
    fields = [
        (field, value)
        for field, value in proto.ListFields()
        if not (field.name in stored and value)
    ]
    if not fields:
        return b""
    rest = type(proto)()
    for field, value in fields:
        if hasattr(value, "extend") or hasattr(value, "MergeFrom"):
            getattr(rest, field.name).MergeFrom(value)
        else:
            setattr(rest, field.name, value)
    return bytes(rest.SerializeToString())


def attribute_bytes(op: Operation, name: str) -> bytes:
    """A string of the attribute dictionary as bytes; empty if it is absent."""
    found = op.attributes.get(name)
    return found.data if isinstance(found, BytesAttr) else b""


def write_node(op: OnnxOp, store: WeightStore | None, name_of: NameOf = value_name) -> NodeProto:
    """
    The node; `name_of` names its values.

    With the model's own names it is encoded as in the model, otherwise canonically.
    """
    proto = NodeProto(op_type=op.op_type)
    proto.input.extend(_input_names(op, name_of))
    outputs = zip(op.output_names, op.output_values(), strict=False)
    proto.output.extend("" if value is None else name_of(value) for _, value in outputs)
    proto.output.extend("" for _ in op.output_names[len(proto.output) :])
    if op.domain:
        proto.domain = op.domain
    if isinstance(op, Custom) and op.overload is not None:
        proto.overload = op.overload.text
    if label := attribute_bytes(op, "name"):
        proto.name = label.decode()
    if doc := attribute_bytes(op, "doc"):
        proto.doc_string = doc.decode()
    rest = NodeProto.FromString(attribute_bytes(op, "rest"))
    original = {one.name: one for one in rest.attribute} if name_of is value_name else {}
    rest.ClearField("attribute")
    proto.attribute.extend(
        _original_encoding(made, original.get(made.name))
        for made in _attributes(op, store, name_of)
    )
    # Notes, which the schema does not know (see annotations.py), are stored only in `rest`.
    proto.attribute.extend(one for one in original.values() if is_note(op, one.name))
    proto.MergeFrom(rest)
    return proto


def _input_names(op: OnnxOp, name_of: NameOf) -> list[str]:
    names = ["" if value is None else name_of(value) for value in op.input_values()]
    if isinstance(op, Custom):
        return names
    while names and not names[-1]:
        names.pop()
    trailing = op.attributes.get("trailing")
    if isinstance(trailing, IntegerAttr):
        names.extend("" for _ in range(trailing.value.data))
    return names


def _attributes(op: OnnxOp, store: WeightStore | None, name_of: NameOf) -> list[AttributeProto]:
    made = {
        name: write_attribute(name, value, store) for name, value in op.onnx_attributes().items()
    }
    for name, graphs in op.graphs().items():
        made[name] = _write_graphs(op, name, graphs, store, name_of)
    order = op.attributes.get("order")
    if isinstance(op, Custom):
        order = op.attribute_names
    if isinstance(order, NamesAttr):
        return [made[name] for name in order.texts]
    return list(made.values())


def _write_graphs(
    op: OnnxOp, name: str, graphs: list[Graph], store: WeightStore | None, name_of: NameOf
) -> AttributeProto:
    many = isinstance(op, Custom) and op.has_list_of_graphs(name)
    proto = AttributeProto(name=name)
    if many:
        proto.type = AttributeProto.GRAPHS
        proto.graphs.extend(write_graph(graph, store, name_of) for graph in graphs)
    else:
        proto.type = AttributeProto.GRAPH
        proto.g.CopyFrom(write_graph(graphs[0], store, name_of))
    return proto


def _original_encoding(made: AttributeProto, original: AttributeProto | None) -> AttributeProto:
    """The model's own encoding of an attribute, if its value is unchanged."""
    if original is None:
        return made
    if made.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS):
        whole = AttributeProto()
        whole.CopyFrom(original)
        whole.g.CopyFrom(made.g) if made.HasField("g") else whole.graphs.extend(made.graphs)
        return whole
    same_fields = all(
        made.HasField(one) == original.HasField(one) for one in ("t", "sparse_tensor")
    )
    if same_fields and read_attribute(original) == read_attribute(made):
        return original
    if original.doc_string:
        made.doc_string = original.doc_string
    return made


def write_graph(
    graph: Graph, store: WeightStore | None, name_of: NameOf = value_name
) -> GraphProto:
    """
    The graph with its initializers; without `store` if none of them is large.

    With other names than the model's, inputs and outputs get their current types instead of those
    that the model declares.
    """
    proto = GraphProto()
    if graph.graph_name.data:
        proto.name = graph.graph_name.text
    for argument, info in zip(graph.block.args, graph.inputs, strict=True):
        if name_of is not value_name:
            info = ValueInfoAttr.of(name_of(argument), argument.type)
        proto.input.append(write_value_info(info))
    for initializer in graph.initializers:
        _write_initializer(proto, initializer, store, name_of)
    for op in sorted(graph.initializers, key=lambda one: one.place_in_inputs):
        if op.input is not None:
            info = ValueInfoAttr.of(name_of(op.result), op.input.type, op.input.exact.data)
            proto.input.insert(op.place_in_inputs, write_value_info(info))
    for node in graph.nodes:
        proto.node.append(write_node(node, store, name_of))
    for value, info in zip(graph.yielded, graph.outputs, strict=True):
        _write_output(proto, info, value, name_of)
    for info in graph.value_infos or ():
        proto.value_info.append(write_value_info(info))
    if graph.rest is not None:
        proto.MergeFrom(GraphProto.FromString(graph.rest.data))
    return proto


def _write_output(proto: GraphProto, info: ValueInfoAttr, value: SSAValue, name_of: NameOf) -> None:
    """Adds an output; an Identity if a pass has replaced the value that had its name."""
    name = name_of(value)
    if name_of is not value_name:
        info = ValueInfoAttr.of(name, value.type)
    elif name != info.text:
        proto.node.add(op_type="Identity", input=[name], output=[info.text])
    proto.output.append(write_value_info(info))


def _write_initializer(
    proto: GraphProto, op: Initializer, store: WeightStore | None, name_of: NameOf
) -> None:
    name = name_of(op.result)
    if isinstance(op.value, SparseTensorAttr):
        sparse = write_sparse(op.value, store)
        if name:
            sparse.values.name = name
        proto.sparse_initializer.append(sparse)
    else:
        assert isinstance(op.value, TensorAttr)
        tensor = write_tensor(op.value, store)
        if name:
            tensor.name = name
        proto.initializer.append(tensor)


def write_opset(opset: OpsetAttr) -> OperatorSetIdProto:
    if opset.exact.data:
        return OperatorSetIdProto.FromString(opset.exact.data)
    return OperatorSetIdProto(domain=opset.domain.text, version=opset.version.data)


def write_function(function: Function, store: WeightStore | None) -> FunctionProto:
    domain, name, overload = function.key
    proto = FunctionProto(name=name)
    if domain:
        proto.domain = domain
    if overload:
        proto.overload = overload
    proto.input.extend(function.input_names)
    proto.output.extend(function.output_names)
    if function.attribute_names is not None:
        proto.attribute.extend(function.attribute_names.texts)
    for key, value in function.defaults.items():
        proto.attribute_proto.append(write_attribute(key, value, store))
    for op in function.block.ops:
        if isinstance(op, OnnxOp):
            proto.node.append(write_node(op, store))
    proto.opset_import.extend(map(write_opset, function.opsets))
    proto.value_info.extend(map(write_value_info, function.value_infos or ()))
    if function.rest is not None:
        _merge_function_rest(proto, FunctionProto.FromString(function.rest.data))
    return proto


def _merge_function_rest(proto: FunctionProto, rest: FunctionProto) -> None:
    """Merges `rest`, which holds default values in non-canonical encodings."""
    original = {one.name: one for one in rest.attribute_proto}
    rest.ClearField("attribute_proto")
    made = [_original_encoding(one, original.get(one.name)) for one in proto.attribute_proto]
    proto.ClearField("attribute_proto")
    proto.attribute_proto.extend(made)
    proto.MergeFrom(rest)


def write_model(model: Model, store: WeightStore | None) -> ModelProto:
    """The model as a message."""
    proto = ModelProto()
    if version := model.ir_version.value.data:
        proto.ir_version = version
    proto.opset_import.extend(map(write_opset, model.opsets))
    for field, text in (
        ("producer_name", model.producer),
        ("producer_version", model.producer_version),
        ("domain", model.model_domain),
        ("doc_string", model.doc),
    ):
        if text is not None:
            setattr(proto, field, text.text)
    if model.model_version is not None:
        proto.model_version = model.model_version.value.data
    if model.metadata is not None:
        for key, value in model.metadata.entries:
            proto.metadata_props.add(key=key, value=value)
    proto.graph.CopyFrom(write_graph(model.graph, store))
    proto.functions.extend(write_function(function, store) for function in model.functions.values())
    if model.rest is not None:
        proto.MergeFrom(ModelProto.FromString(model.rest.data))
    return proto
