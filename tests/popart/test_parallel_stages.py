"""Tests that parallel pipeline stages compute the same as sequential ones."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import popgraph.popart as popart
from popgraph.engine.program_stages import ParallelPipeline
from popgraph.engine.staged_executable import StagedExecutable
from popgraph.popart.sessions.setup import Setup
from popgraph.support.arrays import Array
from popgraph.support.errors import IndicesError, RunError
from popgraph.support.ranks.communicator import Communicator
from popgraph.support.ranks.world import world
from tests.popart.test_pipelining import Deep, cycles
from tests.ranks.threads import on_ranks

SIZE, CLASSES, FACTOR = 6, 4, 5


def network() -> tuple[Any, str]:
    """Three stages: a normalization, dropout, and a class loss."""
    rng, builder = np.random.default_rng(3), popart.Builder()

    def weight(*shape: int) -> str:
        values = rng.normal(size=shape).astype(np.float32)
        found: str = builder.addInitializedInputTensor(values, f"w{len(shape)}{rng.integers(99)}")
        return found

    y = builder.addInputTensor("FLOAT", [3, SIZE, 1], "x")
    label = builder.addInputTensor("INT32", [3], "l")
    with builder.virtualGraph(0), builder.pipelineStage(0):
        first = {"scale": 1, "shift": 0, "mean": 0, "variance": 1}
        given = [
            builder.addInitializedInputTensor(np.full(SIZE, value, np.float32), name)
            for name, value in first.items()
        ]
        y = builder.aiOnnx.batchnormalization([y, *given], 5, momentum=0.8)[0]
        y = builder.reshape_const(builder.aiOnnx, [y], [3, SIZE])
        y = builder.aiOnnx.matmul([y, weight(SIZE, SIZE)])
    with builder.virtualGraph(1), builder.pipelineStage(1):
        y = builder.aiOnnx.tanh([builder.aiOnnx.matmul([y, weight(SIZE, CLASSES)])])
        y = builder.aiOnnx.dropout([y], 1, 0.3)[0]
    with builder.virtualGraph(2), builder.pipelineStage(2):
        y = builder.aiOnnx.softmax([builder.aiOnnx.matmul([y, weight(CLASSES, CLASSES)])])
        return builder, builder.aiGraphcore.nllloss([y, label])


def session(
    *, accumulates: bool, overlaps: bool, threads: int = 2, rule: Any = None, **asked: Any
) -> tuple[Any, str]:
    builder, loss = network()
    made = popart.SessionOptions()
    made.virtualGraphMode, made.enablePipelining = popart.VirtualGraphMode.Manual, True
    made.overlapStages = overlaps
    made.enableGradientAccumulation = accumulates
    made.accumulationFactor = FACTOR if accumulates else 1
    overlapping = popart.AccumulateOuterFragmentSchedule.OverlapCycleOptimized
    made.accumulateOuterFragmentSettings = popart.AccumulateOuterFragmentSettings(overlapping, [0])
    for name, value in asked.items():
        setattr(made, name, value)
    found = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(2 if accumulates else 5, {loss: popart.AnchorReturnType("All")}),
        loss,
        rule or popart.Adam({"defaultLearningRate": (0.01, False)}),
        popart.DeviceManager().createCpuDevice(backend="c", threads=threads),
        userOptions=made,
    )
    found.prepareDevice()
    found.setRandomSeed(7)
    found.weightsFromHost()
    return found, loss


def data(accumulates: bool, seed: int = 0) -> dict[str, Array]:
    rng, lead = np.random.default_rng(seed), (2, FACTOR) if accumulates else (5,)
    x = rng.normal(size=(*lead, 3, SIZE, 1)).astype(np.float32)
    return {"x": x, "l": rng.integers(0, CLASSES, (*lead, 3)).astype(np.int32)}


def trained(made: Any, loss: str, accumulates: bool) -> list[Array]:
    """The losses of two steps, and all weights and states."""
    found = []
    for seed in range(2):
        anchors = made.initAnchorArrays()
        made.run(popart.PyStepIO(data(accumulates, seed), anchors))
        found.append(anchors[loss])
    made.weightsToHost()
    weights = made.weights()
    return found + [weights[id] for id in sorted(weights)]


def assert_same(found: list[Array], wanted: list[Array]) -> None:
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, 1e-5, 1e-6)


@pytest.fixture
def in_stages(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of batches that went through stages, call by call."""
    counts: list[int] = []
    run = StagedExecutable.run_stacked

    def counting(self: Any, inputs: Any, count: int) -> dict[str, Array]:
        counts.append(count)
        return run(self, inputs, count)

    monkeypatch.setattr(StagedExecutable, "run_stacked", counting)
    return counts


