"""Overlapped stages: the stages of a pipeline run side by side, on threads and on ranks."""

from __future__ import annotations

from dataclasses import dataclass

from popgraph.engine.program_code import ProgramCode
from popgraph.engine.program_stages import StagedCode
from popgraph.engine.shares import steps_are_split
from popgraph.engine.staged import StagedExecutable
from popgraph.passes.graphcore.stages.places import Pipeline, UncutError
from popgraph.support.logs import log_of
from popgraph.support.ranks.communicator import Alone, Communicator, RankError
from popgraph.support.ranks.world import world


@dataclass(frozen=True)
class Overlap:
    """What runs the stages of a pipeline side by side."""

    pipeline: Pipeline
    ranks: Communicator

    @classmethod
    def of(cls, pipeline: Pipeline, *, threads: bool) -> Overlap | None:
        """Stages on the ranks that share out a step, else on threads if these are asked for."""
        if not steps_are_split():
            return cls(pipeline, Alone()) if threads else None
        ranks, devices = world().size, len(pipeline.devices)
        if ranks > devices:
            raise RankError(
                f"{devices} devices of a pipeline cannot be shared out to {ranks} ranks",
                "stages",
                f"mpirun -n {devices} at most",
            )
        return cls(pipeline, world())

    def build(self, code: ProgramCode, threads: int) -> StagedExecutable | None:
        """A program of stages; one process runs what cannot be cut into stages in turn."""
        try:
            return StagedCode(code, self.pipeline, threads, self.ranks).build()
        except UncutError as error:
            if self.ranks.size > 1:
                raise RankError(
                    f"ranks cannot share out the stages of this pipeline: {error.what}",
                    "stages",
                    "run it in one process",
                ) from error
            log_of("devicex").info("Stages run one after the other: %s", error.what)
            return None
