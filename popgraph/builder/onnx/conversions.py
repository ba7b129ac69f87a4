"""Rewrites ONNX models as protobuf messages: element types, weights to constants."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    ValueInfoProto,
    numpy_helper,
)
from onnx.helper import make_tensor, tensor_dtype_to_np_dtype

from popgraph.builder.onnx.message import graphs_of
from popgraph.support.arrays import Array
from popgraph.support.errors import ModelError

INT32 = np.iinfo(np.int32)
FIXED_POINT = frozenset(
    getattr(TensorProto, name)
    for name in ["INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64", "BOOL"]
)
"""Element types that PopART calls fixed-point."""


@dataclass(frozen=True)
class Conversion:
    """An element type, and the type that replaces it throughout a model."""

    source: int
    target: int
    clip: bool = False

    def convert(self, model: ModelProto) -> None:
        for graph in _graphs(model.graph):
            self._convert_graph(graph)

    def _convert_graph(self, graph: GraphProto) -> None:
        for tensor in _tensors(graph):
            if tensor.data_type == self.source:
                self._convert_tensor(tensor)
        for info in _declared(graph):
            if info.type.tensor_type.elem_type == self.source:
                info.type.tensor_type.elem_type = self.target

    def _convert_tensor(self, tensor: TensorProto) -> None:
        if tensor.data_location == TensorProto.EXTERNAL:
            raise ModelError(
                f"Cannot convert tensor '{tensor.name}', as it is stored externally",
                f"tensor {tensor.name!r}",
                "convert first, then save the weights to files",
            )
        made = self._converted(numpy_helper.to_array(tensor), tensor.name)
        dims, doc = list(tensor.dims), tensor.doc_string
        half = self.target == TensorProto.FLOAT16
        values = made.tobytes() if half else made.ravel()
        tensor.CopyFrom(make_tensor(tensor.name, self.target, dims, values, raw=half))
        if doc:
            tensor.doc_string = doc

    def _converted(self, values: Array, name: str) -> Array:
        dtype = tensor_dtype_to_np_dtype(self.target)
        if self.target == TensorProto.INT32:
            values = self._fitting(values, name)
        with np.errstate(over="ignore"):  # too large numbers are infinite in half precision
            return values.astype(dtype)

    def _fitting(self, values: Array, name: str) -> Array:
        if self.clip:
            return np.clip(values, INT32.min, INT32.max)
        if values.size and (values.min() < INT32.min or values.max() > INT32.max):
            raise ModelError(
                "In convertINT64TensorToINT32, cannot cast int64 to int32: number is too large. If "
                "you are sure you want still want to convert your tensor data, you can set 'clip' "
                "to 'true'.",
                f"tensor {name!r}",
            )
        return values


def _graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """A graph and all of its subgraphs."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in graphs_of(attribute):
                yield from _graphs(inner)


def _tensors(graph: GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            yield from attribute.tensors
            if attribute.HasField("t"):
                yield attribute.t


def _declared(graph: GraphProto) -> Iterator[ValueInfoProto]:
    for infos in (graph.input, graph.output, graph.value_info):
        for info in infos:
            if info.type.HasField("tensor_type"):
                yield info


def make_constants(model: ModelProto, names: Iterable[str]) -> None:
    """Converts weights to Constant nodes at the beginning of the graph."""
    graph, names = model.graph, list(names)
    weights = {tensor.name: tensor for tensor in graph.initializer}
    for name in names:
        if name not in weights:
            raise ModelError(
                f"TensorId {name} not in the model initalizers",
                "convertInitializersToConstants",
                f"it has {', '.join(weights) or 'none'}",
            )
    made = [_constant(weights[name]) for name in names]
    nodes = [*made, *graph.node]
    keep_inputs(graph, lambda name: name not in names)
    del graph.node[:]
    graph.node.extend(nodes)


def _constant(weight: TensorProto) -> NodeProto:
    node = NodeProto(op_type="Constant", name=weight.name, output=[weight.name])
    node.attribute.add(name="value", type=AttributeProto.TENSOR, t=weight)
    return node


def fixed_point_weights(model: ModelProto) -> list[str]:
    """Names of integer and boolean weights."""
    return [one.name for one in model.graph.initializer if one.data_type in FIXED_POINT]


def remove_unused_inputs(model: ModelProto) -> None:
    """Removes inputs and weights that no node reads, including nodes in subgraphs."""
    used = {name for graph in _graphs(model.graph) for node in graph.node for name in node.input}
    used |= {one.name for graph in _graphs(model.graph) for one in graph.output}
    keep_inputs(model.graph, lambda name: name in used)


def keep_inputs(graph: GraphProto, wanted: Callable[[str], bool]) -> None:
    """Keeps only inputs and weights whose names satisfy a predicate."""
    for entries in (graph.input, graph.initializer):
        kept = [one for one in entries if wanted(one.name)]
        if len(kept) < len(entries):
            del entries[:]
            entries.extend(kept)


def keep_nodes(graph: GraphProto, wanted: Callable[[NodeProto], bool]) -> None:
    """Keeps only nodes that satisfy a predicate."""
    kept = [one for one in graph.node if wanted(one)]
    if len(kept) < len(graph.node):
        del graph.node[:]
        graph.node.extend(kept)


def prepare_for_training(model: ModelProto) -> None:
    """Gives every BatchNormalization the five outputs of training mode."""
    taken = {name for node in model.graph.node for name in node.output}
    for node in model.graph.node:
        if node.op_type != "BatchNormalization":
            continue
        while len(node.output) < 5:
            name, number = f"{node.op_type}_{node.name}_oi{len(node.output)}", 0
            while f"{name}_{number}" in taken:
                number += 1
            node.output.append(f"{name}_{number}")
            taken.add(f"{name}_{number}")