@pytest.mark.parametrize("accumulates", [True, False])
def test_parallel_stages_train_as_sequential_ones(accumulates: bool, in_stages: list[int]) -> None:
    """Compares running statistics, random masks and Adam's states, too."""
    wanted, loss = session(accumulates=accumulates, overlaps=False)
    expected = trained(wanted, loss, accumulates)
    assert not in_stages
    made, _ = session(accumulates=accumulates, overlaps=True)
    assert_same(trained(made, loss, accumulates), expected)
    assert in_stages == ([2 * FACTOR] * 2 if accumulates else [5, 5])


def of_ranks(setup: Any, program: object) -> ParallelPipeline:
    """The overlap of stages over ranks, where each rank is a thread."""
    ranks: Any = world()
    return ParallelPipeline(setup.placement.stages.pipeline, ranks.threads[threading.get_ident()])


def test_ranks_train_as_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted, loss = session(accumulates=True, overlaps=False)
    expected = trained(wanted, loss, True)
    monkeypatch.setattr(Setup, "overlap", of_ranks)

    def on_a_rank(rank: Communicator) -> list[Array]:
        return trained(*session(accumulates=True, overlaps=False), True)

    for found in on_ranks(2, on_a_rank):
        assert_same(found, expected)


def test_immediate_updates_use_the_weights_of_a_pipeline(in_stages: list[int]) -> None:
    deep = Deep(backend="c", overlapStages=True)
    weights = [w.copy() for w in deep.weights]
    speeds = [np.zeros_like(w) for w in weights]
    for given in np.random.default_rng(6).normal(size=(2, 7, 2, 2)).astype(np.float32):
        wanted = cycles(weights, speeds, given)
        np.testing.assert_allclose(deep.run(given), wanted, 1e-4, 1e-5)
    assert in_stages == [7, 7]
    for found, w in zip(deep.trained(), weights, strict=True):
        np.testing.assert_allclose(found, w, 1e-4, 1e-5)


def test_callbacks_and_sums() -> None:
    """Callbacks can feed parallel stages: all inputs of a step are requested before it begins."""
    made, loss = session(accumulates=True, overlaps=True)
    wanted, _ = session(accumulates=True, overlaps=False)
    whole = data(True)
    rows = {id: iter(array.reshape(-1, *array.shape[2:])) for id, array in whole.items()}
    outputs: list[Array] = []

    def output(id: str) -> Array:
        outputs.append(np.empty((), np.float32))
        return outputs[-1]

    made.run(
        popart.PyStepIOCallback(
            lambda id, _: next(rows[id]), lambda id: None, output, lambda id: None
        )
    )
    anchors = wanted.initAnchorArrays()
    wanted.run(popart.PyStepIO(whole, anchors))
    np.testing.assert_allclose(np.array(outputs), anchors[loss].ravel(), 1e-5)


def test_a_stage_that_fails_ends_the_step_and_not_the_session() -> None:
    made, loss = session(accumulates=True, overlaps=True, indices="error")
    bad = data(True)
    bad["l"][1, 2, 0] = CLASSES
    with pytest.raises(IndicesError):
        made.run(popart.PyStepIO(bad, made.initAnchorArrays()))
    with pytest.raises(RunError, match="some stages have accumulated more of it than others"):
        made.run(popart.PyStepIO(data(True), made.initAnchorArrays()))
    made.weightsFromHost()
    made.setRandomSeed(7)
    wanted, _ = session(accumulates=True, overlaps=False)
    assert_same(trained(made, loss, True), trained(wanted, loss, True))


