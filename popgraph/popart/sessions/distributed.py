"""Distributed replicas: those of one session in each rank of an MPI job, which train one model."""

from __future__ import annotations

from collections.abc import Iterator

from popgraph.popart.api.options import SessionOptions
from popgraph.popart.exceptions import popart_exception, popart_unsupported_exception


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
