"""The outline of an ONNX model: nodes and edges as named in its file, without building IR."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from onnx import GraphProto, NodeProto, TensorProto, TensorShapeProto, ValueInfoProto

from popgraph.builder.onnx.message import graphs_of, read_message
from popgraph.support import dtypes


@dataclass(frozen=True)
class OutlineNode:
    """A node, with its subgraphs by attribute name."""

    op_type: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    graphs: tuple[tuple[str, Outline], ...]
    metadata: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Outline:
    """A graph, unchecked."""

    inputs: tuple[str, ...]
    """Inputs without an initializer."""
    outputs: tuple[str, ...]
    nodes: tuple[OutlineNode, ...]
    types: dict[str, str]
    """Declared tensor types."""


def outline_of(path: Path) -> Outline:
    """The outline of a model file; ModelError if it is not a model."""
    return _graph(read_message(path, lambda rest, elements: b"").graph)


def _graph(proto: GraphProto) -> Outline:
    infos = (*proto.input, *proto.output, *proto.value_info)
    held = {one.name: one for one in proto.initializer}
    held |= {one.values.name: one.values for one in proto.sparse_initializer}
    types = {info.name: _declared(info) for info in infos if info.type.HasField("tensor_type")}
    return Outline(
        inputs=tuple(name for name in _names(proto.input) if name not in held),
        outputs=_names(proto.output),
        nodes=tuple(map(_node, proto.node)),
        types=types | {name: _text(one.data_type, one.dims) for name, one in held.items()},
    )


def _names(infos: Iterable[ValueInfoProto]) -> tuple[str, ...]:
    return tuple(info.name for info in infos)


def _node(proto: NodeProto) -> OutlineNode:
    graphs = (
        (attribute.name, _graph(graph))
        for attribute in sorted(proto.attribute, key=lambda one: one.name)
        for graph in graphs_of(attribute)
    )
    return OutlineNode(
        proto.op_type,
        proto.domain,
        proto.name,
        tuple(proto.input),
        tuple(proto.output),
        tuple(graphs) if proto.attribute else (),
        tuple((one.key, one.value) for one in proto.metadata_props),
    )


def _declared(info: ValueInfoProto) -> str:
    tensor = info.type.tensor_type
    if not tensor.HasField("shape"):
        return _text(tensor.elem_type, None)
    sizes = [_size(dim) for dim in tensor.shape.dim]
    return _text(tensor.elem_type, sizes)


def _size(dim: TensorShapeProto.Dimension) -> int | str | None:
    known = dim.HasField("dim_value") and dim.dim_value >= 0
    return dim.dim_param or (dim.dim_value if known else None)


def _text(number: int, sizes: Iterable[int | str | None] | None) -> str:
    row = dtypes.BY_ONNX.get(number)
    element = row.name if row else "string" if number == TensorProto.STRING else "unknown"
    return dtypes.tensor_text(element, None if sizes is None else list(sizes))
