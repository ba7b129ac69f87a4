"""Evaluates computations of shapes and indices, once for all programs of a model."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from popgraph.dialects.onnx.containers import model_of
from popgraph.dialects.onnx.evaluation import SHAPES
from popgraph.dialects.onnx.inference import Inference
from popgraph.dialects.onnx.initializer import Initializer
from popgraph.dialects.onnx.op import OnnxOp
from popgraph.dialects.onnx.schema_op import SchemaOp
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.onnx.evaluate_constants import replace_by_constants
from popgraph.passes.options import Options
from popgraph.passes.properties import ENCLOSED


@dataclass(frozen=True)
class FoldIndices(Pass):
    """
    `i = Add(Gather(Shape(x), 0), 1)`  ->  `i = Constant {3}`, for x: f32[2, 3].

    Only for small integers and booleans that follow from integers, booleans and shapes, and not
    for outputs of the graph. Constants without readers are erased. Not if options name tensors of
    the model, which must exist. Exporters spell indices in many nodes: 5,500 of 6,300 in a Swin
    transformer, which all later passes would visit.
    """

    name = "fold-indices"
    NEEDS = (ENCLOSED,)
    AFTER = ("select-known",)
    BEFORE = ("share-nodes",)

    @classmethod
    def of(cls, options: Options) -> FoldIndices | None:
        return None if options.names_tensors else cls()

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        model = model_of(module)
        inference = Inference(model.opset_versions, compilation.weights, model.functions)
        for op in model.graph.block.ops:
            if not isinstance(op, Initializer) or op.input is None:  # Callers may override others.
                inference.follow(op)
        indices = {value for value, array in inference.known.items() if array.dtype.kind in "biu"}
        yielded = set(model.graph.yielded)
        for op in reversed(list(model.graph.nodes)):
            is_constant = isinstance(op, SchemaOp) and op.op_type == "Constant" and op.domain == ""
            if not yielded.isdisjoint(op.results) or not (is_constant or _is_folded(op, indices)):
                continue
            if not any(result.uses for result in op.results):
                op.detach()
                op.erase()
            elif not is_constant:
                arrays = [inference.known[result] for result in op.results]
                replace_by_constants(op, arrays, model, compilation.weights)


def _is_folded(op: OnnxOp, indices: Container[SSAValue]) -> bool:
    """Whether a node maps indices or a shape to indices."""
    operands = () if op.op_type in SHAPES else op.operands
    return bool(op.results) and all(value in indices for value in (*operands, *op.results))
