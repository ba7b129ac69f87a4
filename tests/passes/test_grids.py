"""Tests GridSample and its gradients against PyTorch."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

import popgraph
from popgraph.support.arrays import Array
from tests.passes.test_onnx_gradients import check

OLD = {"linear": "bilinear", "cubic": "bicubic", "nearest": "nearest"}
PADDINGS = ("zeros", "border", "reflection")


def model(x: Array, grid: Array, opset: int = 20, **attributes: Any) -> onnx.ModelProto:
    if opset < 20:
        attributes["mode"] = OLD[attributes["mode"]]
    infos = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in (("x", x), ("grid", grid))
    ]
    node = helper.make_node("GridSample", ["x", "grid"], ["y"], **attributes)
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info("y")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def by_torch(x: Array, grid: Array, mode: str, padding: str, aligned: int) -> Array:
    found = torch.nn.functional.grid_sample(
        torch.tensor(x), torch.tensor(grid), OLD[mode], padding, bool(aligned)
    )
    return np.asarray(found.numpy())


def sample(
    shape: tuple[int, ...], out: tuple[int, ...], dtype: str, reach: float
) -> tuple[Array, Array]:
    generator = np.random.default_rng(0)
    x = generator.normal(size=shape).astype(dtype)
    grid = generator.uniform(-reach, reach, (shape[0], *out, len(shape) - 2)).astype(dtype)
    return x, grid


@given(
    st.sampled_from([(1, 2, 3, 4), (2, 3, 5, 1), (2, 1, 2, 3, 4)]),
    st.sampled_from(["linear", "nearest"]),
    st.sampled_from(PADDINGS),
    st.integers(0, 1),
    st.sampled_from([0.9, 3.5]),
)
def test_grid_sample_is_that_of_pytorch(
    shape: tuple[int, ...], mode: str, padding: str, aligned: int, reach: float
) -> None:
    x, grid = sample(shape, (3, 2, 2)[: len(shape) - 2], "float64", reach)
    attributes = {"mode": mode, "padding_mode": padding, "align_corners": aligned}
    found = popgraph.compile(model(x, grid, **attributes), backend="reference")(x=x, grid=grid)
    wanted = by_torch(x, grid, mode, padding, aligned)
    np.testing.assert_allclose(found["y"], wanted, 1e-9, 1e-9)


@pytest.mark.parametrize("opset", [16, 20, 22])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_grid_sample_kernels_and_versions(opset: int, dtype: str) -> None:
    x, grid = sample((2, 3, 5, 4), (6, 7), dtype, 1.2)
    for mode, padding in product(("linear", "cubic"), PADDINGS[:1]):
        made = model(x, grid, opset, mode=mode, padding_mode=padding)
        found = popgraph.compile(made, backend="c")(x=x, grid=grid)["y"]
        assert found.dtype == x.dtype
        wide = x.astype(np.float32), grid.astype(np.float32)
        margin = 1e-5 if dtype == "float32" else 4e-3
        wanted = by_torch(*wide, mode, padding, 0)
        np.testing.assert_allclose(found.astype(np.float32), wanted, margin, margin)


def test_grid_sample_of_integers() -> None:
    x, grid = np.arange(12).reshape(1, 1, 3, 4), sample((1, 1, 3, 4), (5, 5), "float32", 1.5)[1]
    for backend in ("c", "reference"):
        made = model(x, grid, mode="nearest")
        found = popgraph.compile(made, backend=backend)(x=x, grid=grid)["y"]
        wanted = by_torch(x.astype(np.float32), grid, "nearest", "zeros", 0)
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("padding", PADDINGS)
def test_grid_sample_gradients_are_slopes(mode: str, padding: str) -> None:
    """Gradients of the image and of the grid."""
    x, grid = sample((1, 2, 4, 5), (3, 3), "float64", 1.4)
    made = model(x, grid, mode=mode, padding_mode=padding)
    y = popgraph.compile(made, backend="reference")(x=x, grid=grid)["y"]
    assert check(made, [x, grid], [y])
