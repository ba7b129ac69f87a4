"""Tests the zero-copy reader of weights against protobuf's parser."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from popgraph.builder.onnx import message
from popgraph.builder.onnx import wire as onnx_wire
from popgraph.builder.onnx.read import import_model
from popgraph.builder.onnx.write import export_model
from popgraph.dialects.onnx.tensorproto import IN_STORE
from popgraph.dialects.program import WeightStore
from popgraph.support.errors import ModelError

WEIGHTS = np.random.default_rng(0).standard_normal((40, 30)).astype(np.float32)


@pytest.fixture(autouse=True)
def every_model_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message, "LARGE_MODEL", 0)
    monkeypatch.setattr(onnx_wire, "LARGE", 0)


def model(*tensors: TensorProto) -> ModelProto:
    nodes = [helper.make_node("Identity", ["w"], ["y"])]
    result = helper.make_empty_tensor_value_info("y")
    weights = tensors or (numpy_helper.from_array(WEIGHTS, "w"),)
    graph = helper.make_graph(nodes, "wire", [], [result], list(weights))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)


def move_to_store(data: bytes) -> list[int]:
    """Sizes of the tensor contents that bypass protobuf's parser."""
    sizes = list[int]()

    def mark(rest: bytes, elements: memoryview) -> None:
        sizes.append(len(elements))

    onnx_wire.without_weights(memoryview(data), mark)
    return sizes


def tensor(**changes: object) -> TensorProto:
    made = numpy_helper.from_array(WEIGHTS, "w")
    made.doc_string = "the weights"
    for name, value in changes.items():
        if isinstance(value, list):
            getattr(made, name)[:] = value
        else:
            setattr(made, name, value)
    return made


def with_entry(key: str) -> TensorProto:
    made = tensor()
    made.external_data.add(key=key, value="0" * 64)
    return made


TENSORS: dict[str, Callable[[], TensorProto]] = {
    "plain": tensor,
    "halves": lambda: numpy_helper.from_array(WEIGHTS.astype(np.float16), "w"),
    "integers": lambda: numpy_helper.from_array(np.arange(2000), "w"),
    "nothing": lambda: numpy_helper.from_array(WEIGHTS[:0], "w"),
    "small": lambda: numpy_helper.from_array(WEIGHTS[0], "w"),
    "packed": lambda: helper.make_tensor("w", TensorProto.INT4, [4000], bytes(2000), raw=True),
    "typed": lambda: helper.make_tensor("w", 1, WEIGHTS.shape, WEIGHTS.ravel().tolist()),
    "a location": lambda: tensor(data_location=TensorProto.DEFAULT),
    "an entry": lambda: with_entry("location"),
    "a known mark": lambda: with_entry("popgraph.blob"),
}


@pytest.mark.parametrize("make", TENSORS.values(), ids=TENSORS.keys())
def test_the_module_equals_that_of_protobuf(make: Callable[[], TensorProto]) -> None:
    given = model(make())
    plain, wired = WeightStore(), WeightStore()
    expected = import_model(given, plain)
    found = import_model(given.SerializeToString(), wired)
    assert str(found) == str(expected)
    assert set(wired) == set(plain)
    assert export_model(found, wired) == export_model(expected, plain)


BROKEN: dict[str, Callable[[], TensorProto]] = {
    "too short": lambda: tensor(dims=[40, 31]),
    "negative": lambda: tensor(dims=[-40, -30]),
    "no type": lambda: tensor(data_type=99),
    "absurd": lambda: tensor(dims=[1 << 62, 1 << 62]),
    "elements twice": lambda: tensor(float_data=[1.0] * 1200),
    "elsewhere": lambda: tensor(data_location=TensorProto.EXTERNAL),
}


def reason(given: bytes | ModelProto) -> str | None:
    try:
        import_model(given, WeightStore())
    except ModelError as error:
        return str(error)
    return None


@pytest.mark.parametrize("make", BROKEN.values(), ids=BROKEN.keys())
def test_broken_models_have_the_same_errors(make: Callable[[], TensorProto]) -> None:
    given = model(make())
    assert reason(given.SerializeToString()) == reason(given)


def test_tensor_contents_bypass_protobuf() -> None:
    assert move_to_store(model().SerializeToString()) == [WEIGHTS.nbytes]
    assert move_to_store(model(*[tensor(name=name) for name in "wvu"]).SerializeToString()) == (
        [WEIGHTS.nbytes] * 3
    )


def test_the_mark_of_stored_tensors_is_unguessable() -> None:
    assert IN_STORE.startswith("popgraph.blob.") and len(IN_STORE) > 25


def test_a_message_in_two_parts_is_one_model() -> None:
    """Protobuf merges repeated messages, and the last of two scalars wins."""
    first, second = model(), ModelProto()
    second.graph.doc_string = "merged"
    second.graph.initializer.append(tensor(name="v"))
    data = first.SerializeToString() + second.SerializeToString()
    store = WeightStore()
    assert str(import_model(data, store)) == str(
        import_model(ModelProto.FromString(data), WeightStore())
    )


@pytest.mark.parametrize("place", range(0, 400, 7))
def test_a_truncated_message_is_refused(place: int) -> None:
    data = model().SerializeToString()
    for damaged in (data[:place], data[: len(data) - place], _flipped(data, place)):
        wired = reason(damaged)
        try:
            expected = reason(ModelProto.FromString(damaged))
        except Exception:
            assert wired is not None and "not an ONNX model" in wired
        else:
            assert wired is None or expected is not None


def _flipped(data: bytes, place: int) -> bytes:
    changed = bytearray(data)
    changed[place % len(data)] ^= 0x15
    return bytes(changed)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_unaligned_tensor_contents_are_written(dtype: type[np.generic]) -> None:
    """Contents of weights may be unaligned in a file."""
    elements = np.arange(1200, dtype=dtype)
    given = model(
        helper.make_tensor("w", helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), [1200], elements)
    )
    store = WeightStore()
    module = import_model(given, store)
    (key,) = store
    between = np.frombuffer(b"\0" + elements.tobytes(), dtype, offset=1)
    moved = WeightStore()
    moved.hold(key, between)
    assert not between.flags.aligned
    assert export_model(module, moved) == given
