"""Tests mixed precision: products of bf16 with f32 sums, weights and updates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import popgraph
from popgraph.compiler import load, lower
from popgraph.dialects.graphcore import (
    ConvInputGradOp,
    ConvOp,
    ConvWeightGradOp,
    DotConvInputGradOp,
    DotConvOp,
    DotConvWeightGradOp,
    DotMatMulOp,
    MatMulOp,
)
from popgraph.dialects.onnx import model_of
from popgraph.dialects.onnx.weight_names import weights_by_name
from popgraph.passes.optimizer_spec import SGD
from popgraph.passes.options import Options, Training
from popgraph.support.arrays import Array
from popgraph.support.errors import RunError
from popgraph.support.machine import PRESETS
from popgraph.support.warnings import PopgraphWarning
from popgraph.training.trainer import Trainer
from tests.training.test_checkpoints import StopAt

NET = """
graph net(x: f32[N, 24]) -> (y: f32[N, 8]) {
    weight w: f32[24, 16] = glorot_uniform(seed=1)
    weight b: f32[16] = zeros
    weight v: f32[16, 8] = glorot_uniform(seed=2)
    y = Tanh(x @ w + b) @ v
}
"""
CONVOLUTIONS = """
graph net(x: f32[N, 8, 7]) -> (y: f32[N, 4]) {
    weight w: f32[8, 8, 1] = glorot_uniform(seed=1)
    weight v: f32[16, 4, 3] = glorot_uniform(seed=2)
    weight u: f32[16, 4] = glorot_uniform(seed=3)
    a = Conv(Conv(x, w), v, pads=[1, 2], strides=[2], group=2)
    y = Flatten(GlobalAveragePool(Relu(a))) @ u
}
"""
RNG = np.random.default_rng(3)
X = RNG.normal(size=(64, 24)).astype(np.float32)
DATA = {"x": X, "labels": X[:, :8].argmax(1)}
IMAGES = {
    "x": RNG.normal(size=(7, 8, 7)).astype(np.float32),
    "labels": RNG.integers(0, 4, 7),
}


@pytest.fixture(autouse=True)
def with_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decisions for a machine with the instruction; elsewhere, plain C computes the same."""
    monkeypatch.setenv("POPGRAPH_MACHINE", "zen4")


def trained(text: str = NET, data: Any = None, **options: Any) -> Trainer:
    """Most tests share a program."""
    optimizer = {"optimizer": "Adam(0.01)", "loss_scale": "auto"}
    settings = {**optimizer, "epochs": 5, "batch": 16, "precision": "bf16", **options}
    return popgraph.train(text, DATA if data is None else data, "cross_entropy", **settings)


def losses(trainer: Trainer) -> list[float]:
    return [float(row["loss"]) for row in trainer.history.steps]


def half(array: Array) -> Array:
    """The nearest bf16 numbers, as f32."""
    rounded: Array = array.astype(ml_dtypes.bfloat16).astype(np.float32)
    return rounded


def test_training_converges_like_f32() -> None:
    halves, singles = losses(trained()), losses(trained(precision="f32", backend="reference"))
    assert len(halves) == 20
    assert halves != singles
    assert halves[-1] < 0.8 * halves[0]
    np.testing.assert_allclose(halves, singles, rtol=1e-2)


def test_a_step_rounds_the_factors_and_nothing_else() -> None:
    """y = r(x) r(w); dw = r(x)^T r(dy), in f32, where r rounds to bf16."""
    text = "graph net(x: f32[16, 24]) -> (y: f32[16, 8]) {\n    weight w: f32[24, 8] = "
    text += "glorot_uniform(seed=1)\n    y = x @ w\n}"
    goals = RNG.normal(size=(16, 8)).astype(np.float32)
    module, compilation = load(text)
    w = weights_by_name(model_of(module).graph)["w"].array(compilation.weights)
    rate = 0.5
    made = popgraph.train(
        text, {"x": X[:16], "goals": goals}, "mse", f"SGD({rate})", steps=1, precision="bf16"
    )
    error = half(X[:16]) @ half(w) - goals
    slope = (2 / error.size) * error
    wanted = w - rate * (half(X[:16]).T @ half(slope))
    np.testing.assert_allclose(made.history.steps[0]["loss"], (error**2).mean(), rtol=1e-5)
    np.testing.assert_allclose(made.weights()["w"], wanted, rtol=0, atol=1e-6)
    assert np.abs(wanted - (w - rate * (X[:16].T @ slope))).max() > 1e-5


