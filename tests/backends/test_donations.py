"""Tests donated inputs: outputs computed in the memory of the caller's arrays."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import Phase, given, settings
from onnx import helper

import popgraph
from popgraph.backends.base import Executable
from popgraph.backends.c.build_program import build as build_c
from popgraph.compiler import lower
from popgraph.passes.base import Compilation
from popgraph.passes.program import plan_memory
from popgraph.support.arrays import Array
from popgraph.support.errors import RunError
from popgraph.testing import Network, Node, aliased, build_network, networks

Inputs = dict[str, Array]


def updating(op: str, length: int | str = 64, **attributes: Any) -> bytes:
    """A decoder step: writes a row of a cache, then attends to all rows."""
    cache, row = ["B", 2, length, 8], ["B", 2, 1, 8]
    if isinstance(length, int):
        cache[0] = row[0] = 1
    real, whole = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
    value = helper.make_tensor_value_info
    nodes = [
        helper.make_node(op, ["past", "at", "new"], ["present"], **attributes),
        helper.make_node("Transpose", ["present"], ["turned"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q", "turned"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "present"], ["y"]),
    ]
    inputs = [value("past", real, cache), value("at", whole, row), value("new", real, row)]
    inputs.append(value("q", real, row))
    outputs = [value("y", real, row), value("present", real, cache)]
    graph = helper.make_graph(nodes, "decode", inputs, outputs)
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def step(at: int, seed: int = 0) -> Inputs:
    draw = np.random.default_rng(seed + at)
    row = (1, 2, 1, 8)
    new, q = draw.standard_normal((2, *row)).astype(np.float32)
    return {"at": np.full(row, at), "new": new, "q": q}


def empty(length: int = 64) -> Array:
    return np.zeros((1, 2, length, 8), np.float32)


@pytest.mark.parametrize("length", [64, 4096])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_donated_cache_is_updated_in_place(length: int, threads: int) -> None:
    run = popgraph.compile(updating("ScatterElements", length, axis=2), threads=threads)
    assert run.donations == {"past": "present"}
    cache, copied = empty(length), empty(length)
    for at in range(5):
        kept = run({"past": copied, **step(at)})
        made = run({"past": cache, **step(at)}, donate=["past"])
        copied = kept["present"]
        assert made["present"] is cache
        assert list(made) == list(kept)
        for name, array in kept.items():
            np.testing.assert_array_equal(made[name], array, name)


def test_inputs_that_are_not_donated_are_unchanged() -> None:
    run = popgraph.compile(updating("ScatterElements", axis=2))
    cache = empty()
    run({"past": cache, **step(0)}, donate=["past"])
    before = cache.copy()
    later = run({"past": cache, **step(1)})
    np.testing.assert_array_equal(cache, before)
    assert not np.shares_memory(later["present"], cache)


def test_unknown_lengths_can_be_donated() -> None:
    run = popgraph.compile(updating("ScatterElements", "N", axis=2))
    for length in (16, 32):
        cache = empty(length)
        made = run({"past": cache, **step(3)}, donate=["past"])
        assert made["present"] is cache
        np.testing.assert_array_equal(cache[:, :, 3:4], step(3)["new"])


def read_only() -> Array:
    array = empty()
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("donate", "past", "message"),
    [
        ("past", empty, "donate is 'past', not a list of names\n  try: donate=['past']"),
        (["pats"], empty, "no input 'pats' to donate\n  try: its inputs are 'past', 'at'"),
        (["q"], empty, "input 'q' cannot be donated: no output overwrites it\n  try: an output"),
        (["past"], read_only, "input 'past' cannot be donated: the array is read-only"),
        (["past"], lambda: empty()[..., ::-1], "cannot be donated: the array is not contiguous"),
        (["past"], lambda: empty().tolist(), "cannot be donated: a list is not a NumPy array"),
        (["past"], lambda: empty().astype(float), "it holds float64, the model requires float32"),
    ],
)
def test_an_error_says_why_an_input_cannot_be_donated(
    donate: Any, past: Callable[[], Array], message: str
) -> None:
    run = popgraph.compile(updating("ScatterElements", axis=2))
    with pytest.raises(RunError, match=re.escape(message)):
        run({"past": past(), **step(0)}, donate=donate)


def test_memory_shared_by_two_inputs_cannot_be_donated() -> None:
    run = popgraph.compile(updating("ScatterElements", axis=2))
    cache = empty()
    inputs = {"past": cache, **step(0), "q": cache[:, :, 5:6]}
    with pytest.raises(RunError, match="it shares memory with input 'q'"):
        run(inputs, donate=["past"])


def test_an_output_takes_one_donated_input_only() -> None:
    value = helper.make_tensor_value_info
    real = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("Add", ["a", "b"], ["y"])],
        "sum",
        [value("a", real, [4]), value("b", real, [4])],
        [value("y", real, [4])],
    )
    run = popgraph.compile(helper.make_model(graph, ir_version=9).SerializeToString())
    a, b = np.ones(4, np.float32), np.full(4, 2, np.float32)
    with pytest.raises(RunError, match="output 'y' can overwrite only one donated input"):
        run(a=a, b=b, donate=["a", "b"])
    assert run(a=a, b=b, donate=["b"])["y"] is b
    np.testing.assert_array_equal(b, np.full(4, 3))


def test_the_reference_backend_accepts_no_donation() -> None:
    run = popgraph.compile(updating("ScatterElements", axis=2), backend="reference")
    assert run.donations == {}
    with pytest.raises(RunError, match="the reference backend computes nothing in place"):
        run({"past": empty(), **step(0)}, donate=["past"])


def test_donate_takes_names_not_arrays() -> None:
    run = popgraph.compile(updating("ScatterElements", axis=2))
    with pytest.raises(RunError, match="donate is an array, not a list of names"):
        run(past=empty(), donate=np.zeros(3), **step(0))


def program(network: Network) -> Executable:
    compilation = Compilation()
    module = build_network(network, compilation.weights)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return build_c(lower(module, compilation), compilation.weights)


def check_donations(network: Network) -> None:
    """Donating any single input leaves all outputs unchanged."""
    made = program(network)
    draw = np.random.default_rng(0)
    inputs = {name: draw.standard_normal(shape) for name, (_, shape) in made.inputs.items()}
    expected = made.run(inputs)
    for name, output in made.donations.items():
        given_ = {key: array.copy() for key, array in inputs.items()}
        found = made.run(given_, [name])
        assert found[output] is given_[name]
        for key, array in expected.items():
            np.testing.assert_array_equal(found[key], array, f"{key} with {name} donated")


@given(aliased(networks(dtype="f64")))
def test_fuzz_donations(network: Network) -> None:
    check_donations(network)


def test_inputs_with_later_readers_are_not_donated() -> None:
    nodes = (Node("Relu", (0,)), Node("MatMul", (0, 1)))
    assert program(Network(((4, 4),), nodes, "f64", (1, 2))).donations == {}


def test_the_fuzz_of_donations_finds_later_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_memory.InPlace, "replaces", lambda self, old, new: True)
    search = settings(database=None, phases=[Phase.generate])
    with pytest.raises((AssertionError, ExceptionGroup)):
        search(given(aliased(networks(dtype="f64")))(check_donations))()
