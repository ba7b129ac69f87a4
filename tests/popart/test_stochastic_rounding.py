"""Tests stochastic rounding of f16: unbiased, and reproducible from the seed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import popgraph.popart as popart
from popgraph.support.arrays import Array

SIZE = 4096
RATE = 2.0**-13
"""Rounding to nearest loses this update of 1: the next f16 below is 2^-11 away."""


def options(**asked: Any) -> Any:
    made = popart.SessionOptions()
    made.enableStochasticRounding = True
    for name, value in asked.items():
        setattr(made, name, value)
    return made


def device(backend: str) -> Any:
    made = popart.DeviceManager().createIpuModelDevice({"numIPUs": 2})
    made.backend = backend
    return made


def trained(given: Any, backend: str = "reference", seed: int = 7) -> Any:
    """A session whose weights are all 1, with gradients of 1."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT16", [SIZE], "x")
    w = builder.addInitializedInputTensor(np.ones(SIZE, np.float16), "w")
    loss = builder.aiGraphcore.identityloss([builder.aiOnnx.mul([x, w])], popart.ReductionType.Sum)
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, ["Gradient___w"]),
        loss,
        popart.SGD({"defaultLearningRate": (RATE, True)}),
        device(backend),
        userOptions=given,
    )
    session.prepareDevice()
    session.setRandomSeed(seed)
    session.weightsFromHost()
    return session


def after(session: Any, steps: int) -> Array:
    runs = session.replicationFactor
    data = {"x": np.ones((runs, SIZE), np.float16)}
    for _ in range(steps):
        session.run(popart.PyStepIO(data, session.initAnchorArrays()))
    session.weightsToHost()
    found: Array = session.weights()["w"].astype(np.float64)
    return found


@pytest.mark.parametrize("backend", ["reference", "c"])
def test_small_updates_count_on_average(backend: str) -> None:
    """The mean over weights shows all 40 updates; rounding to nearest shows none."""
    steps, step = 40, 2.0**-11
    np.testing.assert_array_equal(after(trained(popart.SessionOptions(), backend), steps), 1)
    found = after(trained(options(), backend), steps)
    share = RATE / step
    deviation = step * np.sqrt(steps * share * (1 - share) / SIZE)
    assert abs(found.mean() - (1 - steps * RATE)) < 4 * deviation
    counts = (1 - found) / step
    np.testing.assert_array_equal(counts, np.round(counts))
    assert abs(counts.var() - steps * share * (1 - share)) < 0.1 * steps * share


def test_a_seed_reproduces_the_roundings() -> None:
    first, again, other = (after(trained(options(), seed=seed), 3) for seed in (7, 7, 8))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_steps_round_differently_and_continue_from_a_state() -> None:
    given = options(enableLoadAndOffloadRNGState=True)
    session = trained(given)
    one = after(session, 1)
    state = session.getRNGState()
    two = after(session, 1)
    assert (one - two).max() > 0
    assert ((one < 1) != (two < one)).any()
    session = trained(given, seed=99)
    session.writeWeights(popart.PyWeightsIO({"w": one.astype(np.float16)}))
    session.weightsFromHost()
    session.setRNGState(state)
    np.testing.assert_array_equal(after(session, 1), two)


def test_replicas_round_their_weights_alike() -> None:
    """Replicas share one weight, which is updated by the gradients of both."""
    given = options(enableReplicatedGraphs=True, replicatedGraphCount=2)
    found = after(trained(given), 20)
    assert abs(found.mean() - (1 - 40 * RATE)) < 5e-5


def test_computed_values_are_rounded_and_moved_values_are_not() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT16", [SIZE], "x")
    y = builder.aiOnnx.mul([x, builder.aiOnnx.constant(np.array(1.0009765625, np.float16))])
    z = builder.aiOnnx.relu([builder.reshape_const(builder.aiOnnx, [x], [2, -1])])
    flow = popart.DataFlow(1, [y, z])
    session = popart.InferenceSession(
        builder.getModelProto(), flow, device("reference"), userOptions=options()
    )
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    third = np.float16(1 / 3)
    session.run(popart.PyStepIO({"x": np.full(SIZE, third)}, anchors))
    exact = float(third) * 1.0009765625
    found = np.unique(anchors[y].astype(np.float64))
    assert len(found) == 2
    assert found[0] < exact < found[1]
    share = (exact - found[0]) / (found[1] - found[0])
    mean = (anchors[y] == found[1]).mean()
    assert abs(mean - share) < 4 * np.sqrt(share * (1 - share) / SIZE)
    np.testing.assert_array_equal(anchors[z], third)


def test_rounding_before_the_first_dropout_uses_the_seed() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT16", [SIZE], "x")
    w = builder.addInitializedInputTensor(np.full(SIZE, 1.25, np.float16), "w")
    product = builder.aiOnnx.mul([x, w])
    (dropped,) = builder.aiOnnx.dropout([product], 1, 0.5)
    loss = builder.aiGraphcore.identityloss([dropped], popart.ReductionType.Sum)
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, [product]),
        loss,
        popart.SGD({"defaultLearningRate": (RATE, True)}),
        device("c"),
        userOptions=options(),
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({"x": np.full(SIZE, 1 + 2.0**-10, np.float16)}, anchors))
    step = 2.0**-10
    counts = (anchors[product].astype(np.float64) - 1.25) / step
    assert set(counts.ravel()) == {1, 2}  # The product is 1/4 of a step above the lower f16.
    assert abs((counts == 2).mean() - 0.25) < 0.04
