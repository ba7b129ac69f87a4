"""Tests string comparisons, which compiled programs compute on code points."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from onnx import TensorProto, helper

import popgraph
from popgraph.operators import compared_strings
from popgraph.support.arrays import Array

BACKENDS = pytest.mark.parametrize("backend", ["c", "reference"])
WORDS = st.text("abé\U0001f600", max_size=10)
KEYS = st.lists(WORDS, min_size=1, max_size=6)


def model(
    nodes: list[onnx.NodeProto], shapes: dict[str, Any], outputs: dict[str, int], **held: Any
) -> onnx.ModelProto:
    infos = [helper.make_tensor_value_info(name, TensorProto.STRING, shape)
             for name, shape in shapes.items()]  # fmt: skip
    made = [helper.make_tensor_value_info(name, type_, None) for name, type_ in outputs.items()]
    words = [helper.make_tensor(name, TensorProto.STRING, [len(value)], value)
             for name, value in held.items()]  # fmt: skip
    graph = helper.make_graph(nodes, "g", infos, made, words)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 4)]
    return helper.make_model(graph, ir_version=9, opset_imports=opsets)


def encoder(keys: list[str], shape: Any) -> onnx.ModelProto:
    """A LabelEncoder: a word becomes the index of the first equal key, others -7."""
    node = helper.make_node(
        "LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml", keys_strings=keys,
        values_int64s=list(range(len(keys))), default_int64=-7,
    )  # fmt: skip
    return model([node], {"x": shape}, {"y": TensorProto.INT64})


def labels(x: Array, keys: list[str]) -> list[int]:
    return [keys.index(word) if word in keys else -7 for word in x.reshape(-1).tolist()]


@given(st.data(), KEYS, npst.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=3))
def test_fuzz_label_encoder(data: st.DataObject, keys: list[str], shape: tuple[int, ...]) -> None:
    words = st.one_of(WORDS, st.sampled_from(keys), st.sampled_from(keys).map(lambda w: w[::-1]))
    x = data.draw(npst.arrays(object, shape, elements=words))
    run = popgraph.compile(encoder(keys, shape), backend="reference")
    found = run(x=x)["y"]
    assert found.shape == shape and found.reshape(-1).tolist() == labels(x, keys)
    assert not run.computed_by.in_python


@given(st.data(), npst.mutually_broadcastable_shapes(num_shapes=2, max_dims=2, max_side=3))
def test_fuzz_equal_of_strings(data: st.DataObject, shapes: npst.BroadcastableShapes) -> None:
    x, y = (
        data.draw(npst.arrays(object, shape, elements=st.text("ab", max_size=9)))
        for shape in shapes.input_shapes
    )
    node = helper.make_node("Equal", ["x", "y"], ["z"])
    run = popgraph.compile(
        model([node], {"x": x.shape, "y": y.shape}, {"z": TensorProto.BOOL}), backend="reference"
    )
    np.testing.assert_array_equal(run(x=x, y=y)["z"], x == y, strict=True)


@BACKENDS
def test_strings_of_any_length_and_array_kind(backend: str) -> None:
    """Each power of two above the longest word has a program."""
    keys = ["one", "two", "a longer one"]
    run = popgraph.compile(encoder(keys, ["N"]), backend=backend)
    for words in (["two", "one", "on"], ["a longer one", "", "two"], ["x" * 100, "one", "two"]):
        x = np.array(words)
        for array in (x, x.astype(object), x.astype("S")):
            assert run(x=array)["y"].tolist() == labels(x, keys)
    assert not run.computed_by.in_python


def test_colliding_hashes_are_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    """A word may collide with a key's hash; if keys collide, another hash function is chosen."""
    monkeypatch.setattr(compared_strings, "FACTORS", (1, compared_strings.FACTORS[0]))
    for keys in (["ab", "c"], ["ab", "ba"]):
        run = popgraph.compile(encoder(keys, [3]), backend="reference")
        x = np.array(["ba", "ab", "bb"])
        assert run(x=x)["y"].tolist() == labels(x, keys)


@BACKENDS
def test_constant_strings_are_compared(backend: str) -> None:
    node = helper.make_node("Equal", ["x", "w"], ["z"])
    run = popgraph.compile(
        model([node], {"x": [2]}, {"z": TensorProto.BOOL}, w=["yes", "no"]), backend=backend
    )
    assert run(x=np.array(["yes", "yes"]))["z"].tolist() == [True, False]
    assert not run.computed_by.in_python


@BACKENDS
def test_other_operators_on_strings_are_host_steps(backend: str) -> None:
    nodes = [
        helper.make_node("Equal", ["x", "w"], ["z"]),
        helper.make_node("StringConcat", ["x", "w"], ["both"]),
    ]
    outputs = {"z": TensorProto.BOOL, "both": TensorProto.STRING}
    run = popgraph.compile(model(nodes, {"x": [1]}, outputs, w=["no"]), backend=backend)
    found = run(x=np.array(["yes"]))
    assert found["z"].tolist() == [False] and found["both"].tolist() == ["yesno"]
    assert "StringConcat" in run.computed_by.in_python


@BACKENDS
def test_trailing_zeros_of_strings_are_significant(backend: str) -> None:
    x, y = np.array(["a", "a\0", "\0", ""], object), np.array(["a\0", "a\0", "", ""], object)
    node = helper.make_node("Equal", ["x", "y"], ["z"])
    equal = model([node], {"x": [4], "y": [4]}, {"z": TensorProto.BOOL})
    found = popgraph.compile(equal, backend=backend)(x=x, y=y)["z"]
    assert found.tolist() == [False, True, False, True]
    keys = ["a", "a\0", ""]
    run = popgraph.compile(encoder(keys, [4]), backend=backend)
    assert run(x=x)["y"].tolist() == labels(x, keys)
