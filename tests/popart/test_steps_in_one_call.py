"""Tests that one call for all micro-batches of a step equals a call for each."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import popgraph.popart as popart
from popgraph.backends.c.run.executable import CExecutable
from popgraph.support.arrays import Array
from popgraph.support.errors import IndicesError

BATCHES, FACTOR, ROWS = 4, 3, 2
RETURNED: dict[str, tuple[object, ...]] = {
    "all": ("All",),
    "last": ("Final",),
    "sum": ("Sum",),
    "every fourth": ("EveryN", 4),
}


class Labels:
    """A session that trains on rows and labels, with an input that nothing reads."""

    def __init__(self, backend: str = "c", returned: tuple[object, ...] = ("All",)) -> None:
        builder = popart.Builder()
        builder.addInputTensor("FLOAT", [2], "unread")
        x = builder.addInputTensor("FLOAT", [ROWS, 3], "x")
        labels = builder.addInputTensor("INT32", [ROWS], "labels")
        first = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
        w = builder.addInitializedInputTensor(first, "w")
        y = builder.aiOnnx.softmax([builder.aiOnnx.matmul([x, w])])
        loss = builder.aiGraphcore.nllloss([y, labels])
        options = popart.SessionOptions()
        options.indices = "error"
        options.enableGradientAccumulation, options.accumulationFactor = True, FACTOR
        self.anchors = [loss, "Gradient___w", "Accum___w", y]
        how = popart.AnchorReturnType(*returned)
        self.session = popart.TrainingSession(
            builder.getModelProto(),
            popart.DataFlow(BATCHES, dict.fromkeys(self.anchors, how)),
            loss,
            popart.SGD({"defaultLearningRate": (0.5, False)}),
            popart.DeviceManager().createCpuDevice(backend=backend),
            userOptions=options,
        )
        self.session.prepareDevice()
        self.session.weightsFromHost()

    def weights(self) -> Array:
        self.session.weightsToHost()
        return self.session.weights()["w"].copy()


def data(steps: int = 1) -> dict[str, Array]:
    random, shape = np.random.default_rng(4), (steps, BATCHES, FACTOR, ROWS)
    return {
        "x": random.normal(size=(*shape, 3)).astype(np.float32),
        "labels": random.integers(0, 4, size=shape),  # int64 for an INT32 input
    }


def one_by_one(arrays: dict[str, Array], anchors: dict[str, Array]) -> popart.PyStepIOCallback:
    """The same data by callbacks, which force one call per micro-batch."""
    inputs = {id: iter(array.reshape(-1, *array.shape[2:])) for id, array in arrays.items()}
    written = dict.fromkeys(anchors, 0)

    def read(id: str, _: bool) -> Array:
        return np.ascontiguousarray(next(inputs[id]), {"labels": np.int32}.get(id))

    def write(id: str) -> Array:
        values = anchors[id].reshape(-1)
        size = {"Gradient___w": 12, "Accum___w": 12}.get(id, 8 if id.startswith("Soft") else 1)
        start = written[id]
        written[id] += size
        return values[start : start + size]

    return popart.PyStepIOCallback(read, lambda _: None, write, lambda _: None)


@pytest.mark.parametrize("backend", ["c", "reference"])
@pytest.mark.parametrize("kind", RETURNED)
def test_a_step_in_one_call_equals_micro_batches_one_by_one(kind: str, backend: str) -> None:
    arrays = data()
    at_once, apart = Labels(backend, RETURNED[kind]), Labels(backend, RETURNED[kind])
    found, wanted = at_once.session.initAnchorArrays(), apart.session.initAnchorArrays()
    at_once.session.run(popart.PyStepIO(arrays, found))
    apart.session.run(one_by_one({id: one[0] for id, one in arrays.items()}, wanted))
    for id in at_once.anchors:
        np.testing.assert_array_equal(found[id], wanted[id], err_msg=id)
    np.testing.assert_array_equal(at_once.weights(), apart.weights())
    assert np.abs(found["Gradient___w"]).max() > 1e-3


def test_a_step_is_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("a micro-batch was run on its own")

    labels = Labels()
    anchors = labels.session.initAnchorArrays()
    monkeypatch.setattr(CExecutable, "run", never)
    stepio = popart.PyStepIO(data(2), anchors)
    stepio.enableRuntimeAsserts(False)
    for _ in range(4):  # The data last for two steps, then start again.
        labels.session.run(stepio)
    with pytest.raises(AssertionError, match="on its own"):
        labels.session.run(one_by_one({id: one[0] for id, one in data().items()}, anchors))


def test_arrays_that_end_within_a_step_wrap_around() -> None:
    whole = data()
    some = {id: array[0, :3] for id, array in whole.items()}  # three of four batches
    twice = {id: np.concatenate([one, one[:1]]) for id, one in some.items()}
    results = []
    for arrays in (some, twice):
        labels = Labels()
        anchors = labels.session.initAnchorArrays()
        stepio = popart.PyStepIO(arrays, anchors)
        stepio.enableRuntimeAsserts(False)
        labels.session.run(stepio)
        results.append((labels.weights(), anchors["Gradient___w"].copy()))
    for found, wanted in zip(*results, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_steps_in_one_call_fill_lists() -> None:
    labels = Labels()
    anchors: dict[str, Any] = dict(labels.session.initAnchorArrays())
    loss = labels.anchors[0]
    anchors[loss] = [0.0] * (BATCHES * FACTOR)
    labels.session.run(popart.PyStepIO(data(), anchors))
    other = Labels()
    arrays = other.session.initAnchorArrays()
    other.session.run(popart.PyStepIO(data(), arrays))
    np.testing.assert_allclose(anchors[loss], arrays[loss].reshape(-1), 1e-6)


def test_an_anchor_may_be_the_next_input() -> None:
    """Input and anchor share an array: each micro-batch reads the result of the previous one."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2], "x")
    y = builder.aiOnnx.add([x, x])
    device = popart.DeviceManager().createCpuDevice()
    session = popart.InferenceSession(builder.getModelProto(), popart.DataFlow(3, [y]), device)
    session.prepareDevice()
    memory = np.array([1, 2, 0, 0, 0, 0, 0, 0], np.float32)
    session.run(popart.PyStepIO({x: memory[:6].reshape(3, 2)}, {y: memory[2:].reshape(3, 2)}))
    np.testing.assert_array_equal(memory, [1, 2, 2, 4, 4, 8, 8, 16])


