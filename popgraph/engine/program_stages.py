"""Pipelined programs: one per stage, on threads and on ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from popgraph.backends.base import NativeExecutable
from popgraph.compiler import BuildRequest, lower
from popgraph.dialects.graphcore.base import dtype_of, shape_of
from popgraph.engine.program_code import ProgramCode
from popgraph.engine.shares import steps_are_split
from popgraph.engine.staged_executable import (
    Stage,
    StagedExecutable,
    Types,
    UpdateSchedule,
    partition_devices,
)
from popgraph.passes.analysis.graph import only_graph
from popgraph.passes.graphcore.canonicalize import Canonicalize
from popgraph.passes.graphcore.dce import EliminateDeadCode
from popgraph.passes.graphcore.stages.parts import Part, Parts, cut, cut_micro_batches
from popgraph.passes.graphcore.stages.places import Pipeline, UncutError
from popgraph.passes.graphcore.training.micro_batches import (
    counts_micro_batches,
    specialize_micro_batch,
)
from popgraph.passes.graphcore.training.variables import COUNTER
from popgraph.support.logs import log_of
from popgraph.support.ranks.communicator import Communicator, RankError, SingleRank
from popgraph.support.ranks.world import world


@dataclass(frozen=True)
class StagedCode:
    """Builds the programs of a pipeline's stages; a rank only builds for its own devices."""

    code: ProgramCode
    pipeline: Pipeline
    backend: str
    """The name of a native backend."""
    threads: int
    """Threads of this rank."""
    ranks: Communicator
    _made: dict[tuple[int, str], NativeExecutable] = field(default_factory=dict)
    """Programs by device and IR text: forward stages are often the same with and without update."""

    def build(self) -> StagedExecutable:
        graph = only_graph(self.code.module)
        inputs, outputs = _types(graph.inputs), _types(graph.outputs)
        return StagedExecutable(self._schedule(), inputs, outputs, self.ranks, self.threads)

    def _schedule(self) -> UpdateSchedule:
        if not counts_micro_batches(self.code.module):
            stages = self._stages(cut(self._simplified(self.code.module.clone()), self.pipeline))
            return UpdateSchedule(stages, stages, self.pipeline.devices)
        others, last = cut_micro_batches(
            self._module_of_runs(last=False), self._module_of_runs(last=True), self.pipeline
        )
        devices, period = self.pipeline.devices, self.code.period
        return UpdateSchedule(self._stages(others), self._stages(last), devices, period, COUNTER)

    def _module_of_runs(self, *, last: bool) -> ModuleOp:
        module = self.code.module.clone()
        specialize_micro_batch(module, self.code.compilation.weights, last=last)
        return self._simplified(module)

    def _simplified(self, module: ModuleOp) -> ModuleOp:
        """Simplifies the program first, so that stages do not exchange unused values."""
        lower(module, self.code.compilation, self.code.options, until=Canonicalize.name)
        EliminateDeadCode().run(self.code.compilation, module)
        return module

    def _stages(self, parts: Parts) -> list[Stage]:
        return [self._stage(part) for part in parts.parts]

    def _stage(self, part: Part) -> Stage:
        graph = only_graph(part.module)
        variables = {op.variable.text: op.result for op in graph.variables()}
        updated = {op.variable.text: op.value for op in graph.updates()}
        return Stage(
            part.place.stage,
            part.place.device,
            _types(graph.inputs),
            _types(graph.outputs),
            _types(updated | variables),
            self._executable(part),
        )

    @property
    def _own_devices(self) -> list[int]:
        ranks = partition_devices(self.pipeline.devices, self.ranks.size)
        return [device for device, rank in ranks.items() if rank == self.ranks.rank]

    def _executable(self, part: Part) -> NativeExecutable | None:
        device = part.place.device
        if device not in self._own_devices:
            return None
        key = device, str(part.module)
        if key not in self._made:
            options, compilation = self.code.options, self.code.compilation
            threads = max(1, self.threads // len(self._own_devices))
            request = BuildRequest(part.module, compilation, options, self.backend, threads)
            made = request.executable()
            assert isinstance(made, NativeExecutable), "a program that trains has no host steps"
            for (home, _), other in self._made.items():
                if home == device:
                    made.share(other)
            self._made[key] = made
        return self._made[key]


@dataclass(frozen=True)
class ParallelPipeline:
    """A pipeline whose stages run in parallel, and the ranks that share them."""

    pipeline: Pipeline
    ranks: Communicator

    @classmethod
    def of(cls, pipeline: Pipeline, *, threads: bool) -> ParallelPipeline | None:
        """Distributes stages to the ranks that split a step; otherwise to threads if requested."""
        if not steps_are_split():
            return cls(pipeline, SingleRank()) if threads else None
        ranks, devices = world().size, len(pipeline.devices)
        if ranks > devices:
            raise RankError(
                f"{devices} devices of a pipeline cannot be divided among {ranks} ranks",
                "stages",
                f"mpirun -n {devices} at most",
            )
        return cls(pipeline, world())

    def build(self, code: ProgramCode, backend: str, threads: int) -> StagedExecutable | None:
        """Builds a program of stages; None if a single process must run them sequentially."""
        try:
            return StagedCode(code, self.pipeline, backend, threads, self.ranks).build()
        except UncutError as error:
            if self.ranks.size > 1:
                raise RankError(
                    f"ranks cannot divide the stages of this pipeline: {error.what}",
                    "stages",
                    "run it in one process",
                ) from error
            log_of("devicex").info("Stages run one after the other: %s", error.what)
            return None


def _types(values: Mapping[str, SSAValue]) -> Types:
    return {name: (dtype_of(value), shape_of(value)) for name, value in values.items()}
