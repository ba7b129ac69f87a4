"""Tests training on integer losses: gradients are integers, as in PopART."""

from __future__ import annotations

import numpy as np
import pytest

import popgraph.popart as popart
from popgraph.support.arrays import Array
from popgraph.support.errors import DifferentiationError

DATA = np.array([[4, -3, 9], [7, 5, -6]], np.int32)
GRADIENT = popart.reservedGradientPrefix()


def trained(
    backend: str,
    reduction: popart.ReductionType,
    optimizer: popart.Optimizer | None = None,
) -> dict[str, Array]:
    """The anchors of a step; the loss is twice the median of each row minus its last element."""
    builder = popart.Builder()
    x = builder.addInputTensor("INT32", list(DATA.shape), "x")
    median, _ = builder.aiGraphcore.reducemedian([x], axes=[1], keepdims=1)
    doubled = builder.aiOnnx.mul([median, builder.aiOnnx.constant(np.array([[2]], np.int32))])
    last = builder.aiGraphcore.slice([x], [3], [2], [1])
    loss = builder.aiGraphcore.identityloss([builder.aiOnnx.sub([doubled, last])], reduction)
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, [loss, GRADIENT + x]),
        loss,
        optimizer or popart.ConstSGD(0.1),
        popart.DeviceManager().createCpuDevice(backend=backend),
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({x: DATA}, anchors))
    assert all(one.dtype == np.int32 for one in anchors.values())
    return {"loss": anchors[loss], "gradient": anchors[GRADIENT + x]}


@pytest.mark.parametrize("backend", ["reference", "c"])
def test_gradients_of_a_sum_of_integers(backend: str) -> None:
    found = trained(backend, popart.ReductionType.Sum)
    assert found["loss"] == (2 * 4 - 9) + (2 * 5 + 6)
    assert found["gradient"].tolist() == [[2, 0, -1], [0, 2, -1]]


@pytest.mark.parametrize("backend", ["reference", "c"])
def test_the_loss_scale_is_an_integer(backend: str) -> None:
    found = trained(backend, popart.ReductionType.Mean, popart.ConstSGD(0.1, 0.0, 6.0))
    assert found["loss"] == ((2 * 4 - 9) + (2 * 5 + 6)) // 2
    assert found["gradient"].tolist() == [[6, 0, -3], [0, 6, -3]]
    streamed = popart.SGD({"lossScaling": (2.0, False)})
    for rule in (popart.ConstSGD(0.1, 0.0, 0.5), streamed):
        with pytest.raises(DifferentiationError, match="scaled by a constant integer"):
            trained(backend, popart.ReductionType.Mean, rule)


def test_a_loss_of_integers_does_not_train_floats() -> None:
    """Without an integer gradient among the anchors, there is nothing to train."""
    builder = popart.Builder()
    w = builder.addInitializedInputTensor(np.ones(2, np.float32), "w")
    whole = builder.aiOnnx.cast([w], "INT32")
    loss = builder.aiGraphcore.identityloss([whole], popart.ReductionType.Sum)
    with pytest.raises(DifferentiationError, match="must be one float, not i32"):
        popart.TrainingSession(
            builder.getModelProto(), popart.DataFlow(1, [loss]), loss, popart.ConstSGD(0.1)
        )
