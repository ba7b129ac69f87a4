"""Tests PopART's errors and warnings when a session is created."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import popgraph.popart as popart
from popgraph.popart.exceptions import popart_exception


def product() -> tuple[popart.Builder, str, str, str]:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 3])
    w = builder.addInitializedInputTensor(np.ones((2, 3), np.float32))
    return builder, x, w, builder.aiOnnx.mul([x, w])


def test_automatic_and_manual_recomputation_exclude_each_other() -> None:
    builder, _, _, y = product()
    builder.recomputeOutputInBackwardPass(y)
    options = popart.SessionOptions()
    flow = popart.DataFlow(1, [y])
    popart.InferenceSession(builder.getModelProto(), flow, userOptions=options)
    options.autoRecomputation = popart.RecomputationType.Standard
    with pytest.raises(popart_exception, match="A mixture of auto and manual recomputation"):
        popart.InferenceSession(builder.getModelProto(), flow, userOptions=options)
    kept, _, _, held = product()
    kept.checkpointOutput([held])
    popart.InferenceSession(kept.getModelProto(), popart.DataFlow(1, [held]), userOptions=options)
    options.executionPhaseSettings.phases = 2
    options.virtualGraphMode = popart.VirtualGraphMode.ExecutionPhases
    popart.InferenceSession(builder.getModelProto(), flow, userOptions=options)


def test_a_model_without_computed_outputs_is_refused() -> None:
    builder, x, w, y = product()
    text = "All operations in the main graph were pruned, nothing to compute"
    for anchors in ([x], [w], [x, w]):
        with pytest.raises(popart_exception, match=text):
            popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, anchors))
    popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [x, y]))


def test_training_without_weights_is_refused() -> None:
    def train(builder: popart.Builder, y: str) -> None:
        loss = builder.aiGraphcore.l1loss([y], 0.1)
        flow = popart.DataFlow(1, [])
        popart.TrainingSession(builder.getModelProto(), flow, loss, popart.ConstSGD(0.1))

    builder, _, _, y = product()
    train(builder, y)
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 3])
    with pytest.raises(popart_exception, match="pruned, nothing to compute"):
        train(builder, builder.aiOnnx.relu([x]))


def test_a_kernel_shape_that_the_weight_contradicts_is_popart_s_error() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [1, 2, 8, 8])
    w = builder.addInputTensor("FLOAT", [3, 2, 3, 3])
    with pytest.raises(popart_exception, match=r"kernel_shape, \[5 5\], does not match inferred"):
        builder.aiOnnx.conv([x, w], kernel_shape=[5, 5])


OLD_OPTIONS = """
import popgraph.popart as popart
options = popart.SessionOptions()
options.prefetchBufferingDepthMap = {"x": 2}
options.defaultPrefetchBufferingDepth = 3
"""


def test_deprecated_options_warn_on_stderr() -> None:
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", OLD_OPTIONS], capture_output=True, text=True
    )
    assert found.returncode == 0, found.stderr
    assert "prefetchBufferingDepthMap has been deprecated" in found.stderr
    assert "defaultPrefetchBufferingDepth has been deprecated" in found.stderr


@pytest.mark.parametrize("backend", ["reference", "c"])
def test_states_of_adam_may_be_kept_in_half_precision(backend: str) -> None:
    """Gradients are rounded after each micro-batch, moments after each update."""
    half, options = popart.DataType.FLOAT16, popart.SessionOptions()
    options.enableGradientAccumulation, options.accumulationFactor = True, 2
    builder = popart.Builder()
    w = builder.addInitializedInputTensor(np.ones(1, np.float32), "w")
    loss = builder.aiGraphcore.l1loss([w], 1 / 3, popart.ReductionType.Sum)
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(3, []),
        loss,
        popart.Adam({}, accum_type=half, accl1_type=half, accl2_type=half),
        popart.DeviceManager().createCpuDevice(backend=backend),
        userOptions=options,
    )
    session.prepareDevice()
    session.weightsFromHost()
    session.run(popart.PyStepIO({}, {}))
    session.weightsToHost()
    first, second = np.empty(1, np.float16), np.empty(1, np.float16)
    session.readWeights(popart.PyWeightsIO({"Accl1___w": first, "Accl2___w": second}))
    gradient = np.float16(np.float16(1 / 3) + np.float32(1 / 3))
    m = v = np.float16(0)
    for _ in range(3):
        m = np.float16(0.9 * float(m) + 0.1 * float(gradient))
        v = np.float16(0.999 * float(v) + 0.001 * float(gradient) ** 2)
    assert session.getInfo("Accum___w").data_type() == "FLOAT16"
    np.testing.assert_allclose([first[0], second[0]], [m, v], rtol=1e-3)


@pytest.mark.parametrize("backend", ["reference", "c"])
def test_a_separate_velocity_may_be_half_precision(backend: str) -> None:
    """`accl1Type` rounds the kept velocity; `accumType` rounds nothing here."""

    def weight(kind: popart.SGDAccumulatorAndMomentum, accl1Type: popart.DataType) -> np.float32:
        builder = popart.Builder()
        w = builder.addInitializedInputTensor(np.ones(1, np.float32))
        loss = builder.aiGraphcore.l1loss([w], 1 / 3, popart.ReductionType.Sum)
        optimizer = popart.SGD(
            {"defaultLearningRate": (0.01, True), "defaultMomentum": (0.7, True)},
            accumulatorAndMomentum=kind,
            accumType=popart.DataType.FLOAT16,
            accl1Type=accl1Type,
        )
        session = popart.TrainingSession(
            builder.getModelProto(),
            popart.DataFlow(3, []),
            loss,
            optimizer,
            popart.DeviceManager().createCpuDevice(backend=backend),
        )
        session.prepareDevice()
        session.weightsFromHost()
        session.run(popart.PyStepIO({}, {}))
        session.weightsToHost()
        found = np.empty(1, np.float32)
        session.readWeights(popart.PyWeightsIO({w: found}))
        return np.float32(found[0])

    def by_hand(kept: type[np.floating]) -> float:
        w, v = 1.0, 0.0
        for _ in range(3):
            v = 0.7 * v + 1 / 3
            w, v = w - 0.01 * v, float(kept(v))
        return w

    separate = popart.SGDAccumulatorAndMomentum.Separate
    half, single = by_hand(np.float16), by_hand(np.float32)
    assert abs(half - single) > 1e-6
    np.testing.assert_allclose(weight(separate, popart.DataType.FLOAT16), half, atol=2e-7)
    np.testing.assert_allclose(weight(separate, popart.DataType.FLOAT), single, atol=2e-7)
    combined = popart.SGDAccumulatorAndMomentum.Combined
    np.testing.assert_allclose(weight(combined, popart.DataType.FLOAT16), single, atol=2e-7)


MOMENTUM = {"defaultMomentum": (0.9, True)}


@pytest.mark.parametrize(
    ("optimizer", "types"),
    [
        (popart.SGD(MOMENTUM), {"Accl": "FLOAT16"}),
        (
            popart.SGD(MOMENTUM, accumulatorAndMomentum=popart.SGDAccumulatorAndMomentum.Separate),
            {"Accum": "FLOAT16", "Accl1": "FLOAT16"},
        ),
        (popart.Adam({}), {"Accum": "FLOAT16", "Accl1": "FLOAT", "Accl2": "FLOAT"}),
        (
            popart.Adam({}, accl1_type=popart.DataType.UNDEFINED),
            {"Accl1": "FLOAT16", "Accl2": "FLOAT", "Step": "FLOAT"},
        ),
        (
            popart.Adaptive(MOMENTUM),
            {"Accum": "FLOAT16", "Accl1": "FLOAT", "Accl3": "FLOAT16"},
        ),
    ],
)
def test_states_of_half_weights_are_half_by_default(
    optimizer: popart.Optimizer, types: dict[str, str]
) -> None:
    options = popart.SessionOptions()
    options.enableGradientAccumulation, options.accumulationFactor = True, 2
    builder = popart.Builder()
    w = builder.addInitializedInputTensor(np.ones(2, np.float16), "w")
    loss = builder.aiGraphcore.identityloss([w])
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, []),
        loss,
        optimizer,
        popart.DeviceManager().createCpuDevice(backend="reference"),
        userOptions=options,
    )
    session.prepareDevice()
    session.weightsFromHost()
    session.run(popart.PyStepIO({}, {}))
    ir = session.getIr().infos()
    for name, type_ in types.items():
        assert session.getInfo(f"{name}___w").data_type() == type_
        assert ir[f"{name}___w"].data_type() == type_
