"""Tests that divisions become multiplications only where every float is rounded alike."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper

import popgraph
from popgraph.passes.graphcore.round_cheaply import Reciprocal
from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.support.machine import TARGETS

SCALES = st.floats(2.0**-20, 2.0**20, width=32)


def products(found: Reciprocal, x: Array) -> Array:
    """x * high + x * low, with an exact first product and a single rounding."""
    rest = (x * np.float32(found.low)).astype(np.longdouble)
    exact = x.astype(np.longdouble) * np.longdouble(found.high)
    return (exact + rest).astype(np.float32)


def quantized_and_back(kind: str, scale: float) -> ModelProto:
    """A model of `x` in f32, `q` quantized from it, and `y` dequantized from that."""
    row = dtypes.BY_NAME[kind]
    zero = np.array(3, row.numpy)
    graph = helper.make_graph(
        [
            helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
            helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8])],
        [
            helper.make_tensor_value_info("q", row.onnx, [8]),
            helper.make_tensor_value_info("y", TensorProto.FLOAT, [8]),
        ],
        [numpy_helper.from_array(np.float32(scale), "s"), numpy_helper.from_array(zero, "z")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


@given(SCALES, st.integers(0, 2**32 - 1))
def test_reciprocals_round_like_quotients(divisor: float, seed: int) -> None:
    found = Reciprocal.of(divisor, -128, 127)
    if found is None:
        return
    generator = np.random.default_rng(seed)
    steps = (np.arange(-128, 127) + 0.5) * divisor
    near = steps * (1 + generator.integers(-4, 5, (40, 1)) * 2.0**-24)
    far = generator.uniform(-200, 200, 4000) * divisor
    x = np.concatenate([near.ravel(), far, [0.0, -0.0]]).astype(np.float32)
    wanted = np.rint(x / np.float32(divisor)).clip(-128, 127)
    np.testing.assert_array_equal(np.rint(products(found, x)).clip(-128, 127), wanted)


def test_nearly_all_scales_have_a_reciprocal() -> None:
    scales = np.random.default_rng(0).uniform(0.001, 1, 200).astype(np.float32)
    assert sum(Reciprocal.of(float(one), 0, 255) is not None for one in scales) > 195


def test_reciprocals_of_powers_of_two_are_one_number() -> None:
    assert Reciprocal.of(0.25, 0, 255) == Reciprocal(4.0, 0.0)


@pytest.mark.parametrize(
    ("divisor", "first", "last"),
    [(0.0, 0, 9), (-0.5, 0, 9), (np.inf, 0, 9), (np.nan, 0, 9), (1e-40, 0, 9), (0.5, 0, 99999)],
)
def test_divisors_without_a_reciprocal(divisor: float, first: int, last: int) -> None:
    assert Reciprocal.of(divisor, first, last) is None


@pytest.mark.parametrize("kind", ["u8", "i8"])
@pytest.mark.parametrize("scale", [0.037, 0.25, 1 / 3])
def test_infinity_and_nan_are_quantized_alike(kind: str, scale: float) -> None:
    x = np.array([np.inf, -np.inf, np.nan, 3e38, -3e38, 1e-40, -0.0, 0.5 * scale], np.float32)
    model = quantized_and_back(kind, scale)
    cheap = popgraph.compile(model)({"x": x})
    plain = popgraph.compile(
        model, options=popgraph.Options(disabled=frozenset(["round-cheaply"]))
    )({"x": x})
    for name, wanted in plain.items():
        np.testing.assert_array_equal(cheap[name], wanted)
        assert np.array_equal(np.signbit(cheap[name]), np.signbit(wanted))


def test_machines_without_fma_divide() -> None:
    fusing = {name for name, machine in TARGETS.items() if machine.fuses_multiply_add}
    assert fusing == {"avx512", "avx2", "neon"}


@pytest.mark.parametrize("kind", ["u4", "i4", "u8", "i8", "u16", "i16"])
def test_reciprocals_in_all_quantized_types(kind: str) -> None:
    x = np.array([-9.0, -0.5, -0.1, 0.0, 0.45, 0.75, 1.05, 400.0], np.float32)
    model = quantized_and_back(kind, 0.3)
    cheap, plain = (
        popgraph.compile(model, options=popgraph.Options(disabled=off))({"x": x})
        for off in (frozenset[str](), frozenset(["round-cheaply"]))
    )
    for name, wanted in plain.items():
        np.testing.assert_array_equal(cheap[name].astype(np.float32), wanted.astype(np.float32))
