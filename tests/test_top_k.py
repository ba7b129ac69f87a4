"""Tests TopK: every version and element type, ties and NaN, a fed k, gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import popgraph
from popgraph.passes.optimizer_spec import SGD, Scalar
from popgraph.passes.options import Options, Training
from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.support.errors import PopgraphError

BACKENDS = ("reference", "c")
TYPES = ("f16", "bf16", "f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")


def model(
    dtype: str, shape: tuple[int, ...], k: int | None, version: int = 24, **attributes: Any
) -> onnx.ModelProto:
    """A model of TopK; without `k`, it is an input."""
    inputs = [helper.make_tensor_value_info("x", dtypes.BY_NAME[dtype].onnx, shape)]
    weights = []
    if version == 1:
        node = helper.make_node("TopK", ["x"], ["values", "places"], k=k, **attributes)
    else:
        node = helper.make_node("TopK", ["x", "k"], ["values", "places"], **attributes)
        if k is None:
            inputs.append(helper.make_tensor_value_info("k", TensorProto.INT64, [1]))
        else:
            weights.append(numpy_helper.from_array(np.array([k]), "k"))
    outputs = [helper.make_empty_tensor_value_info(name) for name in ("values", "places")]
    graph = helper.make_graph([node], "g", inputs, outputs, weights)
    opsets = [helper.make_opsetid("", version)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def expected(x: Array, k: int, axis: int, largest: bool) -> tuple[Array, Array]:
    """TopK by NumPy, as in ONNX's reference: NaN is the largest, and ties are in order of index."""
    place = np.indices(x.shape)[axis]
    keys = x.astype(np.float64) if dtypes.from_numpy(x.dtype).is_float else x
    order = np.lexsort((-place if largest else place, keys), axis=axis)
    order = np.take(np.flip(order, axis) if largest else order, range(k), axis)
    return np.take_along_axis(x, order, axis), order


def few(dtype: str, *shape: int) -> Array:
    """Numbers with many ties; floats include NaN and infinities."""
    random = np.random.default_rng(len(shape))
    x = random.integers(0, 9, shape).astype(np.float64)
    if dtypes.BY_NAME[dtype].is_float:
        x[x == 3], x[x == 4], x[x == 5] = np.nan, np.inf, -np.inf
    elif dtype.startswith("i"):
        x -= 4
    return x.astype(dtypes.BY_NAME[dtype].numpy)


def check(run: popgraph.runner.Runner, x: Array, k: int, axis: int, largest: bool) -> None:
    found, (values, places) = run(x=x), expected(x, k, axis, largest)
    np.testing.assert_array_equal(found["places"], places)
    assert found["places"].dtype == np.int64 and found["values"].dtype == x.dtype
    # NumPy has no NaN-aware comparison for bf16.
    assert found["values"].tobytes() == values.tobytes()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", TYPES)
def test_top_k_of_every_type(dtype: str, backend: str) -> None:
    x = few(dtype, 3, 20)
    for largest in (False, True):
        made = model(dtype, x.shape, 11, largest=int(largest))
        check(popgraph.compile(made, backend=backend), x, 11, 1, largest)


@pytest.mark.parametrize(
    ("shape", "axis", "k"),
    [((7,), 0, 0), ((7,), 0, 7), ((2, 40), 1, 40), ((2, 40, 3), 1, 33), ((5, 2), -2, 1)],
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_top_k_along_any_axis(shape: tuple[int, ...], axis: int, k: int, backend: str) -> None:
    x = few("f32", *shape)
    run = popgraph.compile(model("f32", shape, k, axis=axis, sorted=0), backend=backend)
    check(run, x, k, axis, True)


def test_top_k_on_two_threads() -> None:
    x = np.random.default_rng(0).normal(size=(200, 500)).astype(np.float32)
    for k in (5, 500):
        check(popgraph.compile(model("f32", x.shape, k), threads=2), x, k, 1, True)


@pytest.mark.parametrize("version", [1, 10, 11, 24])
@pytest.mark.parametrize("backend", BACKENDS)
def test_top_k_of_every_version(version: int, backend: str) -> None:
    x = few("f32", 4, 6)
    check(popgraph.compile(model("f32", x.shape, 3, version), backend=backend), x, 3, 1, True)


@pytest.mark.parametrize("backend", BACKENDS)
def test_top_k_with_a_fed_k(backend: str) -> None:
    x = few("f32", 4, 6)
    run = popgraph.compile(model("f32", x.shape, None), backend=backend)
    assert run.structural == ("k",)
    for k in (1, 6, 0):
        found = run(x=x, k=np.array([k]))
        np.testing.assert_array_equal(found["values"], expected(x, k, 1, True)[0])
    with pytest.raises(PopgraphError, match=r"(?s)TopK.*`K` is 7.*from 0 to 6"):
        run(x=x, k=np.array([7]))


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_of_top_k(backend: str) -> None:
    """The gradient of the sum of squares is 2x for selected elements, 0 for others."""
    w = np.random.default_rng(1).normal(size=(3, 8)).astype(np.float32)
    made = model("f32", w.shape, 2, axis=1)
    made.graph.initializer.append(numpy_helper.from_array(w, "x"))
    del made.graph.input[:]
    square = helper.make_node("ReduceSumSquare", ["values"], ["loss"], keepdims=0)
    made.graph.node.append(square)
    made.graph.output.append(helper.make_empty_tensor_value_info("loss"))
    training = Training(loss="loss", optimizer=SGD(Scalar(0.5)))
    run = popgraph.compile(made, backend=backend, options=Options(training=training))
    run()
    chosen = np.zeros(w.shape, bool)
    np.put_along_axis(chosen, expected(w, 2, 1, True)[1], True, 1)
    np.testing.assert_allclose(run.static.read("x"), np.where(chosen, 0, w), atol=1e-6)
