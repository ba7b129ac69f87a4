"""Tests automatic loss scaling: the scale follows f16 gradients, and updates are unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popgraph.popart as popart
from popgraph.popart.api.optimizer_base import Optimizer
from popgraph.support.arrays import Array

GRADIENT = popart.reservedGradientPrefix()
EDGE = 65504 * 0.125
"""The bin edge: larger gradients count as too large."""


class Trained:
    """A session that trains `w`, whose gradient is a given number times the loss scale."""

    def __init__(
        self,
        backend: str = "reference",
        options: popart.SessionOptions | None = None,
        wide: bool = False,
        scale: float = 1.0,
        anchors: Sequence[str] = (),
        rule: Optimizer | None = None,
        batches: int = 1,
        returned: str = "All",
        model: str = "",
        **settings: Any,
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
        settings = {"enabled": True, **settings}
        chosen = popart.AutomaticLossScalingSettings(**settings)
        self.options.automaticLossScalingSettings = chosen
        self.session = popart.TrainingSession(
            model or builder.getModelProto(),
            popart.DataFlow(batches, [GRADIENT + w, *anchors], popart.AnchorReturnType(returned)),
            loss,
            rule or self.rule(scale),
            popart.DeviceManager().createCpuDevice(backend=backend),
            userOptions=self.options,
        )
        self.session.prepareDevice()
        self.session.weightsFromHost()

    def rule(self, scale: float) -> popart.SGD:
        rate = {"defaultLearningRate": (0.125, False), "lossScaling": (scale, False)}
        return popart.SGD(rate)

    def anchors(self, *x: float) -> dict[str, Array]:
        """The anchors of a step whose micro-batches have these unscaled gradients."""
        anchors = self.session.initAnchorArrays()
        given = np.array(x, np.float16).repeat(2)
        self.session.run(popart.PyStepIO({"x": given}, anchors))
        return anchors

    def step(self, *x: float) -> Array:
        """The gradient of `w`, of the last micro-batch."""
        return self.anchors(*x)[GRADIENT + "w"].reshape(-1)[-2:]

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


def test_a_fraction_of_large_gradients_is_tolerated() -> None:
    trained = Trained(thresholdUpperCountProportion=1.0)
    assert trained.scales(EDGE, EDGE / 2) == [1, 2]
    trained = Trained(binEdgeLocation=1.0)
    assert trained.scales(EDGE, EDGE) == [1, 2]


def test_the_first_update_of_a_period_sets_the_scale() -> None:
    trained = Trained(updatePeriod=3)
    assert trained.scales(1, EDGE / 2, EDGE / 2, EDGE, 1, 1, 1) == [1, 2, 2, 2, 1, 1, 1]


def test_micro_batches_and_replicas_are_one_update() -> None:
    options = popart.SessionOptions()
    options.enableGradientAccumulation, options.accumulationFactor = True, 2
    options.enableReplicatedGraphs, options.replicatedGraphCount = True, 2
    trained = Trained(options=options)
    assert [trained.step(*x)[0] for x in ((1, 1, 1, 1), (1, EDGE, 1, 1), (1, 1, 1, 1))] == [1, 2, 1]


def test_a_loss_of_half_precision_bounds_the_scale() -> None:
    trained = Trained(scale=2.0**14, binEdgeLocation=1.0)
    assert trained.scales(0.125, 0.125, 0.125) == [2.0**14, 2.0**15, 2.0**15]
    trained = Trained(scale=2.0**14, wide=True, binEdgeLocation=1.0)
    assert trained.scales(0.125, 0.125, 0.125) == [2.0**14, 2.0**15, np.inf]


def test_nan_gradients_count_as_large() -> None:
    trained = Trained(scale=4.0)
    assert np.isinf(trained.step(65504)).all()
    assert trained.scales(1) == [2]


def test_which_gradients_are_tracked() -> None:
    """The gradient of `w` is too large, that of `x` is not."""
    method = popart.GradientTensorTrackingMethod
    some: dict[str, Any] = {"gradientTensorTrackingMethod": method.GradientsOfUserSpecifiedTensors}
    assert Trained().scales(EDGE, 1) == [1, 0.5]
    assert Trained(toTrackTensors=["w"], **some).scales(EDGE, 1) == [1, 0.5]
    assert Trained(toTrackTensors=["x"], **some).scales(EDGE, 1) == [1, 2]
    with pytest.raises(popart.popart_exception, match=r"Some of the tensors in the .* list do not"):
        Trained(toTrackTensors=["v"], **some)
    with pytest.raises(popart.popart_exception, match="No tracked gradient tensors of type fp16"):
        Trained(gradientTensorTrackingMethod=method.ConvAndMatmulGradients)


def test_tensors_tracked_twice_have_a_warning(capfd: pytest.CaptureFixture[str]) -> None:
    method = popart.GradientTensorTrackingMethod.GradientsOfUserSpecifiedTensors
    Trained(toTrackTensors=["w", "x", "w"], gradientTensorTrackingMethod=method)
    notes = capfd.readouterr().err
    assert notes.count("Tensor w has been added more than once to the list of") == 1
    assert "Tensor x has been added" not in notes


# PopART's tensors

FACTOR = "lossScaleUpdateFactor"
TENSORS = {
    "lossScaling_FLOAT16": ("FLOAT", []),
    FACTOR: ("FLOAT", []),
    f"UpdatedVar___{FACTOR}": ("FLOAT", []),
    "finalLossScale": ("FLOAT", []),
    "scaledLearningRate0___default___FLOAT16": ("FLOAT", []),
    "finalInverseLossScale_0": ("FLOAT", []),
    "Gradient___w_statistics": ("UINT32", [2]),
    "summedHistograms": ("UINT32", [2]),
    "summedCastedHistograms": ("FLOAT", [2]),
}
"""Element types and shapes of PopART's tensors; those of the scale are f32."""


