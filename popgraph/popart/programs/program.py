"""
The program of a session: rewrites PopART's semantics to ONNX, and provides the IR and tensor infos.
"""

from __future__ import annotations

from dataclasses import replace

from xdsl.dialects.builtin import ModuleOp

from popgraph.dialects.onnx import OnnxOp, model_of
from popgraph.engine import program
from popgraph.engine.program import Request
from popgraph.ipu.machine import Ipu
from popgraph.ipu.model import IpuModel
from popgraph.passes.analysis.notes import noted
from popgraph.popart.api.tensorinfo import TensorInfo
from popgraph.popart.exceptions import as_popart_errors, popart_exception
from popgraph.popart.ir import NODE, Ir, Placement
from popgraph.popart.model.aborts import take_aborts
from popgraph.popart.model.model import SessionModel
from popgraph.popart.model.popart_semantics import apply_popart_semantics
from popgraph.popart.programs.automatic_loss_scaling import check_tracked
from popgraph.popart.programs.printed_tensors import printed_tensors


class Program(program.Program):
    """The compiled program of a model in a session."""

    def __init__(self, model: SessionModel, request: Request) -> None:
        self._model = model
        module = model.module.clone()
        self.nodes = tuple(op for op in model.module.walk() if isinstance(op, OnnxOp))
        """The nodes of the model; operations of the graph refer to them by index."""
        _note_nodes(module)
        apply_popart_semantics(module, model.weights, any_label=request.code.indices is None)
        self.aborts = take_aborts(module)
        loss = None if request.optimizer is None else model.final_loss
        printed = printed_tensors(model_of(module).graph, model.weights, loss)
        self.printed = {one.id: one for one in printed}
        conditions = tuple(filter(None, self.aborts))
        whole = replace(
            request,
            watched=(*self.printed, *conditions),
            narrowed=model.places,
            loss=model.final_loss,
            tensors={*(name for name, _ in model.values()), *conditions},
        )
        with as_popart_errors():
            super().__init__(module, model.weights, whole)
        check_tracked(self.tracked, request.optimizer)
        self.infos: dict[str, TensorInfo] = model.infos()
        for stream in (*self.inputs.values(), *self.outputs.values()):
            self.infos[stream.id] = TensorInfo(stream.dtype.popart, stream.shape)
        for id, one in self.initial_values.items():
            self.infos[id] = TensorInfo(one.of_group(0))

    @property
    def shared_inputs(self) -> frozenset[str]:
        """The inputs that are broadcast to all replicas."""
        return self._model.broadcast_inputs

    def check_work(self) -> None:
        """Refuses a model whose nodes are all dead."""
        request = self._request
        if request.optimizer is None and not request.outputs:
            return  # The session has agreed to compute nothing.
        if not self.computes:
            raise popart_exception(
                "All operations in the main graph were pruned, nothing to compute",
                "DataFlow",
                "anchor what a node computes",
            )

    @property
    def is_watched(self) -> bool:
        """Whether the host inspects results after each micro-batch."""
        return bool(self.printed or self.aborts)

    def ir(self, placement: Placement) -> Ir:
        """The graph as PopART's IR."""
        return Ir(self._module, self._model, self.nodes, placement)

    def on_ipus(self, ipu: Ipu) -> IpuModel:
        """The cost model of the program on these IPUs."""
        return IpuModel.of(self._module, self._compilation, self.code.options, ipu)


def _note_nodes(module: ModuleOp) -> None:
    nodes = (op for op in module.walk() if isinstance(op, OnnxOp))
    for number, op in enumerate(nodes):
        op.location = noted(op.location, [f"{NODE} {number}"])
