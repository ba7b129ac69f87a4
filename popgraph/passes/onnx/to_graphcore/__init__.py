"""The lowering from ONNX to graphcore: `lowering.py` walks graphs, operator pages lower nodes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import ClassVar

from xdsl.dialects.builtin import ModuleOp

from popgraph.dialects.graphcore import SEED
from popgraph.dialects.onnx import model_of
from popgraph.dialects.program import graphs_of
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.onnx.to_graphcore.lowering import Lowering
from popgraph.passes.options import CONSTANT, VARIABLE, Options
from popgraph.passes.properties import ENCLOSED, INLINED, ONE_GRAPH, UNREPORTED, WORDLESS
from popgraph.passes.replication import Replication
from popgraph.support.errors import PassError
from popgraph.support.index_checks import ERROR
from popgraph.support.tuning import Tuning

__all__ = ["SEED", "OnnxToGraphcore"]

WEIGHTS = (CONSTANT, VARIABLE)


@dataclass(frozen=True)
class OnnxToGraphcore(Pass):
    """
    y = Add(a, b)  ->  y = graphcore.add a, b; the model becomes a graph named main.

    Only when all shapes are known. `weights`: float initializers become constants or variables.
    `training`: operators without a mode behave as in training, except batch statistics that are
    `frozen`, and Dropout unless `dropout`. `constants`: initializers that never become variables.
    `extra_outputs`: ONNX tensors that become outputs as well. `straight_through`: gradients pass
    quantize and dequantize unchanged. `first_stream`: the number of the first random stream.
    `replicas`: the number of replicas. `indices`: run-time positions in sequences are checked
    ("error") or clamped ("nearest").
    """

    name = "onnx-to-graphcore"
    TOLERANCE: ClassVar[float] = 1e-5
    NEEDS = (ENCLOSED, INLINED)
    GIVES = (ONE_GRAPH, UNREPORTED, WORDLESS)

    weights: str = CONSTANT
    training: bool = False
    extra_outputs: tuple[str, ...] = ()
    straight_through: bool = False
    dropout: bool = True
    first_stream: int = 0
    frozen: tuple[str, ...] = ()
    constants: tuple[str, ...] = ()
    replicas: int = 1
    indices: str = ERROR
    tuning: Tuning = Tuning()

    @classmethod
    def of(cls, options: Options) -> OnnxToGraphcore:
        return cls(
            weights=options.weights,
            training=options.training is not None,
            extra_outputs=options.extra_outputs,
            straight_through=options.straight_through and options.training is not None,
            dropout=options.dropout,
            first_stream=options.first_stream,
            frozen=options.frozen,
            constants=() if options.variables else options.frozen,
            replicas=(options.replicas or Replication()).total,
            indices=options.indices or ERROR,
            tuning=options.tuning,
        )

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        if self.weights not in WEIGHTS:
            raise PassError(
                f"unknown value {self.weights!r} of weights",
                self.name,
                f"one of {', '.join(WEIGHTS)}",
            )
        if graphs_of(module):
            return  # the module has been lowered already
        model = model_of(module)
        lowering = Lowering(
            compilation.weights,
            self.training,
            variables=self.weights == VARIABLE,
            opsets=model.opset_versions,
            tuning=self.tuning,
            frozen=frozenset(self.frozen),
            constants=frozenset(self.constants),
            replicas=self.replicas,
            checked=self.indices == ERROR,
            straight_through=self.straight_through,
            drops=self.training and self.dropout,
            streams=count(self.first_stream),
        )
        graph = lowering.graph(model.graph, self.extra_outputs)
        model.detach()
        model.erase()
        module.body.block.add_op(graph)
