"""Tests the session options that affect code generation."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import popgraph
from popgraph.support.errors import PopgraphError

SHAPE = (1, 16, 14, 14)


def convolved(options: popgraph.SessionOptions) -> np.ndarray:
    """The result of a 3x3 convolution of random numbers."""
    random = np.random.default_rng(0)
    builder = popgraph.Builder()
    x = builder.addInputTensor(popgraph.TensorInfo("FLOAT", list(SHAPE)))
    weight = random.standard_normal((16, 16, 3, 3)).astype(np.float32)
    w = builder.addInitializedInputTensor(weight)
    y = builder.aiOnnx.conv([x, w], pads=[1, 1, 1, 1])
    builder.addOutputTensor(y)
    session = popgraph.InferenceSession(
        builder.getModelProto(),
        popgraph.DataFlow(1, {y: popgraph.AnchorReturnType("All")}),
        popgraph.DeviceManager().createCpuDevice(),
        userOptions=options,
    )
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    image = random.standard_normal(SHAPE).astype(np.float32)
    session.run(popgraph.PyStepIO({x: image}, anchors))
    return np.array(anchors[y])


def test_winograd_can_be_switched_off() -> None:
    options = popgraph.SessionOptions()
    options.useTunedSchedules = False
    with_winograd = convolved(options)
    options.enableWinograd = False
    without = convolved(options)
    assert np.allclose(with_winograd, without, atol=1e-4)
    assert (with_winograd != without).any()


def test_schedules_are_read_from_a_file(tmp_path: Path) -> None:
    options = popgraph.SessionOptions()
    options.scheduleFile = str(tmp_path / "schedules.json")
    row = {"op": "nowhere", "schedule": "plain"}
    Path(options.scheduleFile).write_text(json.dumps({"schedules": [row]}))
    with pytest.raises(PopgraphError, match="nowhere"):
        convolved(options)


def test_a_missing_schedule_file_is_an_error() -> None:
    options = popgraph.SessionOptions()
    options.scheduleFile = "nowhere.json"
    with pytest.raises(PopgraphError, match=r"nowhere\.json"):
        convolved(options)


def test_straight_through_gradients_of_quantization() -> None:
    options = popgraph.SessionOptions()
    assert not options.compilation().straight_through
    options.enableStraightThrough = True
    assert options.compilation().straight_through
