"""Tests pooling at the onnx level: windows, padding and NaN as ONNX defines them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from onnx import parser

from popgraph.backends.reference import evaluate
from popgraph.builder.onnx.read import import_model
from popgraph.dialects.program import WeightStore
from popgraph.support.arrays import Array


def window_maxima(x: Array, kernel: tuple[int, ...], pads: tuple[int, ...]) -> Array:
    """The maxima of windows with stride 1."""
    axes = len(kernel)
    around = [(0, 0), (0, 0), *zip(pads[:axes], pads[axes:], strict=True)]
    padded = np.pad(x, around, constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, kernel, tuple(range(2, 2 + axes)))
    return np.asarray(windows.max(axis=tuple(range(-axes, 0))))


def evaluated(x: Array, attributes: str, op: str = "MaxPool") -> Array:
    dims, any_dims = ",".join(map(str, x.shape)), ",".join("abcde"[: x.ndim])
    model = parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : 18]> main (float[{dims}] x) => (float[{any_dims}] y)'
        f" {{ y = {op} <{attributes}> (x) }}"
    )
    outputs, _ = evaluate(import_model(model, store := WeightStore()), {"x": x}, store)
    return outputs["y"]


@pytest.mark.parametrize(
    ("shape", "kernel"),
    [((1, 2, 3), (2,)), ((1, 2, 3), (3,)), ((2, 1, 3, 4), (2, 3)), ((1, 1, 3, 2, 3), (2, 1, 2))],
)
def test_explicit_pads_of_pools(shape: tuple[int, ...], kernel: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    for pads in itertools.product(*[range(size) for size in (*kernel, *kernel)]):
        found = evaluated(x, f"kernel_shape = {[*kernel]}, pads = {[*pads]}")
        np.testing.assert_array_equal(found, window_maxima(x, kernel, pads), err_msg=str(pads))


@pytest.mark.parametrize(
    ("mode", "pads"), [("SAME_UPPER", (0, 1)), ("SAME_LOWER", (1, 0)), ("VALID", (0, 0))]
)
@pytest.mark.parametrize("stride", [1, 2])
def test_auto_pad_of_pools(mode: str, pads: tuple[int, int], stride: int) -> None:
    """Windows are one longer than the stride, so one element of padding is needed."""
    x = np.random.default_rng(0).standard_normal((1, 2, 4)).astype(np.float32)
    attributes = f'kernel_shape = [{1 + stride}], strides = [{stride}], auto_pad = "{mode}"'
    expected = window_maxima(x, (1 + stride,), pads)[..., ::stride]
    np.testing.assert_array_equal(evaluated(x, attributes), expected)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("stride", [1, 2])
def test_pools_propagate_nan(stride: int, op: str) -> None:
    """The NaN is first or last in its windows."""
    x = np.array([[[1, np.nan, 2, 2, np.nan, 5, 5]]], np.float32)
    found = evaluated(x, f"kernel_shape = [2], strides = [{stride}]", op)
    whole = np.array([[[np.nan, np.nan, 2, np.nan, np.nan, 5]]], np.float32)
    np.testing.assert_array_equal(found, whole[..., ::stride])