def test_a_label_out_of_range_ends_the_step() -> None:
    arrays = data()
    arrays["labels"][0, 2, 1, 0] = 7
    labels = Labels()
    stepio = popart.PyStepIO(arrays, labels.session.initAnchorArrays())
    with pytest.raises(IndicesError, match="7 is out of range: 0 to 3 are legal"):
        labels.session.run(stepio)
    labels.session.run(popart.PyStepIO(data(), labels.session.initAnchorArrays()))


RULES: dict[str, Any] = {
    "SGD": lambda: popart.SGD({"defaultLearningRate": (0.1, False)}),
    "momentum": lambda: popart.SGD({"defaultMomentum": (0.9, False)}),
    "Adam": lambda: popart.Adam({"defaultWeightDecay": (0.1, True)}),
    "clipped": lambda: popart.SGD(
        {"defaultMomentum": (0.5, True)},
        [popart.ClipNormSettings.clipAllWeights(0.05)],
    ),
    "RMSProp": lambda: popart.Adaptive({}, mode=popart.AdaptiveMode.RMSProp),
}
STATES = {"Adam": "Accl1___w0", "momentum": "Accl___w0", "clipped": "Accl___w0"}


def moved(name: str, backend: str) -> tuple[dict[str, Array], dict[str, Array]]:
    """Weights and states after two steps, and anchors, some only changed by updates."""
    builder, random = popart.Builder(), np.random.default_rng(0)
    y = builder.addInputTensor("FLOAT", [ROWS, 3], "x")
    for at in range(2):
        first = random.normal(size=(3, 3)).astype(np.float32)
        y = builder.aiOnnx.tanh(
            [builder.aiOnnx.matmul([y, builder.addInitializedInputTensor(first, f"w{at}")])]
        )
    loss = builder.aiGraphcore.l1loss([y], 1.0)
    options = popart.SessionOptions()
    options.enableGradientAccumulation, options.accumulationFactor = True, FACTOR
    anchors = [loss, "UpdatedVar___w1", STATES.get(name, "w0")]
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(BATCHES, anchors),
        loss,
        RULES[name](),
        popart.DeviceManager().createCpuDevice(backend=backend),
        userOptions=options,
    )
    session.prepareDevice()
    session.weightsFromHost()
    arrays = session.initAnchorArrays()
    for step in data(2)["x"]:
        session.run(popart.PyStepIO({"x": np.ascontiguousarray(step)}, arrays))
    session.weightsToHost()
    return dict(session.weights()), dict(arrays)


@pytest.mark.parametrize("name", RULES)
def test_separate_update_programs_train_as_one(name: str) -> None:
    """C has a separate program for the last micro-batch; the reference decides at run time."""
    for found, wanted in zip(moved(name, "c"), moved(name, "reference"), strict=True):
        assert found.keys() == wanted.keys()
        for id, array in wanted.items():
            np.testing.assert_allclose(found[id], array, 1e-4, 1e-6, err_msg=id)


def test_accumulators_are_reset_without_stored_zeros() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [ROWS, 64], "x")
    w = builder.addInitializedInputTensor(np.ones((64, 64), np.float32), "w")
    loss = builder.aiGraphcore.l1loss([builder.aiOnnx.matmul([x, w])], 1.0)
    options = popart.SessionOptions()
    options.enableGradientAccumulation, options.accumulationFactor = True, FACTOR
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, [loss]),
        loss,
        popart.ConstSGD(0.1),
        popart.DeviceManager().createIpuModelDevice({}),
        userOptions=options,
    )
    session.prepareDevice()
    memory = json.loads(session.getGraphReport())["memory"]["byCategory"]
    assert memory.get("prepared", 0) == 0
    assert memory["variable"] >= 2 * 64 * 64 * 4


def test_a_failed_step_keeps_the_micro_batch_count() -> None:
    """The step after a failed one completes the interrupted batch."""
    weights = []
    wrong = data()
    wrong["labels"][0, 1, 1, 0] = 9  # in the second micro-batch of the second batch
    for by_callbacks in (False, True):
        labels = Labels()
        anchors = labels.session.initAnchorArrays()
        for arrays in (wrong, data()):
            stepio: popart.StepIO = popart.PyStepIO(arrays, anchors)
            if by_callbacks:
                stepio = one_by_one({id: one[0] for id, one in arrays.items()}, anchors)
            if arrays is wrong:
                with pytest.raises(IndicesError):
                    labels.session.run(stepio)
            else:
                labels.session.run(stepio)
        weights.append(labels.weights())
    np.testing.assert_array_equal(*weights)