def clipping() -> Any:
    clips = [popart.ClipNormSettings.clipAllWeights(0.1)]
    return popart.SGD({"defaultLearningRate": (0.1, False)}, clips)


def test_programs_that_cannot_be_cut_run_sequentially(
    in_stages: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The norm of all gradients is known only after the last stage, so stages run sequentially."""
    found = [
        trained(*session(accumulates=False, overlaps=overlaps, rule=clipping()), False)
        for overlaps in (True, False)
    ]
    assert_same(*found)
    assert not in_stages
    monkeypatch.setattr(Setup, "overlap", of_ranks)
    with pytest.raises(popart.popart_exception, match="is updated later than a stage can wait"):
        on_ranks(2, lambda rank: session(accumulates=False, overlaps=False, rule=clipping()))


def test_norms_of_all_gradients_are_taken_before_updates(in_stages: list[int]) -> None:
    found = [
        trained(*session(accumulates=True, overlaps=overlaps, rule=clipping()), True)
        for overlaps in (True, False)
    ]
    assert_same(*found)
    assert in_stages == [2 * FACTOR] * 2


def test_floating_point_checks_run_stages_sequentially(in_stages: list[int]) -> None:
    looked_at = session(accumulates=True, overlaps=True, enableFloatingPointChecks=True)
    trained(*looked_at, True)
    assert not in_stages


def test_parallel_stages_have_no_quick_programs() -> None:
    with pytest.raises(popart.popart_exception, match="side by side have no quick programs"):
        session(accumulates=True, overlaps=True, enableQuickStart=True)


def anchored(
    anchors: list[str], accumulates: bool, overlaps: bool, threads: int = 2
) -> list[Array]:
    """All anchors of two steps of three layers, and the weights after them."""
    rng, builder = np.random.default_rng(0), popart.Builder()
    y = builder.addInputTensor("FLOAT", [4, 3], "x")
    builder.addInitializedInputTensor(np.ones(3, np.float32), "unread")
    for at in range(3):
        w = rng.normal(size=(3, 3)).astype(np.float32)
        with builder.virtualGraph(at), builder.pipelineStage(at):
            product = builder.aiOnnx.matmul([y, builder.addInitializedInputTensor(w, f"w{at}")])
            y = builder.aiOnnx.tanh([product])
            loss = builder.aiGraphcore.l1loss([y], 0.1) if at == 2 else ""
    options = popart.SessionOptions()
    options.virtualGraphMode, options.enablePipelining = popart.VirtualGraphMode.Manual, True
    options.overlapStages, options.enableGradientAccumulation = overlaps, accumulates
    options.accumulationFactor = 6 if accumulates else 1
    every = popart.AnchorReturnType("All")
    made = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1 if accumulates else 6, dict.fromkeys([loss, *anchors], every)),
        loss,
        popart.Adam({"defaultLearningRate": (0.01, False)}),
        popart.DeviceManager().createCpuDevice(backend="c", threads=threads),
        userOptions=options,
    )
    made.prepareDevice()
    made.weightsFromHost()
    found = []
    for _ in range(2):
        x = rng.normal(size=(6, 4, 3)).astype(np.float32)
        results = made.initAnchorArrays()
        made.run(popart.PyStepIO({"x": x}, results))
        found += [results[id] for id in sorted(results)]
    made.weightsToHost()
    weights = made.weights()
    return found + [weights[id] for id in sorted(weights)]


@pytest.mark.parametrize("accumulates", [True, False])
def test_anchors_of_all_kinds(accumulates: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anchors of inputs, weights, gradients and accumulators."""
    anchors = ["x", "w0", "w2", "Gradient___x", "Gradient___w1"]
    anchors += ["Accum___w1", "Counter___accumulation"] if accumulates else []
    wanted = anchored(anchors, accumulates, overlaps=False)
    assert_same(anchored(anchors, accumulates, overlaps=True), wanted)
    monkeypatch.setattr(Setup, "overlap", of_ranks)
    for found in on_ranks(3, lambda rank: anchored(anchors, accumulates, overlaps=False)):
        assert_same(found, wanted)
