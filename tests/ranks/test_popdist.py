"""Tests `popdist`: the numbers of each process of a job, and calls that only some ranks make."""

from __future__ import annotations

import pytest

from popgraph.compat import popdist
from popgraph.popart.api.options import SessionOptions
from popgraph.support.ranks.communicator import Communicator
from tests.ranks.threads import on_ranks


def popdist_numbers(rank: Communicator) -> tuple[object, ...]:
    popdist.init()
    options = SessionOptions()
    popdist.popart.configureSessionOptions(options)
    return (
        popdist.getInstanceIndex(),
        popdist.getReplicaIndexOffset(),
        popdist.getGlobalReplicaOffset(),
        popdist.getNumInstances(),
        popdist.getNumTotalReplicas() // popdist.getNumLocalReplicas(),
        popdist.checkNumIpusPerReplica(4),
        popdist.getDeviceId(4),
        options.enableDistributedReplicatedGraphs,
        options.globalReplicationFactor,
        options.globalReplicaOffset,
    )


def test_each_process_has_its_instance_index_and_offset() -> None:
    assert on_ranks(2, popdist_numbers) == [
        (at, at, at, 2, 2, True, 0, True, 2, at) for at in range(2)
    ]


def test_popdist_reports_one_process_where_sessions_are_split(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With --mpi a program that asks popdist runs as in one process."""
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    assert popdist.isPopdistEnvSet()
    for name in ("popgraph.compat.popdist", "popgraph.compat.popdist.processes"):
        monkeypatch.setattr(f"{name}.sessions_are_split", lambda: True)
    assert not popdist.isPopdistEnvSet()
    assert on_ranks(2, popdist_numbers) == [(0, 0, 0, 1, 1, True, 0, False, 1, 0)] * 2


def test_execute_on_instances_calls_only_these_and_waits_for_all() -> None:
    done: list[int] = []

    def work(rank: Communicator) -> int | None:
        def saved(factor: int, *, plus: int) -> int:
            done.append(rank.rank)
            return rank.rank * factor + plus

        return popdist.execute_on_instances({1}, saved, 3, plus=4)

    assert on_ranks(2, work) == [None, 7]
    assert done == [1]
