"""Common subexpressions of ONNX graphs: equal nodes of an open model are followed once."""

from __future__ import annotations

from collections.abc import Hashable

from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.traits import Pure

from popgraph.dialects.onnx.attributes import TensorAttr
from popgraph.dialects.onnx.containers import model_of
from popgraph.dialects.onnx.op import OnnxOp
from popgraph.dialects.onnx.schema_op import SchemaOp
from popgraph.dialects.program import BlobAttr

NAMES = frozenset({"name", "outputs", "doc"})
"""Attributes that do not say what a node computes."""


def share_nodes(module: ModuleOp) -> None:
    """
    `a = Neg(x); b = Neg(x)`  ->  `a = Neg(x)`

    Exporters write small constants, and what is computed of them, once for every use. Only of
    nodes of the main graph that are pure functions of tensors, and no outputs of it; large tensors
    stay what they are.
    """
    graph = model_of(module).graph
    yielded = set(graph.yielded)
    first: dict[Hashable, SchemaOp] = {}
    for op in list(graph.nodes):
        if not isinstance(op, SchemaOp) or not _may_be_shared(op) or yielded & {*op.results}:
            continue
        same = first.setdefault(_meaning(op), op)
        if same is not op:
            for result, kept in zip(op.results, same.results, strict=True):
                result.replace_all_uses_with(kept)
            op.detach()
            op.erase()


def _may_be_shared(op: SchemaOp) -> bool:
    return (
        op.domain == ""
        and not op.regions
        and op.has_trait(Pure)
        and all(isinstance(value.type, TensorType) for value in (*op.operands, *op.results))
        and not any(map(_is_large, op.properties.values()))
    )


def _is_large(attribute: object) -> bool:
    return isinstance(attribute, TensorAttr) and isinstance(attribute.held, BlobAttr)


def _meaning(op: OnnxOp) -> Hashable:
    """Equal for nodes that compute the same, in the same place."""
    noted = [item for item in op.attributes.items() if item[0] not in NAMES]
    listed = tuple(bool(name) for name in op.output_names)
    types = tuple(result.type for result in op.results)
    return type(op), tuple(op.properties.items()), tuple(noted), listed, types, tuple(op.operands)
