"""The loss scale follows the gradients of half precision, and updates stay what they were."""

from __future__ import annotations

import numpy as np
import pytest

import popgraph.session as popart
from popgraph.support.arrays import Array

GRADIENT = popart.reservedGradientPrefix()
EDGE = 65504 * 0.125
"""Gradients above are too large."""


class Trained:
    """A session that trains `w`, whose gradient is a given number times the loss scale."""

    def __init__(
        self,
        backend: str = "reference",
        options: popart.SessionOptions | None = None,
        wide: bool = False,
        scale: float = 1.0,
        **settings: object,
    ) -> None:
        builder = popart.Builder()
        x = builder.addInputTensor("FLOAT16", [2], "x")
        w = builder.addInitializedInputTensor(np.ones(2, np.float16), "w")
        product = builder.aiOnnx.mul([x, w])
        flat = builder.aiGraphcore.reshape([product], [1, 2])
        if wide:
            flat = builder.aiOnnx.cast([flat], "FLOAT")
        loss = builder.aiGraphcore.identityloss([flat], popart.ReductionType.Sum)
        self.options = options or popart.SessionOptions()
        chosen = popart.AutomaticLossScalingSettings(enabled=True, **settings)  # type: ignore[arg-type]
        self.options.automaticLossScalingSettings = chosen
        self.session = popart.TrainingSession(
            builder.getModelProto(),
            popart.DataFlow(1, [GRADIENT + w]),
            loss,
            self.rule(scale),
            popart.DeviceManager().createCpuDevice(backend=backend),
            userOptions=self.options,
        )
        self.session.prepareDevice()
        self.session.weightsFromHost()

    def rule(self, scale: float) -> popart.SGD:
        rate = {"defaultLearningRate": (0.125, False), "lossScaling": (scale, False)}
        return popart.SGD(rate)

    def step(self, *x: float) -> Array:
        """The gradient of `w`, of the last micro-batch."""
        anchors = self.session.initAnchorArrays()
        given = np.array(x, np.float16).repeat(2)
        self.session.run(popart.PyStepIO({"x": given}, anchors))
        return np.asarray(anchors[GRADIENT + "w"]).reshape(-1)[-2:]

    def scales(self, *steps: float) -> list[float]:
        """The loss scale of each step, in which gradients are `x` times the scale."""
        return [float(self.step(x)[0] / np.float16(x)) for x in steps]

    def weights(self) -> Array:
        self.session.weightsToHost()
        fetched = np.zeros(2, np.float16)
        self.session.readWeights(popart.PyWeightsIO({"w": fetched}))
        return fetched


@pytest.mark.parametrize("backend", ["reference", "c"])
def test_the_scale_is_doubled_until_gradients_are_large_and_then_halved(backend: str) -> None:
    trained = Trained(backend, scale=2.0)
    assert trained.scales(1, 1, 1) == [2, 4, 8]
    large = EDGE / 16
    assert trained.scales(large, large, large * 0.99, large, large) == [16, 8, 16, 32, 16]


def test_updates_divide_by_the_scale_that_gradients_were_multiplied_by() -> None:
    trained = Trained(scale=4.0)
    for count in range(1, 6):
        trained.step(0.5)
        assert trained.weights().tolist() == [1 - count * 0.125 * 0.5] * 2


def test_an_optimizer_of_the_user_keeps_the_factor() -> None:
    trained = Trained()
    assert trained.scales(1, 1) == [1, 2]
    trained.session.updateOptimizerFromHost(trained.rule(16.0))
    assert trained.scales(1, 1) == [16 * 4, 16 * 8]


def test_a_share_of_large_gradients_may_be_allowed() -> None:
    trained = Trained(thresholdUpperCountProportion=1.0)
    assert trained.scales(EDGE, EDGE / 2) == [1, 2]
    trained = Trained(binEdgeLocation=1.0)
    assert trained.scales(EDGE, EDGE) == [1, 2]


def test_the_scale_moves_once_in_a_period_which_one_large_gradient_decides() -> None:
    trained = Trained(updatePeriod=3)
    assert trained.scales(1, 1, 1, 1, EDGE, 1, 1) == [1, 1, 1, 2, 2, 2, 1]


def test_micro_batches_and_replicas_are_one_update() -> None:
    options = popart.SessionOptions()
    options.enableGradientAccumulation, options.accumulationFactor = True, 2
    options.enableReplicatedGraphs, options.replicatedGraphCount = True, 2
    trained = Trained(options=options)
    assert [trained.step(*x)[0] for x in ((1, 1, 1, 1), (1, EDGE, 1, 1), (1, 1, 1, 1))] == [1, 2, 1]


def test_a_loss_of_half_precision_has_room_for_so_much() -> None:
    trained = Trained(scale=2.0**14, binEdgeLocation=1.0)
    assert trained.scales(0.125, 0.125, 0.125) == [2.0**14, 2.0**15, 2.0**15]
    trained = Trained(scale=2.0**14, wide=True, binEdgeLocation=1.0)
    assert trained.scales(0.125, 0.125, 0.125) == [2.0**14, 2.0**15, np.inf]


def test_gradients_that_are_no_numbers_are_large() -> None:
    trained = Trained(scale=4.0)
    assert np.isinf(trained.step(65504)).all()
    assert trained.scales(1) == [2]


def test_which_gradients_are_tracked() -> None:
    """Of `w` the gradient is too large, of `x` it is not."""
    method = popart.GradientTensorTrackingMethod
    some: dict[str, object] = {
        "gradientTensorTrackingMethod": method.GradientsOfUserSpecifiedTensors
    }
    assert Trained().scales(EDGE, 1) == [1, 0.5]
    assert Trained(toTrackTensors=["w"], **some).scales(EDGE, 1) == [1, 0.5]
    assert Trained(toTrackTensors=["x"], **some).scales(EDGE, 1) == [1, 2]
    with pytest.raises(popart.popart_exception, match=r"Some of the tensors in the .* list do not"):
        Trained(toTrackTensors=["v"], **some)
    with pytest.raises(popart.popart_exception, match="No tracked gradient tensors of type fp16"):
        Trained(gradientTensorTrackingMethod=method.ConvAndMatmulGradients)


def test_tensors_tracked_twice_are_told(capfd: pytest.CaptureFixture[str]) -> None:
    method = popart.GradientTensorTrackingMethod.GradientsOfUserSpecifiedTensors
    Trained(toTrackTensors=["w", "x", "w"], gradientTensorTrackingMethod=method)
    notes = capfd.readouterr().err
    assert notes.count("Tensor w has been added more than once to the list of") == 1
    assert "Tensor x has been added" not in notes