def shown(anchors: dict[str, Array]) -> dict[str, object]:
    return {id: value.tolist() for id, value in anchors.items() if id != GRADIENT + "w"}


@pytest.mark.parametrize("backend", ["reference", "c"])
def test_a_step_anchors_the_factor_and_the_statistics(backend: str) -> None:
    trained = Trained(backend, scale=2.0, anchors=[*TENSORS])
    for id, info in TENSORS.items():
        found = trained.session.getInfo(id)
        assert (found.data_type(), found.shape()) == info
    for x, factor, after, large in [(1, 1, 2, 0), (EDGE, 2, 1, 2), (1, 1, 2, 0)]:
        assert shown(trained.anchors(x)) == {
            "lossScaling_FLOAT16": 2.0,
            FACTOR: factor,
            f"UpdatedVar___{FACTOR}": after,
            "finalLossScale": 2.0 * factor,
            "scaledLearningRate0___default___FLOAT16": 0.125 / 2,
            "finalInverseLossScale_0": 0.125 / 2 / factor,
            **{key: [2 - large, large] for key in STATISTICS},
        }


STATISTICS = ["Gradient___w_statistics", "summedHistograms", "summedCastedHistograms"]
ACCUMULATED = ["Accum___autoLossScaleStats", "summedCastedHistograms_accld"]


@pytest.mark.parametrize("backend", ["reference", "c"])
def test_micro_batches_add_up_statistics(backend: str) -> None:
    """The factor changes after the last micro-batch; `Final` shows the new one."""
    options = popart.SessionOptions()
    options.enableGradientAccumulation, options.accumulationFactor = True, 2
    given = [1, 1, 1, EDGE]
    ids = [FACTOR, "finalLossScale", *STATISTICS, *ACCUMULATED]
    trained = Trained(backend, options, anchors=ids, batches=2)
    of_each = [[[2, 0], [2, 0]], [[2, 0], [0, 2]]]
    so_far = [[[2, 0], [4, 0]], [[2, 0], [2, 2]]]
    assert shown(trained.anchors(*given)) == {
        FACTOR: [[1, 1], [2, 2]],
        "finalLossScale": [[1, 1], [2, 2]],
        **dict.fromkeys(STATISTICS, of_each),
        **dict.fromkeys(ACCUMULATED, so_far),
    }
    final = Trained(backend, options, anchors=ids, batches=2, returned="Final")
    assert shown(final.anchors(*given)) == {
        FACTOR: 1,
        "finalLossScale": 2,
        **{key: [0, 2] for key in STATISTICS},
        **{key: [2, 2] for key in ACCUMULATED},
    }


