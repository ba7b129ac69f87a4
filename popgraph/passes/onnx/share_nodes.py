"""Common subexpression elimination of ONNX graphs, once for all programs of a model."""

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
from popgraph.dialects.program.interned import number_of
from popgraph.passes.analysis.equal_operations import share_equal
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.options import Options
from popgraph.passes.properties import ENCLOSED

NAMES = frozenset({"name", "outputs", "doc"})
"""Attributes that do not affect the result of a node."""


@dataclass(frozen=True)
class ShareNodes(Pass):
    """
    `a = Neg(x); b = Neg(x)`  ->  `a = Neg(x)`.

    Only for pure nodes of the main graph on tensors, without graph outputs and large tensors. Not
    if options name tensors of the model, which must exist. Exporters repeat small constants, and
    nodes that depend on them, for every use.
    """

    name = "share-nodes"
    NEEDS = (ENCLOSED,)
    AFTER = ("select-known",)

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
    """A key that is equal for nodes that compute the same with the same annotations."""
    noted = [item for item in op.attributes.items() if item[0] not in NAMES]
    return (
        type(op),
        (tuple(op.properties), tuple(map(number_of, op.properties.values()))),
        tuple(noted),
        tuple(map(bool, op.output_names)),
        tuple([number_of(result.type) for result in op.results]),
        tuple(op.operands),
    )
