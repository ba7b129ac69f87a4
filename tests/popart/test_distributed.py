"""Tests distributed replicas in one process: refusals, and a world of one rank."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import popgraph.popart as popart
from popgraph.engine.grouped_weights import GroupedWeight, replication_of
from popgraph.engine.plan import StepPlan
from popgraph.passes.optimizer_spec import SGD, Adam, ClipNorm, Scalar
from popgraph.support.errors import PassError, UnsupportedError
from popgraph.support.replicas import grouped
from tests.popart.test_replicas import device, linear, options

FACTOR = "globalReplicationFactor"


def session_with(**settings: Any) -> Any:
    made = options(replicas=settings.pop("local", 1))
    made.enableReplicatedGraphs = settings.pop("replicated", made.enableReplicatedGraphs)
    made.enableDistributedReplicatedGraphs = True
    for name, value in settings.items():
        setattr(made, name, value)
    builder, _, loss = linear(2)
    flow = popart.DataFlow(1, [loss])
    return popart.TrainingSession(
        builder.getModelProto(), flow, loss, popart.ConstSGD(0.1), device(), userOptions=made
    )


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (
            {FACTOR: 0},
            "Invalid globalReplicationFactor value: 0, must be greater or equal than 1",
        ),
        (
            {FACTOR: 2, "globalReplicaOffset": -1},
            "Invalid globalReplicaOffset value: -1, must be greater or equal than 0",
        ),
        (
            {FACTOR: 2, "globalReplicaOffset": 3},
            "Global replica offset: 3, is larger than global replication factor: 2",
        ),
        (
            {FACTOR: 2, "replicated": True},
            "Local replicated graphs enabled but replication factor is 1",
        ),
        (
            {FACTOR: 2, "local": 4},
            "Invalid local replication factor: 4, larger than global replication factor: 2",
        ),
        ({FACTOR: 5, "local": 2}, "5 replicas cannot be split into processes of 2 each"),
        ({FACTOR: 2, "exchangeType": "f8"}, "cannot exchange gradients of type 'f8'"),
    ],
)
def test_refusals(settings: dict[str, Any], text: str) -> None:
    with pytest.raises((popart.popart_exception, PassError), match=text):
        session_with(**settings)


def test_a_single_process_cannot_be_one_of_several_ranks() -> None:
    session = session_with(globalReplicationFactor=2)
    assert session.replicationFactor == 1
    with pytest.raises(popart.popart_exception, match="rank 0 of 2; this process is rank 0 of 1"):
        session.prepareDevice()


def test_one_rank_is_one_process() -> None:
    session = session_with(globalReplicationFactor=2, local=2)
    session.prepareDevice()
    session.weightsFromHost()
    session.broadcastWeights()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({"x": np.ones((2, 2, 3), np.float32)}, anchors))
    assert all(np.isfinite(one).all() for one in anchors.values())


def test_update_rules_that_shard() -> None:
    """Elementwise update rules shard weights from `shard_from` elements on."""
    ranks = {"accumulation": 2, "ranks": 2, "shard_from": 4}
    assert Adam(**ranks).shares(4) and not Adam(**ranks).shares(3)
    assert not Adam(**ranks, mode="lamb").shares(4)
    assert Adam(**ranks, clip=(ClipNorm(1.0),)).shares(4)
    assert SGD(**ranks).shares(4) and not SGD(**ranks, weight_decay=Scalar(0.1)).shares(4)
    assert not Adam(shard_from=4).shares(4)


@pytest.mark.parametrize(("local", "ranks"), [(1, 2), (1, 4), (2, 2), (2, 4), (4, 2)])
def test_groups_compose_over_processes_and_replicas(local: int, ranks: int) -> None:
    """Groups of processes and of their replicas compose to the groups of all replicas."""
    total, found = local * ranks, 0
    for stride, size in itertools.product((1, 2, 4, 8), repeat=2):
        if total % (stride * size):
            continue
        shape = StepPlan(replicas=local, ranks=ranks)
        settings = popart.VariableSettings(stride, size)
        grouped_weight = GroupedWeight(np.zeros(1), total, (stride, size))
        made = replication_of({"w": grouped_weight}, shape, (), ["w"], None)
        ((_, *inner),), ((_, *outer),) = made.groups, made.told
        groups = {
            frozenset(local * rank + one for rank in of_ranks for one in of_replicas)
            for of_ranks in grouped(ranks, *outer)
            for of_replicas in grouped(local, *inner)
        }
        assert groups == {frozenset(one) for one in settings.groups(total)}
        found += 1
    assert found >= 3


def test_groups_that_processes_cannot_form() -> None:
    weight = GroupedWeight(np.zeros(1), 6, (1, 2))
    with pytest.raises(UnsupportedError, match="do not divide evenly among processes"):
        replication_of({"w": weight}, StepPlan(replicas=3, ranks=2), (), ["w"], None)


def test_the_period_of_an_update_counts_all_ranks() -> None:
    assert SGD(accumulation=12, ranks=3, at_once=2).period == 2
