"""Common subexpressions of ONNX graphs: equal nodes are followed once."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import Operation
from xdsl.traits import Pure

from popgraph.dialects.onnx.attributes import TensorAttr
from popgraph.dialects.onnx.containers import model_of
from popgraph.dialects.onnx.op import OnnxOp
from popgraph.dialects.onnx.schema_op import SchemaOp
from popgraph.dialects.program import BlobAttr
from popgraph.passes.analysis.equal_operations import share_equal
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.options import Options

NAMES = frozenset({"name", "outputs", "doc"})
"""Attributes that do not say what a node computes."""


@dataclass(frozen=True)
class ShareNodes(Pass):
    """
    Equal nodes become one: `a = Neg(x); b = Neg(x)`  ->  `a = Neg(x)`.

    Exporters write small constants, and what is computed of them, once for every use. Only nodes
    of the main graph that are pure functions of tensors, and not its outputs; large tensors stay
    separate. Not if the options name tensors of the model, whose nodes must exist.
    """

    name = "share-nodes"

    @classmethod
    def of(cls, options: Options) -> ShareNodes | None:
        return None if options.names_tensors else cls()

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        graph = model_of(module).graph
        yielded = set(graph.yielded)

        def meaning(op: Operation) -> Hashable | None:
            if not isinstance(op, SchemaOp) or op.parent is not graph.block:
                return None
            return _meaning(op) if _may_be_shared(op) and yielded.isdisjoint(op.results) else None

        share_equal(graph.block, meaning)


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
