"""Tests with random models and options: results agree across options and backends."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

import popgraph.popart as popart
from popgraph.engine import program_code
from popgraph.engine.alternating_programs import SeparateUpdate
from popgraph.support.arrays import Array
from popgraph.testing import assert_close

SIZE, BATCHES, WEIGHTS = 4, 5, 2
UNARY = ("abs", "exp", "identity", "relu", "sigmoid", "softmax", "tanh")
BINARY = ("add", "matmul", "mul", "sub")
KINDS = (*UNARY, *BINARY, "dropout")
Step = tuple[str, int, int]

SILENT: dict[str, list[Any]] = {
    "autoRecomputation": [popart.RecomputationType.Standard, popart.RecomputationType.RecomputeAll],
    "enableOutlining": [False],
    "useHostCopyOps": [True],
    "decomposeGradSum": [True],
    "enableSupportedDataTypeCasting": [False],
    "constantWeights": [False],
    "exchangeBucketBytes": [64],
    "scheduleNonWeightUpdateGradientConsumersEarly": [True],
    "optimizerStateTensorLocationSettings": [
        popart.TensorLocationSettings(popart.TensorLocation(popart.TensorStorage.OffChip), 0, 0)
    ],
    "enableQuickStart": [True],
}
"""Options that may change the program, but no result."""


@dataclass(frozen=True)
class Drawn:
    """A model, its training, and options that must not change results."""

    steps: tuple[Step, ...]
    dtype: str
    optimizer: str
    accumulation: int
    replicas: int
    rounds: bool
    stages: int
    silent: dict[str, Any] = field(default_factory=dict)
    pipelined: bool = True
    """Whether several stages form a pipeline."""

    def model(self) -> tuple[Any, str]:
        """The model, whose stages have separate weights."""
        builder, rng = popart.Builder(), np.random.default_rng(5)
        numbers = np.float16 if self.dtype == "FLOAT16" else np.float32
        made = [builder.addInputTensor(self.dtype, [SIZE, SIZE], "x")]
        weights: dict[str, str] = {}

        def tensor(number: int, stage: int) -> str:
            """The input, a weight of the stage, or the result of a step."""
            if not 0 < number <= WEIGHTS:
                return str(made[max(number - WEIGHTS, 0)])
            name = f"w{number}_{stage}"
            if name not in weights:
                values = rng.normal(size=(SIZE, SIZE)).astype(numbers)
                weights[name] = builder.addInitializedInputTensor(values, name)
            return weights[name]

        last = self.stages - 1
        for number, (name, first, second) in enumerate(self.steps):
            stage = number * self.stages // len(self.steps)
            with builder.virtualGraph(stage), builder.pipelineStage(stage):
                made.append(_added(builder, name, tensor(first, stage), tensor(second, stage)))
        with builder.virtualGraph(last), builder.pipelineStage(last):
            mixed = builder.aiOnnx.matmul([made[-1], tensor(1, last)])
            mixed = builder.aiOnnx.tanh([builder.aiOnnx.add([mixed, tensor(2, last)])])
            loss = builder.aiGraphcore.l1loss([mixed], 0.1, popart.ReductionType.Sum)
        return builder, loss

    def rule(self) -> Any:
        match self.optimizer:
            case "sgd":
                return popart.SGD({"defaultLearningRate": (0.05, False)})
            case "momentum":
                given = {"defaultLearningRate": (0.05, False), "defaultMomentum": (0.9, True)}
                return popart.SGD(given, [popart.ClipNormSettings.clipAllWeights(0.5)])
            case "adam":
                return popart.Adam({"defaultLearningRate": (0.05, False)})
            case _:
                return popart.Adam(
                    {"defaultLearningRate": (0.05, False)}, mode=popart.AdamMode.LambNoBias
                )

    def options(self) -> Any:
        made = popart.SessionOptions()
        made.enableGradientAccumulation = self.accumulation > 1
        made.accumulationFactor = self.accumulation
        made.enableReplicatedGraphs = self.replicas > 1
        made.replicatedGraphCount = self.replicas
        made.enableStochasticRounding = self.rounds
        if self.stages > 1:
            made.virtualGraphMode = popart.VirtualGraphMode.Manual
            made.enablePipelining = self.pipelined
            overlapping = popart.AccumulateOuterFragmentSchedule.OverlapCycleOptimized
            outer = popart.AccumulateOuterFragmentSettings(overlapping, [0])
            made.accumulateOuterFragmentSettings = outer
        for name, value in self.silent.items():
            setattr(made, name, value)
        return made

    def trained(self, backend: str) -> dict[str, Array]:
        """The losses and gradients of two steps, and all weights and states."""
        builder, loss = self.model()
        anchors = dict.fromkeys(
            (loss, f"Gradient___w1_{self.stages - 1}"), popart.AnchorReturnType("All")
        )
        session = popart.TrainingSession(
            builder.getModelProto(),
            popart.DataFlow(BATCHES, anchors),
            loss,
            self.rule(),
            popart.DeviceManager().createCpuDevice(backend=backend),
            userOptions=self.options(),
        )
        session.prepareDevice()
        session.setRandomSeed(3)
        session.weightsFromHost()
        lead = [BATCHES, *(count for count in (self.accumulation, self.replicas) if count > 1)]
        rng, found = np.random.default_rng(1), {}
        for step in range(2):
            x = rng.normal(size=(*lead, SIZE, SIZE)).astype(session.getInfo("x").data_type_lcase())
            made = session.initAnchorArrays()
            session.run(popart.PyStepIO({"x": x}, made))
            found |= {f"{id} of step {step}": array.copy() for id, array in made.items()}
        session.weightsToHost()
        return found | dict(session.weights())


def _added(builder: Any, name: str, first: str, second: str) -> str:
    if name == "dropout":
        made: str = builder.aiOnnx.dropout([first], 1, 0.3)[0]
    else:
        made = getattr(builder.aiOnnx, name)([first, second] if name in BINARY else [first])
    return made


@st.composite
def drawn(draw: st.DrawFn) -> Drawn:
    steps: list[Step] = []
    stages = draw(st.sampled_from([1, 1, 2, 3]))
    for name in draw(st.lists(st.sampled_from(KINDS), min_size=3, max_size=7)):
        newest = WEIGHTS + len(steps)
        first = (
            newest if stages > 1 else draw(st.integers(0, newest))
        )  # Every stage computes something.
        steps.append((name, first, draw(st.integers(0, newest))))
    names = draw(st.sets(st.sampled_from(sorted(SILENT)), max_size=4))
    return Drawn(
        steps=tuple(steps),
        dtype=draw(st.sampled_from(["FLOAT", "FLOAT16"])),
        optimizer=draw(st.sampled_from(["sgd", "momentum", "adam", "lamb"])),
        accumulation=draw(st.sampled_from([1, 5, 6])),
        replicas=draw(st.sampled_from([1, 1, 2])),
        rounds=draw(st.booleans()),
        stages=stages,
        silent={name: draw(st.sampled_from(SILENT[name])) for name in sorted(names)},
    )


def assert_same(one: Drawn, found: dict[str, Array], wanted: dict[str, Array]) -> None:
    assert found.keys() == wanted.keys()
    tolerance = 3e-2 if one.dtype == "FLOAT16" else 2e-4
    for name, value in wanted.items():
        assert_close(found[name], value, tolerance, name)


@given(drawn())
@settings(max_examples=max(8, settings.default.max_examples // 3))
def test_options_that_change_no_number(one: Drawn) -> None:
    plain = replace(one, rounds=False, silent={})
    assert_same(one, replace(one, rounds=False).trained("reference"), plain.trained("reference"))


@given(drawn())
@settings(max_examples=max(8, settings.default.max_examples // 3))
def test_accumulating_pipelines_train_as_without(one: Drawn) -> None:
    assume(one.stages > 1)
    pipeline = replace(one, accumulation=max(one.accumulation, BATCHES), rounds=False)
    plain = replace(pipeline, pipelined=False)
    assert_same(one, pipeline.trained("reference"), plain.trained("reference"))


@given(drawn())
@settings(max_examples=max(4, settings.default.max_examples // 10))
def test_both_backends_train_alike(one: Drawn) -> None:
    assert_same(one, one.trained("c"), one.trained("reference"))


def test_fuzz_kills_updates_that_come_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plants a bug in sessions with a separate update program."""

    def late(others: Any, last: Any, counter: str, period: int) -> SeparateUpdate:
        return SeparateUpdate(others, last, counter, period + 1)

    monkeypatch.setattr(program_code, "SeparateUpdate", late)

    @settings(max_examples=100, phases=[Phase.generate], database=None)
    @given(drawn())
    def holds(one: Drawn) -> None:
        assert_same(one, one.trained("c"), one.trained("reference"))

    with pytest.raises((AssertionError, ExceptionGroup)):
        holds()
