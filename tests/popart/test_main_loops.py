"""Tests that explicit main loops, host copies, recomputation and pipelines change no result."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import popgraph.popart as popart
from popgraph.support.arrays import Array

LAYERS, BATCHES, FACTOR = 3, 6, 6
MANUAL = popart.VirtualGraphMode.Manual


class Layers:
    """A session that trains layers, optionally each on its own IPU and pipeline stage."""

    def __init__(
        self,
        *,
        batches: int = BATCHES,
        factor: int = FACTOR,
        returned: str = "All",
        anchors: tuple[str, ...] = ("Gradient___w0",),
        places: bool = False,
        again: bool = False,
        strategy: popart.ExchangeStrategy = popart.ExchangeStrategy.JustInTime,
        tiles: popart.TileSet = popart.TileSet.Compute,
        **asked: Any,
    ) -> None:
        builder, random = popart.Builder(), np.random.default_rng(0)
        where = popart.InputSettings(tiles, strategy)
        y = builder.addInputTensor("FLOAT", [2, 3], where, "x")
        for at in range(LAYERS):
            first = random.normal(size=(3, 3)).astype(np.float32)
            w = builder.addInitializedInputTensor(first, f"w{at}")
            product = builder.aiOnnx.matmul([y, w])
            y = builder.aiOnnx.tanh([product])
            for id in (product, y) if places else ():
                builder.virtualGraph(id, at)
                builder.pipelineStage(id, at)
            if again:
                builder.recomputeOutputInBackwardPass(y)
        loss = builder.aiGraphcore.l1loss([y], 0.1)
        if places:
            builder.virtualGraph(loss, LAYERS - 1)
            builder.pipelineStage(loss, LAYERS - 1)
        options = popart.SessionOptions()
        options.enableExplicitIR(True)
        options.enableGradientAccumulation = factor > 1
        options.accumulationFactor = factor
        options.enableOutlining = options.enableMergeExchange = False
        for name, value in asked.items():
            setattr(options, name, value)
        device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 4})
        device.backend = "reference"
        ids = dict.fromkeys([loss, *anchors], popart.AnchorReturnType(returned, tiles, strategy))
        self.loss, self.shape = loss, (batches, factor, 2, 3)
        self.session = popart.TrainingSession(
            builder.getModelProto(),
            popart.DataFlow(batches, ids),
            loss,
            popart.ConstSGD(0.1),
            device,
            userOptions=options,
        )

    def trained(self) -> dict[str, Array]:
        """Weights and anchors after a step."""
        self.session.prepareDevice()
        self.session.weightsFromHost()
        anchors = self.session.initAnchorArrays()
        data = np.random.default_rng(1).normal(size=self.shape).astype(np.float32)
        self.session.run(popart.PyStepIO({"x": data}, anchors))
        self.session.weightsToHost()
        weights = {f"w{at}": self.session.weights()[f"w{at}"] for at in range(LAYERS)}
        return {**weights, **anchors}


KINDS = popart.RecomputationType
PIPELINE = {"places": True, "enablePipelining": True, "virtualGraphMode": MANUAL}
IMPLICIT = {"enableExplicitMainLoops": False, "useHostCopyOps": False}
SAME: dict[str, dict[str, Any]] = {
    "loops": {},
    "aliases": {"aliasZeroCopy": True},
    "host copies": {"enableExplicitMainLoops": False},
    "recomputation": {"autoRecomputation": KINDS.RecomputeAll},
    "notes": {"again": True},
    "pipeline": PIPELINE,
    "pipeline that recomputes": {**PIPELINE, "autoRecomputation": KINDS.Pipeline},
    "pipeline with notes": {**PIPELINE, "again": True},
    "implicit pipeline": {**PIPELINE, **IMPLICIT, "explicitRecomputation": False},
}


@pytest.fixture(scope="module")
def plain() -> dict[str, Array]:
    return Layers(explicitRecomputation=False, **IMPLICIT).trained()


@pytest.mark.parametrize("name", SAME)
def test_loops_copies_and_stages_change_no_number(name: str, plain: dict[str, Array]) -> None:
    found = Layers(**SAME[name]).trained()
    assert np.abs(plain["Gradient___w0"]).max() > 1e-3
    for id, wanted in plain.items():
        np.testing.assert_allclose(found[id], wanted, 1e-5, 1e-6, err_msg=id)


def test_explicit_and_implicit_pipelines_update_weights_alike() -> None:
    """Without accumulation, batches in flight use older weights in both."""
    once = {**PIPELINE, "factor": 1}
    explicit = Layers(**once).trained()
    implicit = Layers(**once, **IMPLICIT, explicitRecomputation=False).trained()
    alone = Layers(factor=1).trained()
    for id, wanted in implicit.items():
        np.testing.assert_array_equal(explicit[id], wanted)
    assert not np.allclose(alone["w0"], explicit["w0"], 1e-6)


def test_a_failing_micro_batch_counts() -> None:
    """A failing last micro-batch completes its batch: the update runs, the next batch starts."""
    builder = popart.Builder()
    rows = builder.addInputTensor("INT32", [1], "rows")
    w = builder.addInitializedInputTensor(np.zeros(4, np.float32), "w")
    picked = builder.aiOnnx.gather([w, rows])
    loss = builder.aiGraphcore.identityloss([picked], popart.ReductionType.Sum)
    options = popart.SessionOptions()
    options.enableGradientAccumulation, options.accumulationFactor = True, 2
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, []),
        loss,
        popart.ConstSGD(1.0),
        popart.DeviceManager().createCpuDevice(),
        userOptions=options,
    )
    session.prepareDevice()
    session.weightsFromHost()
    for picks, fails in (([0, 9], True), ([1, 1], False)):
        batch = popart.PyStepIO({rows: np.array(picks, np.int32)[:, None]}, {})
        with pytest.raises(popart.popart_exception) if fails else nullcontext():
            session.run(batch)
    session.weightsToHost()
    found = np.empty(4, np.float32)
    session.readWeights(popart.PyWeightsIO({w: found}))
    assert found.tolist()[:3] == [-1, -2, 0]