@pytest.mark.parametrize("accumulation", [1, 2])
def test_each_replica_has_its_own_statistics(accumulation: int) -> None:
    options = popart.SessionOptions()
    options.enableGradientAccumulation = accumulation > 1
    options.accumulationFactor = accumulation
    options.enableReplicatedGraphs, options.replicatedGraphCount = True, 2
    own = [*STATISTICS, *ACCUMULATED[: accumulation - 1]]
    trained = Trained(options=options, anchors=[*own, FACTOR, "summedHistograms_reduced"])
    for factor in (1, 0.5):
        found = trained.anchors(*[1, EDGE / factor] * accumulation)
        counts = np.array([[2, 0], [0, 2]])
        for id in STATISTICS:
            assert (found[id].reshape(accumulation, 2, 2) == counts).all()
        if accumulation > 1:
            assert (found[ACCUMULATED[0]] == [counts, 2 * counts]).all()
        assert (found["summedHistograms_reduced"].reshape(-1, 2, 2)[-1] == 2 * accumulation).all()
        assert (found[FACTOR] == factor).all()


RULES: list[Optimizer] = [
    kind({"defaultLearningRate": (0.125, False), "lossScaling": (4.0, False), **more}, **named)  # type: ignore[arg-type]
    for kind, more, named in (
        (popart.SGD, {}, {}),
        (popart.SGD, {"defaultMomentum": (0.5, False)}, {}),
        (
            popart.SGD,
            {"defaultMomentum": (0.5, False)},
            {"accumulatorAndMomentum": popart.SGDAccumulatorAndMomentum.Separate},
        ),
        (popart.SGD, {"defaultMomentum": (0.5, False), "nesterov": (1.0, True)}, {}),
        (popart.Adam, {}, {}),
        (popart.Adaptive, {}, {}),
    )
]


@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize("number", range(len(RULES)))
def test_every_optimizer_divides_by_the_scale(number: int, accumulation: int) -> None:
    options = popart.SessionOptions()
    options.enableGradientAccumulation = accumulation > 1
    options.accumulationFactor = accumulation
    given = [0.5] * 3 * accumulation
    anchors = ["finalLossScale", "finalInverseLossScale_0"]
    trained = Trained(options=options, rule=RULES[number], batches=3, anchors=anchors)
    found = trained.anchors(*given)
    scales = found["finalLossScale"].reshape(3, -1)[:, 0]
    inverse = found["finalInverseLossScale_0"].reshape(3, -1)[:, 0]
    assert scales.tolist() == [4, 8, 16]
    assert (scales * inverse == scales[0] * inverse[0]).all()
    fixed = Trained(options=options, rule=RULES[number], batches=3, enabled=False)
    fixed.anchors(*given)
    assert trained.weights().tolist() == fixed.weights().tolist()


def test_a_saved_model_keeps_its_factor(tmp_path: Path) -> None:
    whole = Trained(updatePeriod=2, batches=6, anchors=["finalLossScale"])
    expected = whole.anchors(*[1] * 6)["finalLossScale"].tolist()
    assert expected == [1, 2, 2, 4, 4, 8]
    saved = str(tmp_path / "saved.onnx")
    first = Trained(updatePeriod=2, batches=3, anchors=["finalLossScale"])
    found = first.anchors(1, 1, 1)["finalLossScale"].tolist()
    first.session.modelToHost(saved)
    second = Trained(updatePeriod=2, batches=3, anchors=["finalLossScale"], model=saved)
    assert found + second.anchors(1, 1, 1)["finalLossScale"].tolist() == expected


@pytest.mark.parametrize(
    "id", ["Accum___autoLossScaleStats", "Gradient___x_statistics", "summedHistograms_reduced"]
)
def test_anchors_that_do_not_exist(id: str) -> None:
    """Anchors that require accumulation, the gradient of an input, or several replicas."""
    with pytest.raises(popart.popart_exception, match=f"`{id}' not in Ir Tensors"):
        Trained(anchors=[id])
    with pytest.raises(popart.popart_exception, match="`finalLossScale' not in Ir Tensors"):
        Trained(enabled=False, anchors=["finalLossScale"])
