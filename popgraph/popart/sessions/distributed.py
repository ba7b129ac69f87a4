"""Distributed replicas: those of one session in each rank of an MPI job, which train one model."""

from __future__ import annotations

from collections.abc import Iterator

from popgraph.popart.api.options import SessionOptions
from popgraph.popart.api.step_shape import StepShape
from popgraph.popart.exceptions import popart_exception, popart_unsupported_exception
from popgraph.support.ranks.communicator import RankError
from popgraph.support.ranks.world import world


def check_distributed(options: SessionOptions) -> None:
    """Refuses numbers of replicas that PopART refuses, and those that no ranks can have."""
    if not options.enableDistributedReplicatedGraphs:
        return
    for complaint in _complaints(options):
        raise popart_exception(complaint, "SessionOptions.globalReplicationFactor")
    local = options.replicatedGraphCount if options.enableReplicatedGraphs else 1
    if options.globalReplicationFactor % local or options.globalReplicaOffset % local:
        raise popart_unsupported_exception(
            f"{options.globalReplicationFactor} replicas, of which those from "
            f"{options.globalReplicaOffset} on are in this process, cannot be {local} in each",
            "SessionOptions.globalReplicationFactor",
            "every process has the same number of replicas here",
        )
    if options.enableQuickStart and options.globalReplicationFactor > local:
        raise popart_unsupported_exception(
            "tuned programs take over in each process at another step, and sums are rounded in "
            "another order: the weights of the processes would differ",
            "SessionOptions.enableQuickStart",
            "leave it out where several processes train together",
        )


def _complaints(options: SessionOptions) -> Iterator[str]:
    total, first = options.globalReplicationFactor, options.globalReplicaOffset
    if total < 1:
        yield f"Invalid globalReplicationFactor value: {total}, must be greater or equal than 1"
    if first < 0:
        yield f"Invalid globalReplicaOffset value: {first}, must be greater or equal than 0"
    if first > total:
        yield (f"Global replica offset: {first}, is larger than global replication factor: {total}")
    if options.enableReplicatedGraphs:
        local = options.replicatedGraphCount
        if local == 1:
            yield "Local replicated graphs enabled but replication factor is 1"
        if local > total:
            yield (
                f"Invalid local replication factor: {local}, larger than global replication "
                f"factor: {total}"
            )


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
