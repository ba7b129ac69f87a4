"""Tests ScatterElements, ScatterND and TensorScatter on every backend, and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

import popgraph
from popgraph.backends.reference import evaluate
from popgraph.passes.graphcore.training.autodiff import Autodiff
from popgraph.passes.options import GRADIENT
from popgraph.support.arrays import Array
from tests.passes.test_onnx_gradients import MIXTURE, check, forward

BACKENDS = ("reference", "c")
REDUCTIONS = ("none", "add", "mul", "max", "min")
OF_TORCH = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}
COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "none": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "max": np.maximum,
    "min": np.minimum,
}


def model(op: str, arrays: Sequence[Array], opset: int = 18, **attributes: Any) -> onnx.ModelProto:
    names = ["data", "indices", "updates"] if op != "TensorScatter" else ["data", "updates", "at"]
    infos = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in zip(names, arrays, strict=False)
    ]
    node = helper.make_node(op, names[: len(arrays)], ["y"], **attributes)
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info("y")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def run(made: onnx.ModelProto, arrays: Sequence[Array], backend: str) -> Array:
    given = {info.name: one for info, one in zip(made.graph.input, arrays, strict=True)}
    return popgraph.compile(made, backend=backend)(**given)["y"]


def by_elements(arrays: Sequence[Array], axis: int, reduction: str) -> Array:
    data, indices, updates = arrays
    result = data.copy()
    for place in np.ndindex(indices.shape):
        at = list(place)
        at[axis] = indices[place]
        result[tuple(at)] = COMBINE[reduction](result[tuple(at)], updates[place])
    return result


def by_rows(arrays: Sequence[Array], reduction: str) -> Array:
    data, indices, updates = arrays
    result = data.copy()
    for place in np.ndindex(indices.shape[:-1]):
        at = tuple(indices[place])
        result[at] = COMBINE[reduction](result[at], updates[place])
    return result


def drawn(shape: Sequence[int], dtype: str, seed: int) -> Array:
    generator = np.random.default_rng(seed)
    if dtype == "bool":
        return generator.integers(0, 2, shape).astype(bool)
    if dtype.startswith(("int", "uint")):
        return generator.integers(0, 200, shape).astype(dtype)
    return generator.uniform(-2, 2, shape).astype(dtype)


@st.composite
def elements(draw: st.DrawFn) -> tuple[list[Array], int, str]:
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    axis = draw(st.integers(0, len(shape) - 1))
    sizes = [draw(st.integers(0, size)) for size in shape]
    sizes[axis] = draw(st.integers(0, 6))
    dtype = draw(st.sampled_from(["float32", "float64", "int32", "uint8", "int64", "bool"]))
    seed = draw(st.integers(0, 99))
    size = shape[axis]
    indices = np.random.default_rng(seed).integers(-size, size, sizes)
    kind = draw(st.sampled_from(["int64", "int32"]))
    arrays = [drawn(shape, dtype, seed), indices.astype(kind), drawn(sizes, dtype, seed + 1)]
    return (
        arrays,
        draw(st.sampled_from([axis, axis - len(shape)])),
        draw(st.sampled_from(REDUCTIONS)),
    )


@given(elements(), st.sampled_from(BACKENDS))
def test_scatter_elements(case: tuple[list[Array], int, str], backend: str) -> None:
    arrays, axis, reduction = case
    made = model("ScatterElements", arrays, axis=axis, reduction=reduction)
    wanted = by_elements(arrays, axis, reduction)
    found = run(made, arrays, backend)
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, 1e-5, 1e-6)


@st.composite
def rows(draw: st.DrawFn) -> tuple[list[Array], str]:
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    depth = draw(st.integers(1, len(shape)))
    lead = draw(st.lists(st.integers(0, 3), max_size=2))
    seed = draw(st.integers(0, 99))
    dtype = draw(st.sampled_from(["float32", "int64", "uint16", "bool"]))
    generator = np.random.default_rng(seed)
    bounds = np.array(shape[:depth])
    indices = generator.integers(-bounds, bounds, (*lead, depth))
    updates = drawn([*lead, *shape[depth:]], dtype, seed + 1)
    return [drawn(shape, dtype, seed), indices, updates], draw(st.sampled_from(REDUCTIONS))


@given(rows(), st.sampled_from(BACKENDS))
def test_scatter_nd(case: tuple[list[Array], str], backend: str) -> None:
    arrays, reduction = case
    found = run(model("ScatterND", arrays, reduction=reduction), arrays, backend)
    np.testing.assert_allclose(found, by_rows(arrays, reduction), 1e-5, 1e-6)


@pytest.mark.parametrize("opset", [9, 10, 11, 13, 16, 18])
@pytest.mark.parametrize("backend", BACKENDS)
def test_scatter_elements_versions(opset: int, backend: str) -> None:
    arrays = [
        drawn((3, 4), "float32", 0),
        np.array([[2, 0, 1], [0, 2, 1]]),
        drawn((2, 3), "float32", 1),
    ]
    op = "Scatter" if opset < 11 else "ScatterElements"
    found = run(model(op, arrays, opset, axis=0), arrays, backend)
    np.testing.assert_array_equal(found, by_elements(arrays, 0, "none"))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "complex64"])
def test_scatter_nd_of_other_element_types(dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    arrays = [drawn((5, 3), "float32", 0).astype(kind), np.array([[4], [0], [4]])]
    arrays += [drawn((3, 3), "float32", 1).astype(kind)]
    for backend in BACKENDS:
        for reduction in REDUCTIONS[: 1 if dtype == "complex64" else 5]:
            found = run(model("ScatterND", arrays, reduction=reduction), arrays, backend)
            wide = [arrays[0].astype("c8"), arrays[1], arrays[2].astype("c8")]
            wide = wide if dtype == "complex64" else [one.real for one in wide]
            wanted = by_rows(wide, reduction)
            assert found.dtype == kind
            np.testing.assert_allclose(found.astype(wanted.dtype), wanted, 2e-2, 2e-2)


@pytest.mark.parametrize("mode", ["linear", "circular"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_tensor_scatter(mode: str, backend: str) -> None:
    cache, update = drawn((2, 3, 5, 2), "float32", 0), drawn((2, 3, 2, 2), "float32", 1)
    starts = np.array([3, 1] if mode == "linear" else [4, -3])
    for axis in (2, -2):
        arrays = [cache, update, starts]
        found = run(model("TensorScatter", arrays, 24, axis=axis, mode=mode), arrays, backend)
        wanted = cache.copy()
        for batch, start in enumerate(starts):
            for place in range(2):
                wanted[batch, :, (start + place) % 5] = update[batch, :, place]
        np.testing.assert_array_equal(found, wanted)
    found = run(model("TensorScatter", [cache, update], 24), [cache, update], backend)
    np.testing.assert_array_equal(found[:, :, :2], update)
    np.testing.assert_array_equal(found[:, :, 2:], cache[:, :, 2:])


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_scatter_elements_and_scatter_nd_gradients_are_slopes(reduction: str) -> None:
    arrays = [
        drawn((4, 3), "float64", 0),
        np.array([[2, -4, 1], [2, 3, 1]]),
        drawn((2, 3), "float64", 1),
    ]
    made = model("ScatterElements", arrays, axis=0, reduction=reduction)
    assert check(made, arrays, [run(made, arrays, "reference")])
    arrays = [arrays[0], np.array([[2], [0], [2]]), drawn((3, 3), "float64", 2)]
    made = model("ScatterND", arrays, reduction=reduction)
    assert check(made, arrays, [run(made, arrays, "reference")])


@pytest.mark.parametrize("is_read_again", [False, True])
def test_scatter_elements_into_a_computed_tensor_is_in_place(
    is_read_again: bool, tmp_path: Path
) -> None:
    """Except if there is a later reader of the old value."""
    path = tmp_path / "relu.pgraph"
    last = "Add(b, a)" if is_read_again else "Neg(b)"
    path.write_text(
        f"opset 18\ngraph relu(x: f32[6], i: i64[3], u: f32[3]) -> (y) {{\n"
        f"    a = Relu(x)\n    b = ScatterElements(a, i, u)\n    y = {last}\n}}\n"
    )
    x, i, u = drawn((6,), "float32", 0), np.array([4, 0, 4]), drawn((3,), "float32", 1)
    relu = np.maximum(x, 0)
    wanted = by_elements([relu, i, u], 0, "none")
    wanted = wanted + relu if is_read_again else -wanted
    for backend in BACKENDS:
        found = popgraph.compile(path, backend=backend)(x=x, i=i, u=u)["y"]
        np.testing.assert_array_equal(found, wanted)


def test_tensor_scatter_gradients_are_slopes() -> None:
    arrays = [drawn((2, 5, 2), "float64", 0), drawn((2, 2, 2), "float64", 1), np.array([3, 0])]
    made = model("TensorScatter", arrays, 24)
    assert check(made, arrays, [run(made, arrays, "reference")])


@pytest.mark.parametrize("reduction", REDUCTIONS[1:])
def test_scatter_elements_gradients_are_those_of_pytorch(reduction: str) -> None:
    """
    Tied extremes share the gradient; in a product with one zero, only the zero has a gradient.
    """
    data, places = np.array([1.0, 2.0, 0.0, 5.0]), np.array([0, 0, 1, 2, 2, 1])
    updates = np.array([1.0, 3.0, 2.0, 0.0, 4.0, 2.0])
    tensors = [torch.tensor(one, requires_grad=True) for one in (data, updates)]
    of_torch = tensors[0].scatter_reduce(0, torch.tensor(places), tensors[1], OF_TORCH[reduction])
    (of_torch * torch.tensor([1.0, 2.0, 3.0, 4.0])).sum().backward()  # type: ignore[no-untyped-call]
    found = gradients([data, places, updates], np.array([1.0, 2.0, 3.0, 4.0]), reduction)
    for mine, tensor in zip(found, tensors, strict=True):
        assert tensor.grad is not None
        np.testing.assert_allclose(mine, tensor.grad.numpy())


def gradients(arrays: Sequence[Array], weights: Array, reduction: str) -> list[Array]:
    made = model("ScatterElements", arrays, reduction=reduction)
    weighted = [
        helper.make_node("Constant", [], ["w"], value=onnx.numpy_helper.from_array(weights)),
        helper.make_node("Mul", ["y", "w"], ["m"]),
        helper.make_node("ReduceSum", ["m"], [MIXTURE], keepdims=0),
    ]
    made.graph.node.extend(weighted)
    made.graph.output[0].name = MIXTURE
    module, compilation = forward(made, ["data", "updates"])
    Autodiff(MIXTURE, wrt=("data", "updates")).run(compilation, module)
    given = dict(zip(("data", "indices", "updates"), arrays, strict=True))
    found, _ = evaluate(module, given, compilation.weights)
    return [found[GRADIENT + name] for name in ("data", "updates")]
