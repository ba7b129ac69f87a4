"""Tests the indices of MaxPool, MaxUnpool, LpPool and Col2Im, and their gradients."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

import popgraph
from popgraph.backends.reference import evaluate
from popgraph.passes.graphcore.training.autodiff import Autodiff
from popgraph.passes.options import GRADIENT
from popgraph.support.arrays import Array
from popgraph.support.errors import IndicesError
from tests.one_node import close, found, model, normal, of_both, of_peer
from tests.passes.test_onnx_gradients import MIXTURE, check, forward, with_loss

Pool = dict[str, Any]
PEER_OPSET = 21
"""The newest opset whose pools onnxruntime computes in every element type."""


@st.composite
def pools(draw: st.DrawFn) -> tuple[tuple[int, ...], Pool]:
    """A shape, and attributes of windows that fit in it."""
    rank = draw(st.integers(1, 3))
    space = [draw(st.integers(4, 6)) for _ in range(rank)]
    kernel = [draw(st.integers(1, 3)) for _ in range(rank)]
    made: Pool = {
        "kernel_shape": kernel,
        "strides": [draw(st.integers(1, 3)) for _ in range(rank)],
    }
    padding = draw(st.sampled_from(["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]))
    if padding != "NOTSET":
        made["auto_pad"] = padding
    else:
        made["pads"] = [draw(st.integers(0, size - 1)) for size in (*kernel, *kernel)]
        made["dilations"] = [draw(st.integers(1, 2)) if size < 3 else 1 for size in kernel]
        made["ceil_mode"] = draw(st.integers(0, 1))
    return (draw(st.integers(1, 2)), 2, *space), made


def indices_by_definition(x: Array, pool: Pool, fortran: bool, windows: tuple[int, ...]) -> Array:
    """The index of the first maximum of every window, by definition."""
    space, kernel, strides = x.shape[2:], pool["kernel_shape"], pool["strides"]
    ones = [1] * len(space)
    dilations = pool.get("dilations", ones)
    low = [0] * len(space)
    if pool.get("auto_pad", "").startswith("SAME"):
        for axis, size in enumerate(space):
            total = max((windows[axis] - 1) * strides[axis] + kernel[axis] - size, 0)
            low[axis] = total // 2 if pool["auto_pad"] == "SAME_UPPER" else total - total // 2
    low = pool.get("pads", low)[: len(space)]
    result = np.zeros((*x.shape[:2], *windows), np.int64)
    for image, window in product(np.ndindex(*x.shape[:2]), np.ndindex(*windows)):
        best, place = None, -1
        for offset in np.ndindex(*kernel):
            rows = zip(window, strides, low, offset, dilations, strict=True)
            at = [one * stride - pad + step * wide for one, stride, pad, step, wide in rows]
            if all(0 <= one < size for one, size in zip(at, space, strict=True)):
                value = x[(*image, *at)]
                if best is None or value > best:
                    order = "F" if fortran else "C"
                    best, place = value, int(np.ravel_multi_index(at, space, order=order))
        index = image[0] * x.shape[1] + image[1]
        result[(*image, *window)] = index * int(np.prod(space)) + place
    return result


@given(pools(), st.integers(0, 1), st.booleans())
def test_max_pool_indices(
    case: tuple[tuple[int, ...], Pool], order: int, with_equals: bool
) -> None:
    shape, pool = case
    x = normal(shape)
    if with_equals:
        x = np.round(x)
    proto = model("MaxPool", {"x": x}, outputs=2, opset=12, storage_order=order, **pool)
    results = found(proto, {"x": x})
    largest, places = results["y"], results["y1"]
    np.testing.assert_array_equal(
        places, indices_by_definition(x, pool, bool(order), largest.shape[2:])
    )
    if not order:
        np.testing.assert_array_equal(x.reshape(-1)[places], largest)


@pytest.mark.parametrize(
    ("dtype", "opset"),
    [
        ("float32", 8),
        ("float64", 10),
        ("float16", 11),
        ("uint8", 12),
        ("int8", 12),
        ("bfloat16", 22),
        ("float32", 22),
    ],
)
def test_max_pool_indices_by_version_and_type(dtype: str, opset: int) -> None:
    x = normal((2, 3, 6, 5), dtype)
    if "int" in dtype:
        x = np.random.default_rng(0).integers(0, 3, x.shape).astype(dtype)  # 0 is not padding
    pool = {"kernel_shape": [3, 2], "pads": [1, 1, 1, 0], "strides": [2, 1]}
    proto = model("MaxPool", {"x": x}, outputs=2, opset=opset, **pool)
    results = of_both(proto, {"x": x})
    np.testing.assert_array_equal(x.reshape(-1)[results["y1"]], results["y"])
    wide = x.astype(np.float32)
    wanted = indices_by_definition(wide, pool, False, results["y"].shape[2:])
    np.testing.assert_array_equal(results["y1"], wanted)


def test_max_pool_indices_of_nan() -> None:
    x = np.array([[[1, np.nan, 3, np.nan, -np.inf, -np.inf]]], np.float32)
    proto = model("MaxPool", {"x": x}, outputs=2, kernel_shape=[2], pads=[1, 0], strides=[1])
    results = of_both(proto, {"x": x})
    np.testing.assert_array_equal(results["y1"], [[[0, 1, 1, 3, 3, 4]]])
    np.testing.assert_array_equal(x.reshape(-1)[results["y1"]], results["y"])


def test_max_pool_gradient_with_indices() -> None:
    x = normal((1, 2, 5, 5), "float64")
    proto = model("MaxPool", {"x": x}, outputs=2, kernel_shape=[3, 3], strides=[2, 2])
    results = found(proto, {"x": x})
    assert check(proto, [x], [results["y"], results["y1"]])


# LpPool


@given(pools(), st.sampled_from([1, 2, 3, 4]))
def test_lp_pool(case: tuple[tuple[int, ...], Pool], p: int) -> None:
    """Windows of ones give the number of elements: padding adds nothing."""
    shape, pool = case
    x, ones = normal(shape, "float64"), np.ones(shape)
    y = found(model("LpPool", {"x": x}, p=p, **pool), {"x": x})["y"]
    counts = found(model("LpPool", {"x": ones}, p=1, **pool), {"x": ones})["y"]
    powers = np.abs(x) ** p
    average = found(model("AveragePool", {"x": powers}, **pool), {"x": powers})["y"]
    close(y, (average * np.round(counts)) ** (1 / p))


@given(pools(), st.sampled_from([1, 2, 3]))
def test_lp_pool_gradients_are_slopes(case: tuple[tuple[int, ...], Pool], p: int) -> None:
    shape, pool = case
    x = normal(shape, "float64")
    proto = model("LpPool", {"x": x}, p=p, **pool)
    assert check(proto, [x], [found(proto, {"x": x})["y"]])


def test_lp_pool_gradients_at_zero() -> None:
    x = normal((1, 1, 6), "float64")
    x[..., :4] = 0
    proto = model("LpPool", {"x": x}, kernel_shape=[2], strides=[2], p=2)
    y = found(proto, {"x": x})["y"]
    np.testing.assert_array_equal(y[..., :2], 0)
    module, compilation = forward(with_loss(proto, [y]), ["x"])
    Autodiff(MIXTURE, wrt=("x",)).run(compilation, module)
    results, _ = evaluate(module, {"x": x}, compilation.weights)
    gradient = results[GRADIENT + "x"]
    np.testing.assert_array_equal(gradient[..., :4], 0)
    assert (gradient[..., 4:] != 0).all()


@pytest.mark.parametrize(("opset", "p"), [(1, 2.5), (2, 3), (11, 1), (18, 2), (22, 3)])
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_lp_pool_by_version_and_type(opset: int, p: float, dtype: str) -> None:
    x = normal((2, 3, 6, 7), dtype)
    attributes: Pool = {"kernel_shape": [2, 3], "p": p, "pads": [1, 1, 0, 2]}
    y = of_both(model("LpPool", {"x": x}, opset=opset, **attributes), {"x": x})["y"]
    padded = np.pad(np.abs(x.astype(np.float64)), [(0, 0), (0, 0), (1, 0), (1, 2)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (2, 3), (2, 3))
    close(y, (windows**p).sum((-1, -2)) ** (1 / p))


def test_lp_pool_is_that_of_onnxruntime(tmp_path: Path) -> None:
    x = normal((2, 3, 7, 7))
    attributes: Pool = {"kernel_shape": [2, 3], "p": 3, "dilations": [2, 1], "strides": [2, 2]}
    proto = model("LpPool", {"x": x}, opset=18, **attributes)
    close(found(proto, {"x": x}, "c")["y"], of_peer(proto, {"x": x}, tmp_path)["y"])


# MaxUnpool


@pytest.mark.parametrize(("opset", "dtype"), [(9, "float32"), (11, "float16"), (22, "bfloat16")])
def test_max_unpool(opset: int, dtype: str) -> None:
    x = normal((2, 3, 3, 2), dtype)
    generator = np.random.default_rng(1)
    places = generator.permutation(2 * 3 * 24)[: x.size].reshape(x.shape)
    inputs = {"x": x, "places": places}
    proto = model("MaxUnpool", inputs, opset=opset, kernel_shape=[2, 2], strides=[2, 2])
    wanted = np.zeros(2 * 3 * 24, x.dtype)
    wanted[places.reshape(-1)] = x.reshape(-1)
    np.testing.assert_array_equal(of_both(proto, inputs)["y"], wanted.reshape(2, 3, 6, 4))


@given(st.integers(0, 2**32 - 1))
def test_max_unpool_with_duplicate_indices(seed: int) -> None:
    generator = np.random.default_rng(seed)
    x, places = normal((1, 2, 7), seed=seed), generator.integers(0, 16, (1, 2, 7))
    inputs = {"x": x, "places": places}
    wanted = np.zeros(16, x.dtype)
    wanted[places.reshape(-1)] = x.reshape(-1)
    proto = model("MaxUnpool", inputs, kernel_shape=[2])
    np.testing.assert_array_equal(found(proto, inputs)["y"].reshape(-1), wanted)


@pytest.mark.parametrize("held", [(), ("shape",)])
def test_max_unpool_with_an_output_shape(held: tuple[str, ...]) -> None:
    x, places = normal((1, 1, 2, 2)), np.array([5, 7, 13, 15]).reshape(1, 1, 2, 2)
    inputs = {"x": x, "places": places, "shape": np.array([1, 1, 5, 6])}
    attributes: Pool = {"kernel_shape": [2, 2], "strides": [2, 2]}
    proto = model("MaxUnpool", inputs, constants=held, **attributes)
    y = of_both(proto, inputs)["y"]
    assert y.shape == (1, 1, 5, 6)
    np.testing.assert_array_equal(y[0, 0, 1::2, 1:4:2], x[0, 0])
    assert np.count_nonzero(y) == 4


def test_max_unpool_gradients_are_slopes() -> None:
    """With duplicate indices, elements that were overwritten have gradient 0."""
    x, places = normal((1, 2, 6), "float64"), np.array([0, 1, 1, 5, 13, 13, 2, 7, 9, 9, 9, 3])
    inputs = {"x": x, "places": places.reshape(x.shape)}
    proto = model("MaxUnpool", inputs, kernel_shape=[2])
    assert check(proto, list(inputs.values()), [found(proto, inputs)["y"]])


def test_max_unpool_indices_out_of_range() -> None:
    inputs = {"x": normal((1, 1, 2)), "places": np.array([[[0, 4]]])}
    proto = model("MaxUnpool", inputs, kernel_shape=[2], strides=[2])
    with pytest.raises(IndicesError, match="index 4"):
        popgraph.compile(proto, backend="c", indices="error")(**inputs)


# Col2Im


@st.composite
def foldings(draw: st.DrawFn) -> tuple[Array, dict[str, Array], Pool]:
    rank = draw(st.integers(1, 3))
    image = [draw(st.integers(3, 6)) for _ in range(rank)]
    block = [draw(st.integers(1, 3)) for _ in range(rank)]
    strides = [draw(st.integers(1, 2)) for _ in range(rank)]
    dilations = [draw(st.integers(1, 2)) if size < 3 else 1 for size in block]
    pads = [draw(st.integers(0, 2)) for _ in range(2 * rank)]
    counts = [
        (size + pads[axis] + pads[rank + axis] - dilations[axis] * (block[axis] - 1) - 1)
        // strides[axis]
        + 1
        for axis, size in enumerate(image)
    ]
    x = normal((2, 3 * int(np.prod(block)), int(np.prod(counts))), "float64")
    shapes = {"image": np.array(image), "block": np.array(block)}
    return x, shapes, {"strides": strides, "dilations": dilations, "pads": pads}


@given(foldings())
def test_col2im(case: tuple[Array, dict[str, Array], Pool]) -> None:
    x, shapes, attributes = case
    inputs = {"x": x, **shapes}
    proto = model("Col2Im", inputs, constants=tuple(shapes), **attributes)
    y = found(proto, inputs)["y"]
    (wanted,) = ReferenceEvaluator(proto).run(None, {"x": x})
    close(y, wanted)


@given(foldings())
def test_col2im_gradients_are_slopes(case: tuple[Array, dict[str, Array], Pool]) -> None:
    x, shapes, attributes = case
    inputs = {"x": x, **shapes}
    proto = model("Col2Im", inputs, constants=tuple(shapes), **attributes)
    assert check(proto, [x], [found(proto, inputs)["y"]])


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8", "uint64", "bool"])
def test_col2im_by_type(dtype: str) -> None:
    x = np.abs(normal((1, 8, 9)))
    x = (x > 1) if dtype == "bool" else (x * 3).astype(normal((), dtype).dtype)
    inputs = {"x": x, "image": np.array([4, 4]), "block": np.array([2, 2])}
    y = of_both(model("Col2Im", inputs), inputs)["y"]
    proto = model("Col2Im", {**inputs, "x": x.astype(np.float64)})
    given_ = {**inputs, "x": x.astype(np.float64)}
    (wanted,) = ReferenceEvaluator(proto).run(None, given_)
    close(y, (wanted).astype(y.dtype))


def test_global_lp_pool() -> None:
    """GlobalLpPool is the p-th root of the sum over the whole image."""
    x = normal((2, 3, 4, 5))
    for p in (1, 2, 3):
        y = of_both(model("GlobalLpPool", {"x": x}, p=p), {"x": x})["y"]
        wanted = (np.abs(x).astype(np.float64) ** p).sum(axis=(2, 3), keepdims=True) ** (1 / p)
        np.testing.assert_allclose(y, wanted, rtol=1e-5)
