"""Tests AffineGrid, LpNormalization and their gradients against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.one_node import close, found, model, normal, of_both
from tests.passes.test_onnx_gradients import check

SIZES = ((2, 3, 4, 5), (1, 2, 2, 3, 4), (2, 1, 1, 2), (1, 2, 3, 4), (1, 1, 1, 1))


@pytest.mark.parametrize("aligned", [0, 1])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("held", [(), ("size",)])
def test_affine_grids_are_those_of_pytorch(
    size: tuple[int, ...], aligned: int, held: tuple[str, ...]
) -> None:
    rank = len(size) - 2
    inputs = {"theta": normal((size[0], rank, rank + 1), "float64"), "size": np.array(size)}
    if aligned and 1 in size[2:]:
        pytest.skip("PyTorch has the coordinate 0 where ONNX has -1: tests/test_coordinates.py")
    proto = model("AffineGrid", inputs, constants=held, align_corners=aligned)
    y = of_both(proto, inputs)["y"]
    wanted = torch.nn.functional.affine_grid(
        torch.tensor(inputs["theta"]), list(size), align_corners=bool(aligned)
    )
    np.testing.assert_allclose(y, wanted.numpy(), rtol=1e-6, atol=1e-6)
    fixed = model("AffineGrid", inputs, constants=("size",), align_corners=aligned)
    assert check(fixed, [inputs["theta"]], [y])


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_affine_grids_of_every_type(dtype: str) -> None:
    inputs = {"theta": normal((2, 2, 3), dtype), "size": np.array([2, 3, 4, 5])}
    y = of_both(model("AffineGrid", inputs, opset=20), inputs)["y"]
    wanted = torch.nn.functional.affine_grid(
        torch.tensor(inputs["theta"].astype(np.float64)), [2, 3, 4, 5], align_corners=False
    )
    assert y.dtype == inputs["theta"].dtype
    margin = {"float16": 4e-3, "bfloat16": 4e-2}.get(dtype, 1e-6)
    np.testing.assert_allclose(y.astype(np.float64), wanted.numpy(), rtol=margin, atol=margin)


@given(st.integers(-3, 2), st.sampled_from([1, 2]), st.integers(0, 9))
def test_lp_normalization_is_that_of_pytorch(axis: int, p: int, seed: int) -> None:
    x = normal((3, 4, 2), "float64", seed)
    x[1] = 0
    proto = model("LpNormalization", {"x": x}, axis=axis, p=p)
    y = found(proto, {"x": x})["y"]
    close(y, torch.nn.functional.normalize(torch.tensor(x), p, axis, eps=1e-300).numpy())
    some = normal((3, 4, 2), "float64", seed)
    assert check(proto, [some], [found(proto, {"x": some})["y"]])


@pytest.mark.parametrize(
    ("opset", "dtype"), [(1, "float32"), (1, "float16"), (22, "bfloat16"), (22, "float64")]
)
def test_lp_normalization_of_every_type(opset: int, dtype: str) -> None:
    x = normal((3, 50), dtype)
    y = of_both(model("LpNormalization", {"x": x}, opset=opset), {"x": x})["y"]
    wide = x.astype(np.float64)
    close(y, (wide / np.linalg.norm(wide, axis=-1, keepdims=True)).astype(x.dtype))
