"""Tests `popdist`: what each process of a job is told, and what some of them do for all."""

from __future__ import annotations

import pytest

from popgraph.compat import popdist
from popgraph.popart.api.options import SessionOptions
from popgraph.support.ranks.communicator import Communicator
from tests.ranks.threads import on_ranks


def told(rank: Communicator) -> tuple[object, ...]:
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


def test_each_process_is_told_its_part() -> None:
    assert on_ranks(2, told) == [(at, at, at, 2, 2, True, 0, True, 2, at) for at in range(2)]


def test_ranks_that_share_the_sessions_of_a_program_are_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With --mpi a program that asks runs as in one process."""
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    assert popdist.isPopdistEnvSet()
    for name in ("popgraph.compat.popdist", "popgraph.compat.popdist.processes"):
        monkeypatch.setattr(f"{name}.sessions_are_split", lambda: True)
    assert not popdist.isPopdistEnvSet()
    assert on_ranks(2, told) == [(0, 0, 0, 1, 1, True, 0, False, 1, 0)] * 2


def test_some_do_what_all_wait_for() -> None:
    done: list[int] = []

    def work(rank: Communicator) -> int | None:
        def saved(factor: int, *, plus: int) -> int:
            done.append(rank.rank)
            return rank.rank * factor + plus

        return popdist.execute_on_instances({1}, saved, 3, plus=4)

    assert on_ranks(2, work) == [None, 7]
    assert done == [1]