def test_gradients_of_convolutions_equal_the_reference() -> None:
    """With strides, groups and an odd number of samples, whose pairs are padded."""
    found, wanted = (
        losses(trained(CONVOLUTIONS, IMAGES, backend=backend, batch=7, epochs=3))
        for backend in ("c", "reference")
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def products_of(text: str, **sizes: Any) -> list[type]:
    """The products of a training step, as a machine with the instruction computes them."""
    module, compilation = load(text)
    step = Options(
        training=Training("y", SGD()), precision="bf16", machine=PRESETS["zen4"], **sizes
    )
    lower(module, compilation, step, level="graphcore")
    found = (DotMatMulOp, DotConvOp, DotConvInputGradOp, DotConvWeightGradOp)
    plain = (MatMulOp, ConvOp, ConvInputGradOp, ConvWeightGradOp)
    return [type(op) for op in module.walk() if isinstance(op, (*found, *plain))]


def test_convolutions_that_winograd_computes_with_less_work_stay_f32() -> None:
    text = """
    graph net(x: f32[4, 8, 8, 8]) -> (y: f32[]) {
        weight a: f32[16, 8, 1, 1] = glorot_uniform(seed=1)
        weight w: f32[16, 16, 3, 3] = glorot_uniform(seed=2)
        y = ReduceSum(Conv(Conv(x, a), w), keepdims=0)
    }
    """
    ones, gradients = [DotConvOp, DotConvWeightGradOp], [ConvInputGradOp, DotConvWeightGradOp]
    key = str
    assert sorted(products_of(text), key=key) == sorted([*ones, ConvOp, *gradients], key=key)
    without = [*ones, DotConvOp, DotConvInputGradOp, DotConvWeightGradOp]
    assert sorted(products_of(text, winograd=False), key=key) == sorted(without, key=key)


def test_weights_and_states_stay_f32(tmp_path: Path) -> None:
    made = trained()
    made.save(tmp_path / "trained.onnx")
    for one in onnx.load(tmp_path / "trained.onnx").graph.initializer:
        array = numpy_helper.to_array(one)
        assert array.dtype == np.float32
        assert (array.view(np.uint32) & 0xFFFF).any(), f"{one.name} is rounded to bf16"
        np.testing.assert_array_equal(array, made.weights()[one.name])


def test_training_resumes_with_the_same_bits(tmp_path: Path) -> None:
    path, whole = tmp_path / "run.ckpt", trained()
    with pytest.raises(KeyboardInterrupt):
        trained(checkpoint=path, callbacks=[StopAt(7)])
    resumed = trained(checkpoint=path, resume=True)
    assert losses(resumed) == losses(whole)
    for name, array in whole.weights().items():
        np.testing.assert_array_equal(resumed.weights()[name], array)


def test_machines_without_dot_products_of_bf16_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POPGRAPH_MACHINE", "zen3")
    with pytest.raises(RunError, match="zen3 has no dot products of bf16") as caught:
        trained()
    assert "popgraph doctor" in caught.value.hint
    reference = trained(backend="reference", steps=1, epochs=None)
    single = trained(precision="f32", backend="reference", steps=1, epochs=None)
    assert losses(reference) != losses(single)


@pytest.mark.parametrize("given", ["f16", "bfloat", ""])
def test_other_precisions_are_errors(given: str) -> None:
    with pytest.raises(RunError, match="precision must be one of f32, bf16") as caught:
        trained(precision=given)
    assert "weights stay f32" in caught.value.hint


def test_a_net_without_products_of_f32_warns() -> None:
    wide = {"x": X.astype(np.float64), "labels": DATA["labels"]}
    with pytest.warns(PopgraphWarning, match="no matmul or convolution is computed in bf16"):
        trained(NET.replace("f32", "f64"), wide, backend="reference", steps=1, epochs=None)
