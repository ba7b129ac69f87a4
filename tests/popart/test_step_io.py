"""Tests step I/O: order of arrays, sizes, types, callbacks."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
import pytest

import popgraph.popart as popart
from popgraph.popart import DataFlow, PyStepIO
from popgraph.support.arrays import Array


def doubling(batches: int = 2, dtype: str = "FLOAT") -> tuple[popart.InferenceSession, str, str]:
    builder = popart.Builder()
    x = builder.addInputTensor(dtype, [3])
    y = builder.aiOnnx.add([x, x])
    device = popart.DeviceManager().createCpuDevice(backend="reference")
    session = popart.InferenceSession(builder.getModelProto(), DataFlow(batches, [y]), device)
    session.prepareDevice()
    return session, x, y


def message(session: popart.InferenceSession, stepio: popart.StepIO) -> str:
    with pytest.raises(popart.popart_exception) as caught:
        session.run(stepio)
    return str(caught.value.args[0])


def test_an_array_is_a_ring_buffer() -> None:
    session, x, y = doubling()
    anchors = session.initAnchorArrays()
    data = np.arange(9, dtype=np.float32).reshape(3, 3)
    stepio = PyStepIO({x: data}, anchors)
    stepio.enableRuntimeAsserts(False)
    for rows in ([0, 1], [2, 0], [1, 2]):
        session.run(stepio)
        np.testing.assert_array_equal(anchors[y], 2 * data[rows])


def test_only_the_number_of_elements_counts() -> None:
    session, x, y = doubling()
    anchors = session.initAnchorArrays()
    session.run(PyStepIO({x: np.arange(6, dtype=np.float32)}, anchors))
    np.testing.assert_array_equal(anchors[y], 2 * np.arange(6).reshape(2, 3))


def test_wrong_numbers_of_elements() -> None:
    session, x, y = doubling()
    anchors = session.initAnchorArrays()
    text = message(session, PyStepIO({x: np.zeros(5, np.float32)}, anchors))
    assert text.startswith(
        f"Unexpected number of input elements for Tensor {x}. Expected 6, but received 5.\n"
        "To disable this check at your own risk, use IStepIO::enableRuntimeAsserts.\n"
        "This with, \n   replication  factor = "
    )
    short = {y: np.zeros(3, np.float32)}
    text = message(session, PyStepIO({x: np.zeros(6, np.float32)}, short))
    assert text.startswith(f"Unexpected number of output elements for Tensor {y}. Expected 6")
    assert text.endswith("\n   Tensor nelms        = 3\nThe anchor return type is  All")
    wide = {y: np.zeros(6, np.float32), "other": np.zeros(6, np.float32)}
    assert message(session, PyStepIO({x: np.zeros(6, np.float32)}, wide)).endswith(
        "But there is no Tensor named other in the Ir's tensors. "
    )


def test_a_weight_among_the_inputs_is_not_read() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2])
    w = builder.addInitializedInputTensor(np.array([1, 2], np.float32))
    y = builder.aiOnnx.add([x, w])
    device = popart.DeviceManager().createCpuDevice(backend="reference")
    session = popart.InferenceSession(builder.getModelProto(), DataFlow(1, [y]), device)
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    zeros = np.zeros(2, np.float32)
    session.run(PyStepIO({x: zeros, w: zeros}, anchors))
    np.testing.assert_array_equal(anchors[y], [1, 2])


def test_unknown_and_missing_names() -> None:
    session, x, y = doubling()
    anchors = session.initAnchorArrays()
    six = np.zeros(6, np.float32)
    assert message(session, PyStepIO({x: six, y: six}, anchors)) == (
        f"The tensor '{y}' has been provided as one of the inputs to the stepIO, but it is not "
        "registered as one of the inputs to the model. Please check this tensor and your stepIO."
    )
    assert message(session, PyStepIO({x: six, "z": six}, anchors)).startswith(
        "Testing that the buffer provided by user for input Tensor z has the correct number of "
        "elements, But there is no Tensor named z"
    )
    assert message(session, PyStepIO({}, anchors)) == f"No tensor {x} provided in PyStepIO's inputs"


def test_types_are_not_converted_silently() -> None:
    session, x, _ = doubling()
    anchors = session.initAnchorArrays()
    assert message(session, PyStepIO({x: np.zeros(6)}, anchors)) == (
        f"Type discrepancy for tensor {x}. User provided : DOUBLE and expected : FLOAT. "
        "Consider a custom copy here (as memcpy cannot be used)"
    )


def test_integers_of_both_widths() -> None:
    session, x, y = doubling(dtype="INT32")
    anchors = session.initAnchorArrays()
    session.run(PyStepIO({x: np.arange(6)}, anchors))
    assert anchors[y].tolist() == [[0, 2, 4], [6, 8, 10]]
    text = message(session, PyStepIO({x: np.full(6, 2**40)}, anchors))
    assert text == f"Tensor {x} holds numbers that do not fit int32"


def test_arrays_must_be_contiguous() -> None:
    for make in (
        lambda a: PyStepIO({"x": a}, {}),
        lambda a: PyStepIO({}, {"x": a}),
        lambda a: popart.PyWeightsIO({"x": a}),
    ):
        with pytest.raises(popart.popart_exception, match="as it is not c-contiguous"):
            make(np.zeros((2, 3), np.float32).T)


def test_callbacks_are_called_once_per_batch() -> None:
    session, x, y = doubling(batches=3)
    calls: list[object] = []
    anchors: list[Array] = []

    def give(id: str, prefetch: bool) -> Array:
        calls.append((id, prefetch))
        return np.full(3, len(calls), np.float32)

    def take(id: str) -> Array:
        anchors.append(np.empty(3, np.float32))
        return anchors[-1]

    session.run(popart.PyStepIOCallback(give, calls.append, take, calls.append))
    assert calls == [(x, True), x, y] * 3
    assert [array[0] for array in anchors] == [2, 8, 14]


def test_a_callback_without_prefetched_data_is_called_again() -> None:
    session, x, y = doubling(batches=2)
    calls: list[object] = []
    held = np.zeros(3, np.float32)

    def give(id: str, prefetch: bool) -> Array | None:
        calls.append((id, prefetch))
        return None if prefetch else np.ones(3, np.float32)

    session.run(popart.PyStepIOCallback(give, calls.append, lambda id: held, calls.append))
    assert calls == [(x, True), (x, False), x, y] * 2
    assert held.tolist() == [2, 2, 2]


def test_a_callback_may_return_the_first_element_of_an_anchor() -> None:
    session, *_ = doubling(batches=2)
    held, starts = np.zeros((2, 3), np.float32), iter([0, 1])

    def take(id: str) -> Array:
        return held[next(starts), :1]

    given = iter(np.arange(6, dtype=np.float32).reshape(2, 3))
    session.run(popart.PyStepIOCallback(lambda id, _: next(given), print, take, print))
    assert held.tolist() == [[0, 2, 4], [6, 8, 10]]


def test_an_input_that_nothing_uses_need_not_be_given() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [3])
    unused = builder.addInputTensor("FLOAT", [3])
    y = builder.aiOnnx.neg([x])
    builder.aiOnnx.neg([unused])
    device = popart.DeviceManager().createCpuDevice(backend="reference")
    session = popart.InferenceSession(builder.getModelProto(), DataFlow(1, [y]), device)
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.run(PyStepIO({x: np.ones(3, np.float32)}, anchors))
    assert anchors[y].tolist() == [-1, -1, -1]


def step(inputs: dict[str, Any], outputs: dict[str, Any], dtype: str = "FLOAT") -> None:
    session, x, y = doubling(dtype=dtype)
    session.run(PyStepIO({x: inputs["x"]}, {y: outputs["y"]}))


def test_a_wider_buffer_takes_a_narrower_anchor() -> None:
    wide = np.zeros(6)
    step({"x": np.float32([0.1, 1, 2, 3, 4, 5])}, {"y": wide})
    assert wide.tolist() == [float(np.float32(0.1)) * 2, 2, 4, 6, 8, 10]
    whole = np.zeros(6, np.int64)
    step({"x": np.arange(6, dtype=np.int32)}, {"y": whole}, "INT32")
    assert whole.tolist() == [0, 2, 4, 6, 8, 10]


def test_an_anchor_is_not_rounded_into_its_buffer() -> None:
    session, x, y = doubling()
    for wrong in (np.float16, np.int64, np.bool_):
        with pytest.raises(popart.popart_runtime_error, match="Type discrepancy for tensor"):
            session.run(PyStepIO({x: np.ones(6, np.float32)}, {y: np.zeros(6, wrong)}))


def test_lists_are_read_and_filled() -> None:
    rows = [[0.0] * 3, [0.0] * 3]
    kept = rows[1]
    step({"x": [0, 1, 2, 3, 4, 5.5]}, {"y": rows})
    assert rows == [[0, 2, 4], [6, 8, 11]]
    assert kept is rows[1]
    with pytest.raises(popart.popart_runtime_error, match="Expected 6, but received 5"):
        step({"x": [0] * 6}, {"y": [0.0] * 5})
    with pytest.raises(popart.popart_runtime_error, match="Type discrepancy for tensor"):
        step({"x": [0.5] * 6}, {"y": [0] * 6}, "INT32")
    with pytest.raises(popart.popart_exception, match="is tuple, which nothing can be written to"):
        step({"x": [0] * 6}, {"y": (0.0,) * 6})


def test_an_array_of_python_is_a_buffer() -> None:
    filled = array("f", [0] * 6)
    step({"x": array("f", range(6))}, {"y": filled})
    assert filled.tolist() == [0, 2, 4, 6, 8, 10]


def test_an_iterator_gives_a_batch_at_a_time() -> None:
    session, x, y = doubling()
    anchors = session.initAnchorArrays()
    batches = (np.full(3, number, np.float32) for number in range(3))
    stepio = PyStepIO({x: batches}, anchors)
    session.run(stepio)
    assert anchors[y].tolist() == [[0, 0, 0], [2, 2, 2]]
    with pytest.raises(popart.popart_runtime_error, match="has no more batches"):
        session.run(stepio)
    assert anchors[y][0].tolist() == [4, 4, 4]
    with pytest.raises(popart.popart_runtime_error, match="The input iterator gave 2 elements"):
        session.run(PyStepIO({x: iter([np.zeros(2, np.float32)])}, anchors))
