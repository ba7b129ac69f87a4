"""Requests for gradient accumulation: one program for micro-batches, one for the update."""

from __future__ import annotations

from dataclasses import dataclass, fields

from popgraph.backends.base import Executable
from popgraph.backends.registry import backend_named
from popgraph.compiler import BuildRequest, lower
from popgraph.engine.automatic_stages import put_on_stages
from popgraph.engine.program_code import ProgramCode
from popgraph.engine.program_stages import StagedCode
from popgraph.passes.analysis.graph import only_graph
from popgraph.passes.graphcore.stages.places import UncutError
from popgraph.passes.onnx.to_graphcore import OnnxToGraphcore
from popgraph.passes.options import Training
from popgraph.support.errors import RunError, reporting_out_of_memory
from popgraph.support.ranks.communicator import SingleRank


@dataclass(frozen=True)
class AccumulatingRequest(BuildRequest):
    """
    Requests a program that runs once per micro-batch and updates after the last one.

    A native backend builds two programs with the same variables, so micro-batches do not pay for
    the update, and memory is that of one micro-batch.
    """

    replicas: int = 1
    """Micro-batches that run in parallel."""
    stages: int = 1
    """Pipeline stages, one thread each."""

    @staticmethod
    def of(request: BuildRequest, replicas: int = 1, stages: int = 1) -> AccumulatingRequest:
        """The same request, with separate update programs."""
        given = {one.name: getattr(request, one.name) for one in fields(BuildRequest)}
        return AccumulatingRequest(**given, replicas=replicas, stages=stages)

    def executable(self) -> Executable:
        with reporting_out_of_memory():
            if self.stages > 1 and backend_named(self.backend).is_native:
                return self._pipelined()
            code = self._code()
            return code.build(self.backend, self.threads, self.backlog, self.replicas)

    def _code(self) -> ProgramCode:
        return ProgramCode.lowered_from(self.module, self.compilation, self.options, self.settled)

    @property
    def _training(self) -> Training:
        training = self.options.training
        assert training is not None, "only a program that trains accumulates"
        return training

    def _pipelined(self) -> Executable:
        """The program as a pipeline, with at least one thread per stage."""
        training, last = self._training, OnnxToGraphcore.name
        lower(self.module, self.compilation, self.options, until=last, settled=self.settled)
        graph = only_graph(self.module)
        moved = {op.variable.text for op in graph.updates()} | set(training.frozen)
        trained = [op.variable.text for op in graph.variables() if op.variable.text not in moved]
        pipeline = put_on_stages(graph, training.loss, trained, self.stages)
        threads = max(self.threads, self.stages)
        try:
            return StagedCode(self._code(), pipeline, self.backend, threads, SingleRank()).build()
        except UncutError as error:
            raise RunError(
                f"the model does not divide into stages: {error.what}", "stages", "replicas"
            ) from error
