"""Tests that sessions with synthetic data draw their inputs and return no anchors."""

from __future__ import annotations

import numpy as np
import pytest

import popgraph.popart as popart
from popgraph.builder.opset.enums import SyntheticDataMode
from popgraph.engine.streams import Stream
from popgraph.popart.sessions.step_buffers import SyntheticIO
from popgraph.support import dtypes
from popgraph.support.arrays import Array

RANDOM = (SyntheticDataMode.RandomNormal, SyntheticDataMode.RandomUniform)


def drawn(mode: SyntheticDataMode, dtype: str) -> Array:
    batches = SyntheticIO(mode)
    stream = Stream("x", dtypes.BY_NAME[dtype], (64, 64))
    first = batches.read(stream)
    assert (first.shape, first.dtype) == (stream.shape, stream.dtype.numpy)
    assert batches.read(stream) is first
    return first


def test_inputs_follow_the_mode() -> None:
    assert not drawn(SyntheticDataMode.Zeros, "f32").any()
    normal, uniform = (drawn(mode, "f16").astype(np.float64) for mode in RANDOM)
    assert abs(normal.mean()) < 0.1 and abs(normal.std() - 1) < 0.1
    assert abs(uniform.mean() - 0.5) < 0.1 and 0 <= uniform.min() < uniform.max() <= 1
    for mode in RANDOM:
        assert drawn(mode, "i32").min() >= 0


@pytest.mark.parametrize("backend", ["reference", "c"])
@pytest.mark.parametrize("mode", [SyntheticDataMode.Zeros, *RANDOM])
def test_a_step_reads_no_input_and_writes_no_anchor(mode: SyntheticDataMode, backend: str) -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [4, 2], "x")
    labels = builder.addInputTensor("INT32", [4], "labels")
    w = builder.addInitializedInputTensor(np.ones((2, 1), np.float32), "w")
    y = builder.aiOnnx.matmul([x, w])
    probabilities = builder.aiOnnx.softmax([y])
    loss = builder.aiGraphcore.nllloss([probabilities, labels])
    options = popart.SessionOptions()
    options.syntheticDataMode = mode
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(2, [y, loss]),
        loss,
        popart.ConstSGD(1.0, 0.5),
        popart.DeviceManager().createCpuDevice(backend=backend),
        userOptions=options,
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    anchors[y][...] = 7
    session.run(popart.PyStepIO({}, anchors))
    assert (anchors[y] == 7).all()
    session.weightsToHost()
    fetched = np.zeros((2, 1), np.float32)
    session.readWeights(popart.PyWeightsIO({w: fetched}))
    assert (fetched == 1).all()
