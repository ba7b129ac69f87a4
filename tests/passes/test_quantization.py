"""Tests quantized operators against ONNX's reference, and onnxruntime where that differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from onnx import helper

import popgraph
from popgraph.backends.reference import evaluate
from popgraph.passes.graphcore.training.autodiff import Autodiff
from popgraph.passes.options import GRADIENT
from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.support.errors import DifferentiationError, TypeMismatchError
from tests.passes.test_onnx_gradients import forward
from tests.peer import SAFE, answers
from tests.quantizing import (
    EIGHTS,
    WHOLE,
    Quantizing,
    assert_same,
    expected,
    model,
    model_of,
    quantizings,
)
from tests.sampling import WHOLE as LONG

BACKENDS = ("reference", "c")


def compare(cases: Sequence[Quantizing], backend: str) -> None:
    made, fed = model_of(cases)
    found = popgraph.compile(made, backend=backend)(fed)
    wanted = expected(made, fed)
    for number, (case, array) in enumerate(zip(cases, wanted, strict=True)):
        assert_same(found[f"n{number}y"], array, case)


@given(quantizings())
@settings(max_examples=2000 if LONG else 200)
def test_quantize_linear_is_that_of_the_reference(case: Quantizing) -> None:
    compare([case], "reference")


@given(st.sampled_from((13, 19, 21, 23, 24, 25)).flatmap(quantizings))
@settings(max_examples=500 if LONG else 60)
def test_quantize_linear_by_version(case: Quantizing) -> None:
    compare([case], "reference")


@given(st.lists(quantizings(), min_size=8, max_size=12))
@settings(max_examples=50 if LONG else 6, phases=[Phase.generate])
def test_quantize_linear_in_c(cases: list[Quantizing]) -> None:
    compare(cases, "c")


@pytest.mark.parametrize("backend", BACKENDS)
def test_quantize_linear_rounds_to_even_and_saturates(backend: str) -> None:
    x = np.array([0.5, 1.5, -0.5, 2.5, 1e30, -1e30, np.inf, -np.inf, np.nan], np.float32)
    node = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"])
    fed = {"x": x, "s": np.array(1, np.float32), "z": np.array(1, np.int8)}
    found = popgraph.compile(model([node], fed, {}, 21), backend=backend)(fed)["y"]
    assert found.tolist() == [1, 3, 1, 3, 127, -128, 127, -128, -128]


@pytest.mark.parametrize("backend", BACKENDS)
def test_quantize_linear_divides_in_the_type_of_the_scale(backend: str) -> None:
    """
    onnxruntime and ONNX's text divide in the type of the scale; ONNX's evaluator in the wider type.
    """
    node = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"])
    fed: dict[str, Array] = {
        "x": np.array([70000, 2.5003, 1000.6], np.float32),
        "s": np.array(1, np.float16),
        "z": np.array(1, np.uint16),
    }
    found = popgraph.compile(model([node], fed, {}, 23), backend=backend)(fed)["y"]
    assert found.tolist() == [65535, 3, 1001]


@pytest.mark.parametrize("name", EIGHTS)
def test_quantize_linear_adds_a_float8_zero_point(name: str) -> None:
    kind = dtypes.BY_NAME[name].numpy
    fed = {"x": np.array([-0.0, 1], np.float32), "s": np.array(1, np.float32)}
    node = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"])
    for zero in (0.0, 2.0):
        given_ = {**fed, "z": np.array(zero, kind)}
        found = popgraph.compile(model([node], given_, {}, 21), backend="reference")(given_)["y"]
        wanted = (fed["x"] + zero if zero else fed["x"]).astype(kind)
        assert found.tobytes() == wanted.tobytes()


@given(quantizings(operator="DequantizeLinear"))
@settings(max_examples=200 if LONG else 25)
def test_dequantize_linear_gradients_of_scales_are_slopes(case: Quantizing) -> None:
    """The result is linear in the scales, so a long step of differences is exact."""
    case = replace(case, scale="f32", attributes=())
    fed = {f"n0{name}": array for name, array in case.arrays().items()}
    fed["w"] = np.random.default_rng(1).uniform(0.5, 1.5, case.shape).astype(np.float32)
    nodes = [
        case.node("n0"),
        helper.make_node("Mul", ["n0y", "w"], ["weighted"]),
        helper.make_node("ReduceSum", ["weighted"], ["loss"], keepdims=0),
    ]
    module, compilation = forward(model(nodes, fed, {}, 28), ["n0s"])
    backward = module.clone()
    Autodiff("loss", wrt=("n0s",)).run(compilation, backward)
    found, _ = evaluate(backward, fed, compilation.weights)
    without = {**fed, "n0s": np.zeros_like(fed["n0s"])}
    here, there = (evaluate(module, one, compilation.weights)[0]["loss"] for one in (fed, without))
    slope = np.sum(found[f"{GRADIENT}n0s"] * fed["n0s"])
    np.testing.assert_allclose(slope, here - there, rtol=1e-3, atol=1e-3 * abs(here))


def fake_quantized(narrow: str) -> tuple[Any, dict[str, Array]]:
    """A weighted sum of numbers that are quantized and dequantized."""
    generator = np.random.default_rng(3)
    fed: dict[str, Array] = {
        "x": generator.normal(size=(3, 40)).astype(np.float32) * 8,
        "s": np.array(0.07, np.float32),
        "z": np.array(5, dtypes.BY_NAME[narrow].numpy),
        "w": generator.normal(size=(3, 40)).astype(np.float32),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
        helper.make_node("Mul", ["y", "w"], ["weighted"]),
        helper.make_node("ReduceSum", ["weighted"], ["loss"], keepdims=0),
    ]
    return model(nodes, fed, {}, 21), fed


def gradients(made: Any, fed: dict[str, Array], *, through: bool) -> Mapping[str, Array]:
    module, compilation = forward(made, ["x", "s"], straight_through=through)
    Autodiff("loss", wrt=("x", "s")).run(compilation, module)
    return evaluate(module, fed, compilation.weights)[0]


@pytest.mark.parametrize("narrow", ["i8", "u8"])
def test_straight_through_gradients_are_those_of_pytorch(narrow: str) -> None:
    torch = pytest.importorskip("torch", reason="the oracle of gradients")
    made, fed = fake_quantized(narrow)
    found = gradients(made, fed, through=True)
    x, scale = (
        torch.tensor(fed[name].reshape(shape), requires_grad=True)
        for name, shape in (("x", (3, 40)), ("s", (1,)))
    )
    ends = np.iinfo(fed["z"].dtype)
    y = torch._fake_quantize_learnable_per_tensor_affine(
        x, scale, torch.tensor([5.0]), int(ends.min), int(ends.max), 1.0
    )
    loss = (y * torch.tensor(fed["w"])).sum()
    loss.backward()
    np.testing.assert_allclose(found["loss"], loss.detach().numpy(), rtol=1e-5)
    np.testing.assert_allclose(found[f"{GRADIENT}x"], x.grad.numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[f"{GRADIENT}s"], scale.grad.numpy()[0], rtol=1e-3)
    assert 0 < np.count_nonzero(found[f"{GRADIENT}x"]) < fed["x"].size


def test_quantized_values_have_no_gradient_by_default() -> None:
    made, fed = fake_quantized("i8")
    found = gradients(made, fed, through=False)
    assert f"{GRADIENT}x" not in found
    straight = gradients(made, fed, through=True)
    assert found["loss"] == straight["loss"], "the choice changes gradients alone"
    module, compilation = forward(made, ["x"])
    with pytest.raises(DifferentiationError, match="has no gradient with respect to 'x'"):
        Autodiff("loss", wrt=("s",), gradients=("x",)).run(compilation, module)


# Products


def rescaled(sums: Array, scale: Any, zero: Array) -> Array:
    ends = np.iinfo(zero.dtype)
    product = np.rint(sums * np.asarray(scale, np.float64)) + zero
    return np.asarray(np.clip(product, ends.min, ends.max).astype(zero.dtype))


@st.composite
def products(draw: st.DrawFn) -> tuple[dict[str, Array], Array, Array]:
    """Inputs of QLinearMatMul, its integer sums and its result."""
    left, right, out = (draw(st.sampled_from((np.int8, np.uint8))) for _ in range(3))
    m, k, n = (draw(st.integers(1, 9)) for _ in range(3))
    batch = tuple(draw(st.lists(st.integers(1, 3), max_size=2)))
    generator = np.random.default_rng(draw(st.integers(0, 99)))

    def whole(kind: Any, shape: tuple[int, ...]) -> Array:
        info = np.iinfo(kind)
        return generator.integers(info.min, info.max, shape, dtype=kind, endpoint=True)

    def scale(shape: tuple[int, ...]) -> Array:
        exact = generator.integers(1, 5, shape) / 64 * (1 + generator.integers(0, 2, shape))
        return np.asarray(exact, np.float32)

    rows = draw(st.sampled_from([(), (1,), (*batch, m, 1), *([] if batch else [(m,)])]))
    columns = draw(st.sampled_from([(), (n,), (*batch, 1, n)]))
    a, b = whole(left, (*batch, m, k)), whole(right, (*batch, k, n))
    fed = {
        "a": a,
        "as": scale(rows),
        "az": whole(left, rows),
        "b": b,
        "bs": scale(columns),
        "bz": whole(right, columns),
        "ys": scale(()),
        "yz": whole(out, ()),
    }
    down = (-1, 1) if rows == (m,) else rows
    sums = (a.astype(np.int32) - fed["az"].reshape(down).astype(np.int32)) @ (
        b.astype(np.int32) - fed["bz"].astype(np.int32)
    )
    scales = fed["as"].reshape(down) * fed["bs"] / fed["ys"]
    return fed, sums, rescaled(sums, scales, fed["yz"])


def run_products(fed: Mapping[str, Array], backend: str) -> dict[str, Array]:
    nodes = [
        helper.make_node("MatMulInteger", ["a", "b", "az", "bz"], ["sums"]),
        helper.make_node("QLinearMatMul", list(fed), ["y"]),
    ]
    return popgraph.compile(model(nodes, fed, {}, 21), backend=backend)(fed)


@given(products())
@settings(max_examples=300 if LONG else 60)
def test_mat_mul_integer_and_qlinear_mat_mul(drawn: tuple[dict[str, Array], Array, Array]) -> None:
    fed, sums, wanted = drawn
    found = run_products(fed, "reference")
    np.testing.assert_array_equal(found["sums"], sums)
    np.testing.assert_array_equal(found["y"], wanted)


@given(products())
@settings(max_examples=30 if LONG else 4, phases=[Phase.generate])
def test_mat_mul_integer_and_qlinear_mat_mul_in_c(
    drawn: tuple[dict[str, Array], Array, Array],
) -> None:
    fed, sums, wanted = drawn
    found = run_products(fed, "c")
    np.testing.assert_array_equal(found["sums"], sums)
    np.testing.assert_array_equal(found["y"], wanted)


def convolution(seed: int) -> tuple[Any, dict[str, Array]]:
    """A QLinearConv and a ConvInteger, with their inputs."""
    generator = np.random.default_rng(seed)
    groups, maps = (1, 4) if seed % 2 else (2, 6)
    kind = (np.uint8, np.int8)[seed % 3 == 0]
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    per_map = () if seed % 4 == 0 else (maps,)
    fed = {
        "x": generator.integers(low, high, (2, 4, 6, 5)).astype(kind),
        "xs": np.array(0.031, np.float32),
        "xz": np.array(generator.integers(low, high), kind),
        "w": generator.integers(-SAFE, SAFE, (maps, 4 // groups, 3, 2)).astype(np.int8),
        "ws": generator.uniform(0.01, 0.05, per_map).astype(np.float32),
        "wz": np.zeros(per_map, np.int8),
        "ys": np.array(0.7, np.float32),
        "yz": np.array(generator.integers(low, high), kind),
        "b": generator.integers(-9999, 9999, maps).astype(np.int32),
    }
    attributes = {"group": groups, "pads": [1, 0, 2, 1], "strides": [1 + seed % 2, 1]}
    nodes = [
        helper.make_node("ConvInteger", ["x", "w", "xz"], ["sums"], **attributes),
        helper.make_node("QLinearConv", list(fed), ["y"], **attributes),
    ]
    return model(nodes, fed, {}, 10), fed


def test_conv_integer_and_qlinear_conv_are_those_of_onnxruntime(tmp_path: Path) -> None:
    drawn = [convolution(seed) for seed in range(12)]
    theirs = answers([(made.SerializeToString(), fed) for made, fed in drawn], tmp_path)
    for (made, fed), wanted in zip(drawn, theirs, strict=True):
        assert isinstance(wanted, dict), wanted
        for backend in BACKENDS:
            found = popgraph.compile(made, backend=backend)(fed)
            np.testing.assert_array_equal(found["sums"], wanted["sums"])
            np.testing.assert_array_equal(found["y"], wanted["y"])


def test_qlinear_mat_mul_rounds_before_adding_the_zero_point(tmp_path: Path) -> None:
    """
    onnxruntime and ONNX's text round before adding the zero point; ONNX's evaluator afterwards.
    """
    fed: dict[str, Array] = {
        "a": np.array([[1], [2], [3], [5]], np.uint8),
        "as": np.array(1, np.float32),
        "az": np.array(0, np.uint8),
        "b": np.array([[1]], np.uint8),
        "bs": np.array(1, np.float32),
        "bz": np.array(0, np.uint8),
        "ys": np.array(2, np.float32),
        "yz": np.array(1, np.uint8),
    }
    made = model([helper.make_node("QLinearMatMul", list(fed), ["y"])], fed, {}, 10)
    (wanted,) = answers([(made.SerializeToString(), fed)], tmp_path)
    assert isinstance(wanted, dict), wanted
    for backend in BACKENDS:
        found = popgraph.compile(made, backend=backend)(fed)["y"]
        assert found.ravel().tolist() == wanted["y"].ravel().tolist() == [1, 2, 3, 3]


def test_qlinear_mat_mul_of_a_vector() -> None:
    generator = np.random.default_rng(0)
    a = generator.integers(0, 255, (3, 4), dtype=np.uint8)
    b = generator.integers(0, 255, 4, dtype=np.uint8)
    fed = {
        "a": a,
        "as": np.array([1, 2, 4], np.float32),
        "az": np.array([1, 2, 3], np.uint8),
        "b": b,
        "bs": np.array(1, np.float32),
        "bz": np.array(9, np.uint8),
        "ys": np.array(1000, np.float32),
        "yz": np.array(7, np.uint8),
    }
    made = model([helper.make_node("QLinearMatMul", list(fed), ["y"])], fed, {}, 21)
    sums = (a.astype(np.int32) - fed["az"][:, None]) @ (b.astype(np.int32) - 9)
    wanted = rescaled(sums, np.divide(fed["as"], np.float32(1000)), fed["yz"])
    found = popgraph.compile(made, backend="reference")(fed)["y"]
    np.testing.assert_array_equal(found, wanted)


def test_qlinear_mat_mul_of_float8_accumulates_in_f32() -> None:
    kind = dtypes.BY_NAME["f8e4m3fn"].numpy
    one, zero = np.array(1, np.float32), np.array(0, kind)
    a, b = np.array([[0.5, 448]]).astype(kind), np.array([[0.25], [2]]).astype(kind)
    fed = {"a": a, "as": one, "az": zero, "b": b, "bs": one, "bz": zero, "ys": one, "yz": zero}
    made = model([helper.make_node("QLinearMatMul", list(fed), ["y"])], fed, {}, 21)
    for backend in BACKENDS:
        found = popgraph.compile(made, backend=backend)({**fed, "ys": np.float32(100)})["y"]
        assert found.astype(np.float32).tolist() == [[9.0]]
        saturated = popgraph.compile(made, backend=backend)(fed)["y"]
        assert saturated.astype(np.float32).tolist() == [[448.0]]


# onnxruntime


def test_quantize_linear_is_that_of_onnxruntime(tmp_path: Path) -> None:
    cases = [
        Quantizing(operator, (3, 4), narrow=narrow, axis=axis, block=block, opset=opset, seed=seed)
        for operator in ("QuantizeLinear", "DequantizeLinear")
        for axis, block, opset in (
            (None, 0, 10),
            (1, 0, 13),
            (None, 0, 21),
            (0, 0, 21),
            (-1, 3, 21),
        )
        for seed, narrow in enumerate(WHOLE[:2] if opset < 21 else WHOLE[:4])
    ]
    drawn = [model_of([case]) for case in cases]
    theirs = answers([(made.SerializeToString(), fed) for made, fed in drawn], tmp_path)
    for case, (made, fed), wanted in zip(cases, drawn, theirs, strict=True):
        assert isinstance(wanted, dict), (case, wanted)
        found = popgraph.compile(made, backend="reference")(fed)
        assert_same(found["n0y"], wanted["n0y"], case)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"attributes": (("precision", 7),)}, "precision is 7"),
        (
            {"shape": (2, 3), "axis": 1, "block": 1, "attributes": (("block_size", 2),)},
            "blocks of 2",
        ),
    ],
)
def test_quantize_linear_of_wrong_types_is_refused(change: dict[str, Any], what: str) -> None:
    made, _ = model_of([Quantizing(**change)])
    with pytest.raises(TypeMismatchError, match=what) as caught:
        popgraph.compile(made, backend="reference")
    assert caught.value.hint
    assert "QuantizeLinear" in caught.value.where
