"""Micro-batches in a row: one call of the program gives what calls one by one give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import popgraph.session as popart
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
        "labels": random.integers(0, 4, size=shape),  # of 64 bits, for 32
    }


def one_by_one(arrays: dict[str, Array], anchors: dict[str, Array]) -> popart.PyStepIOCallback:
    """The same data by callbacks, between which anything may happen."""
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
def test_a_step_at_once_is_the_step_one_by_one(kind: str, backend: str) -> None:
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
    for _ in range(4):  # two steps' worth of data, read from the beginning again
        labels.session.run(stepio)
    with pytest.raises(AssertionError, match="on its own"):
        labels.session.run(one_by_one({id: one[0] for id, one in data().items()}, anchors))


def test_arrays_that_end_within_a_step_begin_anew() -> None:
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


def test_lists_are_filled_by_steps_at_once() -> None:
    labels = Labels()
    anchors: dict[str, Any] = dict(labels.session.initAnchorArrays())
    loss = labels.anchors[0]
    anchors[loss] = [0.0] * (BATCHES * FACTOR)
    labels.session.run(popart.PyStepIO(data(), anchors))
    other = Labels()
    arrays = other.session.initAnchorArrays()
    other.session.run(popart.PyStepIO(data(), arrays))
    np.testing.assert_allclose(anchors[loss], arrays[loss].reshape(-1), 1e-6)


def test_an_anchor_may_be_the_input_of_what_comes_next() -> None:
    """In the memory of one array: every micro-batch reads what the one before has written."""
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
