"""Tests reductions along rows that do not fill vectors: values, NaN, infinities, both backends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto, helper
from onnx.reference import ReferenceEvaluator

import popgraph

Array = np.ndarray[Any, np.dtype[Any]]
ROWS = st.tuples(st.sampled_from([1, 3, 4, 8, 24, 32, 50]), st.integers(1, 80))
PLAIN = ["Softmax", "LogSoftmax", "Hardmax"]
REDUCTIONS = ["ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceMean", "ReduceL2"]


def along_rows(operator: str, x: Array) -> ModelProto:
    """A model of an operator along the last axis."""
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    inputs, held = ["x"], []
    if operator in REDUCTIONS:
        inputs.append("axes")
        held.append(
            helper.make_tensor("axes", helper.np_dtype_to_tensor_dtype(np.dtype("i8")), [1], [1])
        )
    node = helper.make_node(operator, inputs, ["y"])
    graph = helper.make_graph(
        [node],
        "rows",
        [helper.make_tensor_value_info("x", kind, x.shape)],
        [helper.make_empty_tensor_value_info("y")],
        held,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def found(model: ModelProto, x: Array, backend: str) -> Array:
    (y,) = popgraph.compile(model, backend=backend)({"x": x}).values()
    return np.asarray(y)


def wanted(model: ModelProto, x: Array) -> Array:
    """The result of ONNX's reference, in f64 for floats."""
    wide = x.astype(np.float64) if x.dtype.kind == "f" else x
    (y,) = ReferenceEvaluator(along_rows(model.graph.node[0].op_type, wide)).run(None, {"x": wide})
    return np.asarray(y)


@given(st.sampled_from([*PLAIN, *REDUCTIONS]), ROWS, st.integers(0, 2**32 - 1))
def test_reductions_along_short_rows(operator: str, shape: tuple[int, int], seed: int) -> None:
    x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    model = along_rows(operator, x)
    for backend in ("c", "reference"):
        np.testing.assert_allclose(found(model, x, backend), wanted(model, x), 2e-5, 1e-6)


@given(
    st.sampled_from(["ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd"]), ROWS, st.integers(0, 99)
)
def test_integer_reductions_along_short_rows(
    operator: str, shape: tuple[int, int], seed: int
) -> None:
    x = np.random.default_rng(seed).integers(-9, 9, shape, np.int32)
    model = along_rows(operator, x)
    exact: np.ufunc = {"Sum": np.add, "Max": np.maximum, "Min": np.minimum, "Prod": np.multiply}[
        operator.removeprefix("Reduce")
    ]
    totals = exact.reduce(x, axis=1, keepdims=True, dtype=np.int32)
    np.testing.assert_array_equal(found(model, x, "c"), totals)


@pytest.mark.parametrize("length", [5, 16, 17, 21, 33, 64, 100])
@pytest.mark.parametrize("operator", ["ReduceMax", "ReduceMin"])
@pytest.mark.parametrize("kind", [np.float32, np.float64, np.float16])
def test_a_nan_anywhere_is_the_extreme_of_its_row(operator: str, length: int, kind: type) -> None:
    x = np.zeros((length, length), kind)
    np.fill_diagonal(x, np.nan)
    x[0] = -np.inf
    x[1] = np.inf
    y = found(along_rows(operator, x), x, "c").ravel()
    np.testing.assert_array_equal(y[:2], [-np.inf, np.inf])
    assert np.isnan(y[2:]).all()


@pytest.mark.parametrize("length", [5, 16, 21, 100])
def test_softmax_of_masked_rows(length: int) -> None:
    x = np.tile(np.linspace(-3, 3, length, dtype=np.float32), (16, 1))
    for row in range(15):
        x[row, row % length] = -np.inf
    x[14], x[15, length - 1] = -np.inf, np.nan
    y = found(along_rows("Softmax", x), x, "c")
    np.testing.assert_allclose(y[:14].sum(1), 1, 1e-6)
    assert (y[:14][np.isinf(x[:14])] == 0).all()
    assert np.isnan(y[14:]).all()


@pytest.mark.parametrize("length", [5, 16, 21, 100])
def test_hardmax_takes_the_first_of_equals_and_of_nans(length: int) -> None:
    x = np.zeros((8, length), np.float32)
    x[1, 2:] = 3
    x[2] = -np.inf
    x[3, 3], x[3, 4] = np.nan, np.nan
    for backend in ("c", "reference"):
        y = found(along_rows("Hardmax", x), x, backend)
        np.testing.assert_array_equal(y.sum(1), 1)
        np.testing.assert_array_equal(y.argmax(1), [0, 2, 0, 3, 0, 0, 0, 0])
