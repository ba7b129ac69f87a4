"""
Tests DFT, STFT, MelWeightMatrix and windows against NumPy and ONNX's reference, with gradients.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

import popgraph
from popgraph.passes.options import Options
from popgraph.support.arrays import Array
from popgraph.support.tuning import Tuning
from tests.one_node import TOLERANCE, Arrays, close, found, model, normal, of_both
from tests.passes.test_onnx_gradients import check

Case = tuple[dict[str, Array | None], dict[str, Any]]
LENGTHS = (1, 2, 3, 4, 5, 8, 9, 12, 30)


def transformed(inputs: Arrays, attributes: dict[str, Any], opset: int) -> Array:
    """The transform by NumPy, in f64."""
    x, length, axis = inputs["x"], inputs.get("length"), inputs.get("axis")
    assert x is not None
    numbers = x[..., 0] + (1j * x[..., 1] if x.shape[-1] == 2 else 0)
    place = attributes.get("axis", 1) if opset < 20 else -2 if axis is None else int(axis)
    place = place % x.ndim
    count = None if length is None else int(length)
    if not attributes.get("inverse"):
        found = np.fft.fft(numbers.astype(complex), count, place)
        if attributes.get("onesided"):
            found = np.take(found, range(found.shape[place] // 2 + 1), place)
    elif attributes.get("onesided"):
        return np.asarray(np.fft.irfft(numbers, count, place)[..., None])
    else:
        found = np.fft.ifft(numbers.astype(complex), count, place)
    return np.stack([found.real, found.imag], -1)


@st.composite
def transforms(draw: st.DrawFn) -> Case:
    rank, inverse, onesided = draw(st.integers(1, 3)), draw(st.booleans()), draw(st.booleans())
    axis = draw(st.integers(0, rank - 1))
    size = draw(st.sampled_from(LENGTHS[int(inverse and onesided) :]))
    shape = [size if place == axis else draw(st.integers(1, 3)) for place in range(rank)]
    parts = 1 + inverse if onesided else draw(st.integers(1, 2))
    is_default = axis == rank - 1 and draw(st.booleans())
    inputs: dict[str, Array | None] = {
        "x": normal((*shape, parts), "float64", draw(st.integers(0, 9))),
        "length": np.array(draw(st.sampled_from(LENGTHS))) if draw(st.booleans()) else None,
        "axis": None if is_default else np.array(axis - draw(st.sampled_from([0, rank + 1]))),
    }
    return inputs, {"inverse": int(inverse), "onesided": int(onesided)}


@given(transforms(), st.sampled_from([1, 4, 256]))
def test_dft_is_that_of_numpy(case: Case, longest: int) -> None:
    """Dense, in several rounds, and by convolution."""
    inputs, attributes = case
    held = tuple(name for name, array in inputs.items() if array is not None and name != "x")
    proto = model("DFT", inputs, constants=held, **attributes)
    options = Options(tuning=Tuning(longest_dense_transform=longest))
    y = popgraph.compile(proto, backend="reference", options=options)(x=inputs["x"])["y"]
    close(y, transformed(inputs, attributes, 20))


@given(transforms())
def test_dft_gradients_are_slopes(case: Case) -> None:
    inputs, attributes = case
    held = tuple(name for name, array in inputs.items() if array is not None and name != "x")
    proto = model("DFT", inputs, constants=held, **attributes)
    assert check(proto, [inputs["x"]], [found(proto, inputs)["y"]])


@pytest.mark.parametrize("length", [260, 257])
@pytest.mark.parametrize("parts", [1, 2])
def test_dft_gradients_of_long_signals_are_slopes(length: int, parts: int) -> None:
    """Transforms in several rounds, and by convolution."""
    x = normal((1, length, parts), "float64")
    proto = model("DFT", {"x": x}, onesided=2 - parts)
    assert check(proto, [x], [found(proto, {"x": x})["y"]])


@pytest.mark.parametrize(
    ("opset", "dtype"), [(17, "float32"), (17, "float64"), (20, "float16"), (20, "bfloat16")]
)
@pytest.mark.parametrize("attributes", [{}, {"onesided": 1}, {"inverse": 1, "onesided": 1}])
def test_dft_versions_and_types(opset: int, dtype: str, attributes: dict[str, int]) -> None:
    """Length and axis are inputs of the model."""
    inputs: dict[str, Array | None] = {
        "x": normal((2, 10, 3, 1 + attributes.get("inverse", 0)), dtype),
        "length": np.array(12, np.int32 if opset == 17 else np.int64),
    }
    where: dict[str, Any] = {"axis": -3} if opset == 17 else {}
    if opset == 20:
        inputs["axis"] = np.array(1)
    proto = model("DFT", inputs, opset=opset, **attributes, **where)
    y = of_both(proto, inputs)["y"]
    x = inputs["x"]
    assert x is not None
    wanted = transformed({**inputs, "x": x.astype(np.float64)}, {**attributes, **where}, opset)
    assert y.dtype == x.dtype
    margin = TOLERANCE[dtype] * np.abs(wanted).max()
    np.testing.assert_allclose(y.astype(np.float64), wanted, rtol=0, atol=margin)


@pytest.mark.parametrize("length", [256, 257, 400, 509, 1024, 2 * 521, 4096])
@pytest.mark.parametrize("parts", [1, 2])
def test_dft_accuracy_on_long_signals(length: int, parts: int) -> None:
    inputs = {"x": normal((2, length, parts))}
    y = found(model("DFT", inputs), inputs, "c")["y"]
    wanted = transformed({"x": inputs["x"].astype(np.float64)}, {}, 20)
    error = np.abs(y - wanted).max() / np.sqrt((wanted**2).mean())
    assert error < 3e-6


@pytest.mark.parametrize("length", [300, 301, 1000])
def test_dft_inverse_of_long_signals(length: int) -> None:
    x = normal((1, length, 1))
    half = found(model("DFT", {"x": x}, onesided=1), {"x": x}, "c")["y"]
    inputs = {"x": half, "length": np.array(length)}
    back = found(model("DFT", inputs, onesided=1, inverse=1), inputs, "c")["y"]
    np.testing.assert_allclose(back, x, rtol=0, atol=2e-6)


# STFT


@st.composite
def frames(draw: st.DrawFn) -> Case:
    size, length = draw(st.integers(6, 20)), draw(st.integers(1, 6))
    onesided = draw(st.integers(0, 1))
    has_window, has_length = draw(st.sampled_from([(1, 0), (0, 1), (1, 1), (0, 0)]))
    inputs: dict[str, Array | None] = {
        "x": normal((2, size, 1 if onesided else draw(st.integers(1, 2))), "float64"),
        "step": np.array(draw(st.integers(1, 7))),
        "window": normal((length,), "float64", 1) if has_window else None,
        "length": np.array(length) if has_length else None,
    }
    return inputs, {"onesided": onesided}


@given(frames())
def test_stft_is_that_of_the_reference(case: Case) -> None:
    inputs, attributes = case
    proto = model("STFT", inputs, **attributes)
    given_ = {name: array for name, array in inputs.items() if array is not None}
    (wanted,) = ReferenceEvaluator(proto).run(None, given_)
    close(found(proto, inputs)["y"], wanted)


@given(frames())
def test_stft_gradients_are_slopes(case: Case) -> None:
    """Gradients of the signal and of the window."""
    inputs, attributes = case
    held = [name for name in ("step", "length") if inputs[name] is not None]
    proto = model("STFT", inputs, constants=held, **attributes)
    free = [array for name, array in inputs.items() if array is not None and name not in held]
    assert check(proto, free, [found(proto, inputs)["y"]])


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_stft_by_type(dtype: str) -> None:
    inputs = {
        "x": normal((2, 50, 1), dtype),
        "step": np.array(8, np.int32),
        "window": normal((16,), dtype, 1),
    }
    y = of_both(model("STFT", inputs, opset=17), inputs)["y"]
    wide = {name: array.astype(np.float64) for name, array in inputs.items() if name != "step"}
    wide = {"x": wide["x"], "step": inputs["step"], "window": wide["window"]}
    (wanted,) = ReferenceEvaluator(model("STFT", wide)).run(None, wide)
    margin = TOLERANCE[dtype] * np.abs(wanted).max()
    np.testing.assert_allclose(y.astype(np.float64), wanted, rtol=0, atol=margin)


# Mel weights


@given(st.integers(1, 9), st.integers(8, 64), st.integers(0, 900), st.integers(1000, 4000))
def test_mel_weight_matrix_is_that_of_the_reference(
    bands: int, length: int, lower: int, upper: int
) -> None:
    inputs = {
        "bands": np.array(bands),
        "length": np.array(length),
        "rate": np.array(8000),
        "lower": np.array(lower, np.float64),
        "upper": np.array(upper, np.float64),
    }
    proto = model("MelWeightMatrix", inputs)
    (wanted,) = ReferenceEvaluator(proto).run(None, dict(inputs))
    close(found(proto, inputs)["y"], wanted)


@pytest.mark.parametrize("kind", ["FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16", "INT8", "UINT64"])
@pytest.mark.parametrize("edge", ["float32", "float16", "bfloat16"])
def test_mel_weight_matrix_by_type(kind: str, edge: str) -> None:
    edges = np.dtype(getattr(ml_dtypes, edge, edge))
    inputs = {
        "bands": np.array(8, np.int32),
        "length": np.array(16, np.int32),
        "rate": np.array(8192, np.int32),
        "lower": np.array(0, edges),
        "upper": np.array(4096, edges),
    }
    wanted_type = getattr(TensorProto, kind)
    proto = model("MelWeightMatrix", inputs, opset=17, output_datatype=wanted_type)
    y = of_both(proto, inputs)["y"]
    wide = {**inputs, "lower": np.array(0.0), "upper": np.array(4096.0)}
    (wanted,) = ReferenceEvaluator(model("MelWeightMatrix", wide)).run(None, wide)
    np.testing.assert_array_equal(y, wanted.astype(y.dtype))


# Windows, which ONNX defines by functions


@pytest.mark.parametrize("periodic", [0, 1])
@pytest.mark.parametrize(
    ("operator", "of"),
    [("HannWindow", np.hanning), ("HammingWindow", None), ("BlackmanWindow", np.blackman)],
)
def test_hann_hamming_and_blackman_windows(operator: str, of: Any, periodic: int) -> None:
    for size in (1, 2, 10):
        if size == 1 and not periodic:
            continue  # ONNX divides by zero
        inputs = {"size": np.array(size)}
        y = of_both(model(operator, inputs, opset=17, periodic=periodic), inputs)["y"]
        whole = size + periodic
        if of is None:
            turns = 2 * np.pi * np.arange(whole) / (whole - 1)
            wanted = 25 / 46 - 21 / 46 * np.cos(turns)
        else:
            wanted = of(whole)
        np.testing.assert_allclose(y, wanted[:size], rtol=1e-5, atol=1e-6)
