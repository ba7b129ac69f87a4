"""Tests that recomputation saves memory of a step, and changes no result."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import popgraph.popart as popart
from popgraph.support.arrays import Array

LAYERS, ROWS, SIZE = 8, 256, 16
GENERATOR = np.random.default_rng(0)
WEIGHTS = GENERATOR.normal(size=(LAYERS, SIZE, SIZE)).astype(np.float32) / 4
DATA = GENERATOR.normal(size=(ROWS, SIZE)).astype(np.float32)


def trained(noted: Any = None, **asked: Any) -> tuple[int, list[Array]]:
    """The bytes of a step's intermediate values, and the weights after it."""
    builder = popart.Builder()
    y = builder.addInputTensor("FLOAT", [ROWS, SIZE], "x")
    names = [builder.addInitializedInputTensor(w, f"w{at}") for at, w in enumerate(WEIGHTS)]
    for at, w in enumerate(names):
        product = builder.aiOnnx.matmul([y, w])
        y = builder.aiOnnx.tanh([product])
        if noted is not None and at % 3 != 2 and at < LAYERS - 1:
            for id in (product, y):
                builder.recomputeOutputInBackwardPass(id, noted)
    loss = builder.aiGraphcore.l1loss([y], 1.0, popart.ReductionType.Sum)
    options = popart.SessionOptions()
    for name, value in asked.items():
        setattr(options, name, value)
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, [loss]),
        loss,
        popart.ConstSGD(1e-3),
        popart.DeviceManager().createIpuModelDevice({}),
        userOptions=options,
    )
    session.prepareDevice()
    session.weightsFromHost()
    session.run(popart.PyStepIO({"x": DATA}, session.initAnchorArrays()))
    session.weightsToHost()
    memory = json.loads(session.getGraphReport())["memory"]
    return memory["byCategory"]["arena"], [session.weights()[id] for id in names]


@pytest.fixture(scope="module")
def plain() -> tuple[int, list[Array]]:
    return trained()


AGAIN: dict[str, dict[str, Any]] = {
    "standard": {"autoRecomputation": popart.RecomputationType.Standard},
    "everything": {"autoRecomputation": popart.RecomputationType.RecomputeAll},
    "explicitly": {
        "autoRecomputation": popart.RecomputationType.Standard,
        "explicitRecomputation": True,
    },
    "nodes": {"noted": popart.RecomputeType.Recompute},
}


@pytest.mark.parametrize("name", AGAIN)
def test_recomputed_values_need_no_memory(name: str, plain: tuple[int, list[Array]]) -> None:
    arena, weights = trained(**AGAIN[name])
    assert plain[0] >= LAYERS * ROWS * SIZE * 4
    assert arena < 0.75 * plain[0]
    for found, wanted in zip(weights, plain[1], strict=True):
        np.testing.assert_allclose(found, wanted, 1e-5, 1e-6)


def test_checkpointed_nodes_are_kept(plain: tuple[int, list[Array]]) -> None:
    assert trained(popart.RecomputeType.Checkpoint)[0] == plain[0]
