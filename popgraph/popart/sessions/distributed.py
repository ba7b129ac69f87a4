"""Distributed replicas: those of one session in each rank of an MPI job, which train one model."""

from __future__ import annotations

from popgraph.popart.api.step_shape import StepShape
from popgraph.support.ranks.communicator import RankError
from popgraph.support.ranks.world import world


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
