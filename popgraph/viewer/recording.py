"""Records a lowering: the graphs of each level with their origins, and candidate schedules."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from popgraph.dialects.levels import GRAPHCORE, ONNX, STRUCTURED
from popgraph.dialects.onnx.containers import model_of
from popgraph.dialects.onnx.op import OnnxOp
from popgraph.dialects.onnx.types import describe
from popgraph.dialects.program import WeightStore
from popgraph.dialects.tile import is_contraction
from popgraph.measure.alternatives import contraction_candidates_of, last_before_scheduling
from popgraph.passes.base import Pass
from popgraph.passes.graphcore.to_structured import GraphcoreToStructured
from popgraph.passes.observer import Observer
from popgraph.passes.onnx.infer_shapes import InferShapes
from popgraph.passes.options import Options
from popgraph.passes.structured.alternatives import ContractionCandidates
from popgraph.passes.structured.to_loops import StructuredToLoops
from popgraph.viewer.graphs import Graph, graph_of
from popgraph.viewer.provenance import mark, origins

CONTRACTION = "contraction"
"""The stage of marks on contractions before scheduling."""


@dataclass
class GraphRecorder(Observer):
    """Records the graph at the end of each level, and marks its operations for the next one."""

    graphs: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """The graphs of the levels graphcore and structured, if the lowering gets past them."""

    @contextmanager
    def watching(self, step: Pass, module: ModuleOp, weights: WeightStore) -> Iterator[None]:
        if step.name == GraphcoreToStructured.name:
            self._note(graph_of(module, GRAPHCORE, ONNX))
        elif step.name == StructuredToLoops.name:
            self._note(graph_of(module, STRUCTURED, GRAPHCORE))
        with super().watching(step, module, weights):
            yield

    def _note(self, graph: Graph) -> None:
        self.graphs[graph.level] = graph.nodes
        graph.mark()


@dataclass
class LoweringRecorder(GraphRecorder):
    """Also records types and candidate schedules."""

    options: Options = field(default_factory=Options)
    types: dict[int, list[str]] = field(default_factory=dict)
    """The result types of each node of the model, after shape inference."""
    candidates: list[ContractionCandidates] = field(default_factory=list)

    @contextmanager
    def watching(self, step: Pass, module: ModuleOp, weights: WeightStore) -> Iterator[None]:
        with super().watching(step, module, weights):
            yield
        if step.name == InferShapes.name:
            self.types = dict(_types(module))
        if step.name == last_before_scheduling(self.options):
            self._note_candidates(module)

    def _note_candidates(self, module: ModuleOp) -> None:
        """Records the candidate schedules of each contraction."""
        contractions = [op for op in module.walk() if is_contraction(op)]
        for number, op in enumerate(contractions):
            mark(op, CONTRACTION, number)
        self.candidates = contraction_candidates_of(module, self.options)


def _types(module: ModuleOp) -> Iterator[tuple[int, list[str]]]:
    for op in model_of(module).graph.walk():
        if isinstance(op, OnnxOp):
            for number in origins(op, ONNX)[:1]:
                yield number, [describe(value.type) for value in op.output_values() if value]
