"""Tests anchors of optimizer values that the host writes, under PopART's names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pytest

import popgraph.popart as popart
from popgraph.popart.api.optimizer_base import Optimizer
from popgraph.support.arrays import Array

SEPARATE = popart.SGDAccumulatorAndMomentum.Separate
SCALE, MICRO_BATCHES = 4.0, 2
Values = Mapping[str, tuple[float, bool]]


@dataclass(frozen=True)
class Case:
    """An optimizer with variable values, and the scalars that it streams."""

    optimizer: Callable[..., Optimizer]
    given: Values
    streamed: Mapping[str, float]
    named: Mapping[str, object]


def case(kind: Callable[..., Optimizer], given: object, streamed: object, **named: object) -> Case:
    assert isinstance(given, dict)
    assert isinstance(streamed, dict)
    values = {key: (value, False) for key, value in given.items()}
    return Case(kind, {**values, "lossScaling": (SCALE, False)}, streamed, named)


MOMENTUM = {
    "defaultLearningRate": 0.1,
    "defaultWeightDecay": 0.5,
    "defaultMomentum": 0.75,
    "defaultDampening": 0.25,
    "defaultVelocityScaling": 3.0,
}
CASES = {
    "sgd0": case(
        popart.SGD,
        {"defaultLearningRate": 0.1, "defaultWeightDecay": 0.5},
        {
            "scaledLearningRate0": 0.1 / SCALE,
            "weightDecayScaleFactor0": 1 - 0.1 * 0.5,
        },
    ),
    "sgd1": case(
        popart.SGD,
        MOMENTUM,
        {
            "scaledLearningRate1": 0.1 / 3,
            "scaledWeightDecay1": 0.75 * 0.5 * 3,
            "dampeningScaleFactor1": 0.75 * 3 / SCALE,
            "scaledMomentum1": 0.75,
        },
    ),
    "sgd2": case(
        popart.SGD,
        MOMENTUM,
        {
            "scaledLearningRate2": 0.1 / 3,
            "scaledWeightDecay1": 0.75 * 0.5 * 3,
            "dampeningScaleFactor2": 0.75 * 3 / SCALE,
            "scaledMomentum2": 0.75,
        },
        accumulatorAndMomentum=SEPARATE,
    ),
    "adam": case(
        popart.Adam,
        {
            "defaultLearningRate": 0.1,
            "defaultWeightDecay": 0.5,
            "defaultBeta1": 0.75,
            "defaultBeta2": 0.875,
            "defaultEps": 0.25,
        },
        {
            "learningRate": 0.1,
            "weightDecay": 0.5,
            "adamBeta1": 0.75,
            "adamBeta2": 0.875,
            "adamEps": 0.25,
            "adamGradientScaling": 1 / SCALE,
        },
    ),
    "lamb": case(
        popart.Adam,
        {"defaultLearningRate": 0.1, "defaultMaxWeightNorm": 5.0},
        {"learningRate": 0.1, "maxWeightNorm": 5.0, "adamGradientScaling": 1 / SCALE},
        mode=popart.AdamMode.Lamb,
    ),
    "adaptive": case(
        popart.Adaptive,
        {
            "defaultLearningRate": 0.1,
            "defaultWeightDecay": 0.5,
            "defaultAlpha": 0.75,
            "defaultMomentum": 0.25,
            "defaultEps": 0.125,
        },
        {
            "learningRate": 0.1,
            "weightDecay": 0.5,
            "adaptiveAlpha": 0.75,
            "adaptiveMomentum": 0.25,
            "adaptiveEps": 0.125,
            "adaptiveGradientScaling": 1 / SCALE,
        },
    ),
}


NUMPY = {"FLOAT": np.float32, "FLOAT16": np.float16}


class Trained:
    """A session of one weight, with anchors."""

    def __init__(
        self, optimizer: Optimizer, anchors: list[str], dtype: str = "FLOAT", accumulation: int = 1
    ) -> None:
        builder = popart.Builder()
        x = builder.addInputTensor(dtype, [2], "x")
        w = builder.addInitializedInputTensor(np.ones(2, NUMPY[dtype]), "w")
        product = builder.aiOnnx.mul([x, w])
        loss = builder.aiGraphcore.identityloss([product], popart.ReductionType.Sum)
        options = popart.SessionOptions()
        options.enableGradientAccumulation = accumulation > 1
        options.accumulationFactor = accumulation
        self.session = popart.TrainingSession(
            builder.getModelProto(),
            popart.DataFlow(1, anchors),
            loss,
            optimizer,
            popart.DeviceManager().createCpuDevice(backend="reference"),
            userOptions=options,
        )
        self.session.prepareDevice()
        self.session.weightsFromHost()
        self._x = np.ones((accumulation, 2), NUMPY[dtype])

    def step(self) -> dict[str, Array]:
        anchors = self.session.initAnchorArrays()
        self.session.run(popart.PyStepIO({"x": self._x}, anchors))
        return anchors


@pytest.mark.parametrize("dtype", ["FLOAT", "FLOAT16"])
@pytest.mark.parametrize("name", CASES)
def test_every_streamed_optimizer_value_can_be_anchored(name: str, dtype: str) -> None:
    """The name ends with the element type of the weights, though most values are f32."""
    one = CASES[name]
    expected = {f"{prefix}___default___{dtype}": value for prefix, value in one.streamed.items()}
    expected[f"lossScaling_{dtype}"] = SCALE
    optimizer = one.optimizer(one.given, **one.named)
    trained = Trained(optimizer, [*expected], dtype, MICRO_BATCHES)
    found = trained.step()
    for id, value in expected.items():
        like_weight = id.startswith(("weightDecayScale", "scaledMomentum", "lossScaling"))
        kind = NUMPY[dtype] if like_weight else np.float32
        assert found[id].dtype == kind
        assert found[id].tolist() == [kind(value)] * MICRO_BATCHES
        assert trained.session.getInfo(id).shape() == []


def test_a_weight_with_specific_values_has_all_anchors() -> None:
    optimizer = popart.SGD({"defaultLearningRate": (0.5, False), "lossScaling": (SCALE, False)})
    own = {"learningRate": (0.25, False), "momentum": (0.5, False), "velocityScaling": (2, False)}
    optimizer.insertSpecific("w", own)
    expected = {
        "scaledLearningRate1": 0.25 / 2,
        "scaledMomentum1": 0.5,
        "dampeningScaleFactor1": 2 / SCALE,
        "scaledWeightDecay1": 0.0,
    }
    ids = {f"{prefix}___specific___w": value for prefix, value in expected.items()}
    found = Trained(optimizer, [*ids]).step()
    assert {id: float(value) for id, value in found.items()} == ids


def test_a_step_anchors_the_values_that_it_used() -> None:
    id = "scaledLearningRate0___default___FLOAT"
    off = "weightDecayScaleFactor0___default___FLOAT"
    trained = Trained(popart.SGD({"defaultLearningRate": (0.5, False)}), [id, off])
    assert {name: float(one) for name, one in trained.step().items()} == {id: 0.5, off: 1.0}
    trained.session.updateOptimizerFromHost(popart.SGD({"defaultLearningRate": (0.25, False)}))
    assert {name: float(one) for name, one in trained.step().items()} == {id: 0.25, off: 1.0}


def test_constant_optimizer_values_are_not_tensors() -> None:
    """A constant value is an attribute of operators, as in PopART."""
    with pytest.raises(popart.popart_exception, match="not in Ir Tensors"):
        Trained(
            popart.SGD({"defaultLearningRate": (0.5, True)}),
            ["scaledLearningRate0___default___FLOAT"],
        )
