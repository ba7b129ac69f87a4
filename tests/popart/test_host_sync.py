"""Tests calls of PopXL on inference sessions: whether the host has the latest weights."""

from __future__ import annotations

import numpy as np
import pytest

import popgraph.popart as popart


@pytest.fixture
def session() -> popart.InferenceSession:
    """The model x + w, whose weight is not constant."""
    builder, options = popart.Builder(), popart.SessionOptions()
    options.constantWeights = False
    x = builder.addInputTensor("FLOAT", [2], "x")
    w = builder.addInitializedInputTensor(np.ones(2, np.float32), "w")
    y = builder.aiOnnx.add([x, w])
    made = popart.InferenceSession(
        builder.getModelProto(),
        popart.DataFlow(1, [y], popart.AnchorReturnType("All")),
        popart.DeviceManager().createCpuDevice(),
        userOptions=options,
    )
    made.prepareDevice()
    return made


def test_weights_are_in_sync_once_sent_or_marked(session: popart.InferenceSession) -> None:
    assert not session.areHostWeightsInSync()
    session.weightsFromHost()
    assert session.areHostWeightsInSync()
    session.markHostWeightsOutOfSync()
    assert not session.areHostWeightsInSync()
    session.copyDeviceWeightsToHost()
    assert session.areHostWeightsInSync()
    session.writeWeights(popart.PyWeightsIO({"w": np.zeros(2, np.float32)}))
    assert not session.areHostWeightsInSync()
    session.markHostWeightsInSync()
    assert session.areHostWeightsInSync()


def test_an_engine_that_is_not_loaded_is_loaded_by_a_step(
    session: popart.InferenceSession, capsys: pytest.CaptureFixture[str]
) -> None:
    session.weightsFromHost()
    session.setEngineIsLoaded(False)
    popart.getLogger("session").setLevel("INFO")
    try:
        anchors = session.initAnchorArrays()
        for _ in range(2):
            session.run(popart.PyStepIO({"x": np.ones(2, np.float32)}, anchors))
    finally:
        popart.getLogger("session").setLevel("WARN")
    assert capsys.readouterr().err.count("Engine loaded") == 1


def test_operators_in_place_are_not_ambiguous(session: popart.InferenceSession) -> None:
    session.checkInplacingAmbiguity()
