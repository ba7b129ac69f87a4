"""Tests Det against NumPy on every backend, and its gradient."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import popgraph
from popgraph.backends.reference import evaluate
from popgraph.passes.graphcore.training.autodiff import Autodiff
from popgraph.passes.options import GRADIENT
from popgraph.support.arrays import Array
from tests.one_node import model
from tests.passes.test_onnx_gradients import MIXTURE, check, forward

BACKENDS = ("reference", "c")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "shape", [(1, 1), (2, 2), (3, 3), (2, 4, 4), (2, 3, 5, 5), (17, 17), (0, 3, 3), (2, 0, 0)]
)
def test_det_is_that_of_numpy(shape: tuple[int, ...], backend: str) -> None:
    x = np.random.default_rng(0).normal(size=shape)
    found = popgraph.compile(model("Det", {"x": x}, opset=11), backend=backend)(x=x)["y"]
    wanted = np.linalg.det(x)
    assert found.shape == wanted.shape and found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, 1e-11)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_det_of_other_element_types(dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    x = np.array([[[0, 2], [3, 1]], [[1, 2], [2, 4]], [[0, 0], [0, 0]], [[0, 1], [1, 0]]], kind)
    for backend in BACKENDS:
        found = popgraph.compile(model("Det", {"x": x}, opset=22), backend=backend)(x=x)["y"]
        assert found.dtype == kind
        np.testing.assert_array_equal(found.astype(float), [-6, 0, 0, -1])


@given(st.integers(1, 5), st.integers(0, 999))
def test_det_of_permutations(size: int, seed: int) -> None:
    x = np.eye(size)[np.random.default_rng(seed).permutation(size)]
    found = popgraph.compile(model("Det", {"x": x}, opset=11), backend="reference")(x=x)["y"]
    assert found == round(np.linalg.det(x))


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_det_gradients_are_slopes(size: int) -> None:
    x = np.random.default_rng(0).normal(size=(2, size, size))
    assert check(model("Det", {"x": x}, opset=11), [x], [np.linalg.det(x)])


def adjugate(x: Array) -> Array:
    """The gradient of a determinant: its cofactors."""
    size = len(x)
    result = np.zeros_like(x)
    for row, column in np.ndindex(size, size):
        rest = np.delete(np.delete(x, row, 0), column, 1)
        result[row, column] = (-1) ** (row + column) * np.linalg.det(rest)
    return result


@pytest.mark.parametrize("rank", [0, 1, 2, 3, 4])
def test_det_gradients_of_singular_matrices(rank: int) -> None:
    generator = np.random.default_rng(1)
    whole = generator.integers(-2, 3, (4, rank)) @ generator.integers(-2, 3, (rank, 4))
    x = whole.astype(np.float64)
    made = model("Det", {"x": x}, opset=11)
    made.graph.output[0].name = MIXTURE
    made.graph.node[0].output[0] = MIXTURE
    module, compilation = forward(made, ["x"])
    Autodiff(MIXTURE, wrt=("x",)).run(compilation, module)
    found, _ = evaluate(module, {"x": x}, compilation.weights)
    np.testing.assert_allclose(found[GRADIENT + "x"], adjugate(x), 1e-9, 1e-9)
