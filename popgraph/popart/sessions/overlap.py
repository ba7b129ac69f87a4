"""Pipelines whose stages run side by side: when they do, and on how many threads and ranks."""

from __future__ import annotations

from dataclasses import dataclass

from popgraph.backends.registry import backend_named
from popgraph.engine.program_code import ProgramCode
from popgraph.engine.program_stages import StagedCode
from popgraph.engine.staged import StagedExecutable
from popgraph.engine.stages import Stages
from popgraph.passes.graphcore.stages.places import Pipeline, UncutError
from popgraph.popart.api.devices import DeviceInfo
from popgraph.popart.api.options import SessionOptions
from popgraph.popart.api.step_shape import StepShape
from popgraph.popart.exceptions import popart_unsupported_exception
from popgraph.popart.programs.program import Program
from popgraph.popart.sessions.split import sessions_are_split
from popgraph.support.logs import log_of
from popgraph.support.ranks.communicator import Alone, Communicator, RankError
from popgraph.support.ranks.world import world


@dataclass(frozen=True)
class Overlap:
    """What runs the stages of a pipeline side by side."""

    pipeline: Pipeline
    ranks: Communicator

    def build(self, code: ProgramCode, backend: str, threads: int) -> StagedExecutable | None:
        """A program of stages; one process runs what cannot be cut into stages in turn."""
        try:
            return StagedCode(code, self.pipeline, backend, threads, self.ranks).build()
        except UncutError as error:
            if self.ranks.size > 1:
                raise RankError(
                    f"ranks cannot share out the stages of this pipeline: {error.what}",
                    "SessionOptions.enablePipelining",
                    "run it in one process",
                ) from error
            log_of("devicex").info("Stages run one after the other: %s", error.what)
            return None


def overlap_of(
    stages: Stages | None,
    options: SessionOptions,
    device: DeviceInfo,
    step: StepShape,
    program: Program,
) -> Overlap | None:
    """How stages run side by side, if they do."""
    if stages is None or not backend_named(device.backend).is_native or step.all_replicas > 1:
        return None
    watched = program.printed or any(program.aborts) or program.tracked
    looks_on = watched or options.enableFloatingPointChecks
    if looks_on or not program.replicas.is_one or options.createImplicitPipeliningFwdOnlyProgram:
        return None
    if options.enableQuickStart and (options.overlapStages or sessions_are_split()):
        raise popart_unsupported_exception(
            "stages that run side by side have no quick programs",
            "SessionOptions.enableQuickStart",
            "leave it out",
        )
    pipeline = stages.pipeline
    if sessions_are_split():
        ranks, devices = world().size, len(pipeline.devices)
        if ranks > devices:
            raise RankError(
                f"{devices} devices of a pipeline cannot be shared out to {ranks} ranks",
                "SessionOptions.enablePipelining",
                f"mpirun -n {devices} at most",
            )
        return Overlap(pipeline, world())
    return Overlap(pipeline, Alone()) if options.overlapStages else None
