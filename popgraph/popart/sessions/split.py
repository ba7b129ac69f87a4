"""Split sessions: ranks that run one script each take a part of the replicas of its sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from popgraph.popart.api.step_shape import StepShape
from popgraph.support.arrays import Array
from popgraph.support.ranks.communicator import RankError
from popgraph.support.ranks.world import world

_splits = False


def split_sessions() -> None:
    """
    From here on each rank runs only some of the replicas of a session.

    Its script sees all of them: it hands in the data of all replicas and gets their anchors.
    """
    global _splits
    _splits = world().size > 1


def sessions_are_split() -> bool:
    """Whether ranks share out the replicas, or the devices, of sessions."""
    return _splits


@dataclass(frozen=True)
class Share:
    """What a rank runs of a step: all of it, unless sessions are split."""

    whole: StepShape
    """The step as the script describes it."""
    own: StepShape
    """What this rank runs of it."""

    @classmethod
    def of(cls, step: StepShape) -> Share:
        if not _splits or step.ranks > 1 or step.replicas == 1:
            return cls(step, step)
        here = world()
        if step.replicas % here.size:
            raise RankError(
                f"{step.replicas} replicas cannot be shared out to {here.size} ranks",
                "SessionOptions.replicatedGraphCount",
                "take a number of ranks that divides that of the replicas",
            )
        local = step.replicas // here.size
        return cls(step, replace(step, replicas=local, ranks=here.size, rank=here.rank))

    @property
    def is_part(self) -> bool:
        """Whether other ranks run the rest."""
        return self.whole != self.own

    @property
    def writes(self) -> bool:
        """Whether this rank writes the files of the script."""
        return not _splits or world().is_first

    def taken(self, replicas: Sequence[Mapping[str, Array]]) -> Sequence[Mapping[str, Array]]:
        """What this rank runs, of the inputs of all replicas."""
        if not self.is_part:
            return replicas
        first = self.own.rank * self.own.replicas
        return replicas[first : first + self.own.replicas]

    def gathered(self, results: Sequence[Mapping[str, Array]]) -> Sequence[Mapping[str, Array]]:
        """The results of all replicas."""
        if not self.is_part:
            return results
        return [one for rank in world().gather(list(results)) for one in rank]

    def agreed(self, values: Mapping[str, Array]) -> Mapping[str, Array]:
        """Those of the first replica of all, where each has its own."""
        return world().broadcast(dict(values)) if self.is_part else values


def check_ranks(shape: StepShape, exchanges: str) -> None:
    """RankError unless the ranks of this job are those that a session wants, in their order."""
    if shape.ranks == 1:
        return
    here = world()
    if (here.size, here.rank) != (shape.ranks, shape.rank):
        raise RankError(
            f"the session wants to be rank {shape.rank} of {shape.ranks}; this process is rank "
            f"{here.rank} of {here.size}",
            "SessionOptions.globalReplicationFactor and globalReplicaOffset",
            f"mpirun -n {shape.ranks} python ..., and globalReplicaOffset = rank * "
            f"{shape.replicas}",
        )
    told = here.gather(exchanges)
    if len(set(told)) > 1:
        other = next(rank for rank, one in enumerate(told) if one != told[0])
        raise RankError(
            f"ranks 0 and {other} have programs that tell each other different things",
            "prepareDevice",
            "all ranks need the same model, optimizer and options, but for globalReplicaOffset",
        )
