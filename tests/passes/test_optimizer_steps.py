"""Tests ONNX's Momentum, Adagrad and Adam against the formulas of their schemas, and gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

import popgraph
from popgraph.backends.reference import evaluate
from popgraph.passes.graphcore.training.autodiff import Autodiff
from popgraph.passes.options import GRADIENT
from popgraph.support.arrays import Array
from tests.passes.test_onnx_gradients import MIXTURE, check, forward, with_loss

BACKENDS = ("reference", "c")
PREVIEW = "ai.onnx.preview.training"


@dataclass(frozen=True)
class Optimizer:
    """An operator, its number of states per tensor, and its step in f64."""

    name: str
    states: int
    step: Callable[..., list[Array]]
    attributes: dict[str, Any] = field(default_factory=dict)


def single(attributes: dict[str, Any]) -> dict[str, Any]:
    """Rounds attributes to f32, as ONNX stores them."""
    return {
        name: float(np.float32(value)) if isinstance(value, float) else value
        for name, value in attributes.items()
    }


def momentum(
    r: Array, t: int, x: Array, g: Array, v: Array, *,
    alpha: float, beta: float, norm_coefficient: float, mode: str,
) -> list[Array]:  # fmt: skip
    g = norm_coefficient * x + g
    v = alpha * v + (beta if t > 0 else 1) * g
    return [x - r * (g + alpha * v if mode == "nesterov" else v), v]


def adagrad(
    r: Array, t: int, x: Array, g: Array, h: Array, *,
    decay_factor: float = 0, norm_coefficient: float = 0, epsilon: float = float(np.float32(1e-6)),
) -> list[Array]:  # fmt: skip
    g = norm_coefficient * x + g
    h = h + g * g
    return [x - r / (1 + t * decay_factor) * g / (np.sqrt(h) + epsilon), h]


def adam(
    r: Array, t: int, x: Array, g: Array, v: Array, h: Array, *,
    alpha: float = float(np.float32(0.9)), beta: float = float(np.float32(0.999)),
    norm_coefficient: float = 0, norm_coefficient_post: float = 0,
    epsilon: float = float(np.float32(1e-6)),
) -> list[Array]:  # fmt: skip
    g = norm_coefficient * x + g
    v = alpha * v + (1 - alpha) * g
    h = beta * h + (1 - beta) * g * g
    rate = r * np.sqrt(1 - beta**t) / (1 - alpha**t) if t > 0 else r
    return [(1 - norm_coefficient_post) * (x - rate * v / (np.sqrt(h) + epsilon)), v, h]


MOMENTUM = {"alpha": 0.9, "beta": 0.7, "norm_coefficient": 0.01}
OPTIMIZERS = [
    Optimizer("Momentum", 1, momentum, {**MOMENTUM, "mode": "standard"}),
    Optimizer("Momentum", 1, momentum, {**MOMENTUM, "mode": "nesterov"}),
    Optimizer("Adagrad", 1, adagrad),
    Optimizer("Adagrad", 1, adagrad, {
        "decay_factor": 0.1, "norm_coefficient": 0.02, "epsilon": 1e-3}),
    Optimizer("Adam", 2, adam),
    Optimizer("Adam", 2, adam, {
        "alpha": 0.8, "beta": 0.95, "norm_coefficient": 0.02, "norm_coefficient_post": 0.1,
        "epsilon": 1e-2}),
]  # fmt: skip


def model(made: Optimizer, arrays: Sequence[Array]) -> onnx.ModelProto:
    """A model of the node alone."""
    infos = [
        helper.make_tensor_value_info(
            f"i{at}", helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for at, array in enumerate(arrays)
    ]
    count = (len(arrays) - 2) // (2 + made.states)
    outputs = [f"o{at}" for at in range(count * (1 + made.states))]
    node = helper.make_node(
        made.name, [info.name for info in infos], outputs, domain=PREVIEW, **made.attributes
    )
    results = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph([node], "g", infos, results)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(PREVIEW, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def groups(made: Optimizer, shapes: Sequence[Sequence[int]], dtype: str, seed: int) -> list[Array]:
    """Values, gradients and states of tensors; sums of squares are positive."""
    generator = np.random.default_rng(seed)
    squares = made.name != "Momentum"
    return [
        np.abs(array) if squares and kind == 1 + made.states else array
        for kind in range(2 + made.states)
        for array in (generator.normal(size=shape).astype(dtype) for shape in shapes)
    ]


def expected(made: Optimizer, rate: Array, count: int, tensors: Sequence[Array]) -> list[Array]:
    """All new values, then all new states by kind."""
    groups, each = 2 + made.states, len(tensors) // (2 + made.states)
    new = []
    for at in range(each):
        own = [tensors[at + each * group].astype(np.float64) for group in range(groups)]
        new.append(made.step(rate.reshape(()), count, *own, **single(made.attributes)))
    return [kind for kinds in zip(*new, strict=True) for kind in kinds]


@given(
    st.sampled_from(OPTIMIZERS),
    st.lists(st.lists(st.integers(0, 3), max_size=3), min_size=1, max_size=3),
    st.sampled_from([0, 1, 2, 1000]),
    st.sampled_from(["float32", "float64"]),
    st.sampled_from(["float32", "float64"]),
    st.sampled_from([(), (1,)]),
    st.sampled_from(BACKENDS),
)
def test_optimizer_nodes_are_their_formulas(
    made: Optimizer,
    shapes: list[list[int]],
    count: int,
    rate_type: str,
    dtype: str,
    scalar: tuple[int, ...],
    backend: str,
) -> None:
    rate, steps = np.full(scalar, 0.1, rate_type), np.full(scalar, count)
    tensors = groups(made, shapes, dtype, count)
    given = [rate, steps, *tensors]
    compiled = popgraph.compile(model(made, given), backend=backend)
    found = compiled({f"i{at}": array for at, array in enumerate(given)})
    wanted = expected(made, rate.astype(np.float64), count, tensors)
    assert len(found) == len(wanted)
    margin = 1e-13 if dtype == "float64" else 2e-6
    for at, array in enumerate(wanted):
        assert found[f"o{at}"].dtype == np.dtype(dtype)
        assert found[f"o{at}"].shape == array.shape
        np.testing.assert_allclose(found[f"o{at}"], array, margin, margin)


def test_optimizer_nodes_with_several_element_types() -> None:
    """The schema allows different types; each tensor is computed in its own type."""
    made = OPTIMIZERS[2]
    half, whole = np.array([2.0], np.float32), np.array([3.0])
    given = [np.array(0.1), np.array(0), half, whole, whole, half, half, whole]
    compiled = popgraph.compile(model(made, given), backend="reference")
    found = compiled({f"i{at}": array for at, array in enumerate(given)})
    kinds = [found[f"o{at}"].dtype for at in range(4)]
    assert kinds == [np.float32, np.float64, np.float32, np.float64]
    np.testing.assert_allclose(found["o1"], 3 - 0.1 * 2 / np.sqrt(3 + 4), 1e-6)


@pytest.mark.parametrize("count", [0, 3])
@pytest.mark.parametrize("made", OPTIMIZERS)
def test_optimizer_node_gradients_are_slopes(made: Optimizer, count: int) -> None:
    """Also with respect to the learning rate."""
    tensors = groups(made, [(2, 3), (4,)], "float64", 5)
    given = [np.array(0.1), np.array(count), *tensors]
    results = expected(made, given[0], count, tensors)
    assert check(model(made, given), given, results)


@pytest.mark.parametrize("made", OPTIMIZERS[2:])
def test_optimizer_node_gradients_at_zero(made: Optimizer) -> None:
    """A weight with zero gradient and history: the slope of sqrt at 0 must not give NaN."""
    zeros = [np.zeros(2)] * (1 + made.states)
    given = [np.array(0.1), np.array(1), np.zeros(2), *zeros]
    module, compilation = forward(with_loss(model(made, given), zeros), ["i0", "i2", "i3"])
    Autodiff(MIXTURE, wrt=("i0", "i2", "i3")).run(compilation, module)
    arrays = {f"i{at}": array for at, array in enumerate(given)}
    found, _ = evaluate(module, arrays, compilation.weights)
    for name in ("i0", "i2", "i3"):
        assert np.isfinite(found[GRADIENT + name]).all()
