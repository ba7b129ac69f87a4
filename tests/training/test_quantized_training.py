"""Tests training with the rounding of int8 in place, and the quantized models that it saves."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper
from typer.testing import CliRunner

import popgraph
from popgraph.cli import app
from popgraph.compiler import load, lower
from popgraph.dialects.graphcore import ConvOp, DotConvOp
from popgraph.dialects.onnx import model_of
from popgraph.dialects.onnx.weight_names import weights_by_name
from popgraph.passes.onnx.infer_shapes import specialise
from popgraph.passes.options import Options
from popgraph.quantization.training import quantized_model
from popgraph.support.arrays import Array
from popgraph.support.errors import ModelError, PopgraphError, RunError
from popgraph.support.machine import PRESETS
from popgraph.training.trainer import Trainer
from tests.training.test_checkpoints import StopAt

LINEAR = """
graph net(x: f32[N, 5]) -> (y: f32[N, 3]) {
    weight w: f32[5, 4] = glorot_uniform(seed=1)
    weight v: f32[4, 3] = glorot_uniform(seed=2)
    h = x @ w
    y = h @ v
}
"""
RESIDUAL = """
graph net(x: f32[N, 3, 6, 6]) -> (y: f32[N, 4]) {
    weight w: f32[8, 3, 3, 3] = glorot_uniform(seed=1)
    weight g: f32[8] = normal(0.0, 1.0, seed=5)
    weight b: f32[8] = zeros
    weight m: f32[8] = zeros
    weight s: f32[8] = ones
    weight v: f32[8, 8, 3, 3] = glorot_uniform(seed=2)
    weight c: f32[8] = zeros
    weight u: f32[8, 4] = glorot_uniform(seed=3)
    a = Relu(BatchNormalization(Conv(x, w, pads=[1, 1, 1, 1]), g, b, m, s))
    p = MaxPool(a, kernel_shape=[2, 2], strides=[2, 2])
    q = p + Relu(Conv(p, v, c, pads=[1, 1, 1, 1]))
    y = Dropout(Flatten(GlobalAveragePool(q)), 0.1) @ u
}
"""
RNG = np.random.default_rng(11)
IMAGES = RNG.normal(size=(128, 3, 6, 6)).astype(np.float32)
LABELS = (IMAGES.mean((2, 3))[:, :2] > 0) @ np.array([1, 2])
ROWS = RNG.normal(size=(24, 5)).astype(np.float32)
GOALS = RNG.normal(size=(24, 3)).astype(np.float32)


def trained(text: str = LINEAR, **options: Any) -> Trainer:
    """Trains in the reference backend, which compiles nothing."""
    data = (ROWS, GOALS) if text == LINEAR else (IMAGES, LABELS)
    loss = "mse" if text == LINEAR else "cross_entropy"
    settings = {"backend": "reference", "batch": 8, "epochs": 1, "quantize": "int8", **options}
    return popgraph.train(text, data, loss, settings.pop("optimizer", "SGD(0.05)"), **settings)


@pytest.fixture(scope="module")
def residual(tmp_path_factory: pytest.TempPathFactory) -> tuple[Trainer, Path]:
    """A convolutional network trained in C, and the file of the quantized model."""
    path = tmp_path_factory.mktemp("quantized") / "trained.onnx"
    settings = {"backend": "c", "batch": 32, "epochs": 10, "metrics": "accuracy"}
    made = trained(RESIDUAL, optimizer="Adam(0.02)", **settings)
    made.save(path)
    return made, path


def in_onnxruntime(path: Path, x: Array) -> Array:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"x": x})
    return np.asarray(found)


class Rounding:
    """The formulas of one activation: its moving range, its rounding, and the gradient of both."""

    def __init__(self) -> None:
        self.ends = np.zeros(2, np.float32)

    def forward(self, x: Array) -> Array:
        seen = np.array([min(x.min(), 0), max(x.max(), 0)], np.float32)
        unknown = self.ends[0] == self.ends[1]
        mean = np.float32(0.9) * self.ends + np.float32(1 - 0.9) * seen
        self.ends = seen if unknown else mean
        scale = (self.ends[1] - self.ends[0]) / np.float32(255)
        zero = np.clip(np.rint(-self.ends[0] / scale), 0, 255)
        whole = np.rint(x / scale) + zero
        self.inside = (whole >= 0) & (whole <= 255)
        rounded: Array = (np.clip(whole, 0, 255) - zero) * scale
        return rounded

    def backward(self, dy: Array) -> Array:
        return np.where(self.inside, dy, 0)


def rounded_weight(w: Array) -> Array:
    """A scale per column, for integers from -127 to 127."""
    scale = np.abs(w).max(0) / np.float32(127)
    rounded: Array = np.rint(w / scale) * scale
    return rounded


def test_losses_and_gradients_follow_the_formulas() -> None:
    """Ranges are moving averages, so later batches are clipped: no gradient passes there."""
    trainer, rate = trained(shuffle=False, optimizer="SGD(0.05)"), np.float32(0.05)
    module, compilation = load(LINEAR)
    w, v = (one.array(compilation.weights) for one in weights_of(module))
    of_x, of_h, losses, clipped = Rounding(), Rounding(), [], 0
    for start in range(0, 24, 8):
        x, goals = of_x.forward(ROWS[start : start + 8]), GOALS[start : start + 8]
        rounded_w, rounded_v = rounded_weight(w), rounded_weight(v)
        h = of_h.forward(x @ rounded_w)
        error = h @ rounded_v - goals
        losses.append((error**2).mean())
        dy = (2 / error.size) * error
        dh = of_h.backward(dy @ rounded_v.T)
        clipped += int((~of_h.inside).sum())
        w, v = w - rate * (x.T @ dh), v - rate * (h.T @ dy)
    assert clipped
    found = [row["loss"] for row in trainer.history.steps]
    np.testing.assert_allclose(found, losses, rtol=1e-5)
    weights = trainer.weights()
    np.testing.assert_allclose(weights["w"], w, rtol=0, atol=1e-6)
    np.testing.assert_allclose(weights["v"], v, rtol=0, atol=1e-6)
    np.testing.assert_allclose(weights["x_range"], of_x.ends, rtol=1e-6)
    np.testing.assert_allclose(weights["h_range"], of_h.ends, rtol=1e-5)


def weights_of(module: Any) -> list[Any]:
    return list(weights_by_name(model_of(module).graph).values())


def test_it_learns_like_floats(residual: tuple[Trainer, Path]) -> None:
    found = residual[0].evaluate((IMAGES, LABELS))
    assert found["accuracy"] > 0.8
    assert {one.name for one in residual[0].selection.weights if "ranges" in one.reason} == {
        name for name in residual[0].weights() if name.endswith("range")
    }


def test_the_saved_model_is_quantized_and_equal_everywhere(
    residual: tuple[Trainer, Path],
) -> None:
    trainer, path = residual
    expected = in_onnxruntime(path, IMAGES)
    ours = popgraph.compile(path)({"x": IMAGES})["y"]
    step = np.abs(expected).max() / 100
    np.testing.assert_allclose(ours, expected, rtol=0, atol=step)
    predicted = trainer.predict(IMAGES)
    assert isinstance(predicted, np.ndarray)
    np.testing.assert_allclose(predicted, expected, rtol=0, atol=step)
    exact = np.isclose(ours, expected, rtol=0, atol=1e-5)
    assert exact.mean() > 0.9, "more than single numbers half-way between two steps differ"
    nodes = Counter(node.op_type for node in onnx.load(path).graph.node)
    assert nodes["Conv"] == 2
    assert nodes["DequantizeLinear"] == nodes["QuantizeLinear"] + 5  # three weights, two biases
    assert not nodes["BatchNormalization"]
    module, compilation = load(path)
    step = module.clone()
    specialise(step, {"x": IMAGES.shape}, compilation.weights, {})
    lower(step, compilation, Options(machine=PRESETS["zen4"]), level="graphcore")
    found = Counter(type(op) for op in step.walk())
    assert found[DotConvOp] == 2, "convolutions use dot products of bytes"
    assert not found[ConvOp]


def test_folding_a_normalization_keeps_the_integers_up_to_their_sign(
    residual: tuple[Trainer, Path],
) -> None:
    """With a scale per channel, w * f has the scale s * |f|."""
    trainer, path = residual
    held = {one.name: numpy_helper.to_array(one) for one in onnx.load(path).graph.initializer}
    (found,) = (array for array in held.values() if array.shape == (8, 3, 3, 3))
    weights = trainer.weights()
    scale = np.abs(weights["w"]).max((1, 2, 3), keepdims=True) / np.float32(127)
    wanted = np.rint(weights["w"] / scale) * np.sign(weights["g"]).reshape(8, 1, 1, 1)
    assert found.dtype == np.int8
    assert (weights["g"] < 0).any()
    assert np.abs(found - wanted).max() <= 1  # A number half-way between two steps.
    assert (found == wanted).mean() > 0.99


def test_values_that_concatenation_joins_share_a_range(tmp_path: Path) -> None:
    text = """
    graph net(x: f32[N, 3, 6, 6]) -> (y: f32[N, 4]) {
        weight w: f32[4, 3, 1, 1] = glorot_uniform(seed=1)
        weight v: f32[4, 7, 1, 1] = glorot_uniform(seed=2)
        weight u: f32[11, 4] = glorot_uniform(seed=3)
        a = Concat(x, Conv(x, w), axis=1)
        b = Concat(a, Conv(a, v), axis=1)
        y = Flatten(GlobalAveragePool(b)) @ u
    }
    """
    made = trained(text)
    ranges = {name: one for name, one in made.weights().items() if name.endswith("range")}
    assert len(ranges) == 2  # Of the concatenated values, and of their mean.
    made.save(tmp_path / "trained.onnx")
    graph = onnx.load(tmp_path / "trained.onnx").graph
    held = {one.name: numpy_helper.to_array(one) for one in graph.initializer}
    scales = [node.input[1] for node in graph.node if node.op_type == "QuantizeLinear"]
    assert len(scales) > len(ranges)
    assert len({float(held[name]) for name in scales}) == len(ranges)


def test_ranges_are_no_weights_to_select(tmp_path: Path) -> None:
    made = trained(train_only="v", freeze="*_range")
    made.save(tmp_path / "trained.onnx")
    assert made.selection.trained == ("v",)
    assert np.abs(made.weights()["x_range"]).min() > 0


def test_training_resumes_with_the_same_bits(tmp_path: Path) -> None:
    path, options = tmp_path / "run.ckpt", {"optimizer": "Adam(0.01)"}
    whole = trained(**options)
    with pytest.raises(KeyboardInterrupt):
        trained(checkpoint=path, callbacks=[StopAt(2)], **options)
    resumed = trained(checkpoint=path, resume=True, **options)
    for name, array in whole.weights().items():
        np.testing.assert_array_equal(resumed.weights()[name], array)


def test_before_training_each_batch_has_its_own_range() -> None:
    trainer = Trainer(LINEAR, "mse", "SGD(0.1)", quantize="int8", backend="reference")
    plain = Trainer(LINEAR, "mse", "SGD(0.1)", backend="reference")
    found, wanted = trainer.predict(ROWS), plain.predict(ROWS)
    assert isinstance(found, np.ndarray)
    assert isinstance(wanted, np.ndarray)
    assert 0 < np.abs(found - wanted).max() < np.abs(wanted).max() / 50
    with pytest.raises(PopgraphError, match="unknown before data are given"):
        trainer.save("never.onnx")
    trainer.prepare((ROWS, GOALS))
    with pytest.raises(RunError, match="no step has run"):
        trainer.save("never.onnx")


def test_the_command_trains_and_saves(tmp_path: Path) -> None:
    section = "train (goals: f32[N, 3]) {\n    loss = ReduceMean((y - goals) ** 2)\n"
    section += '    optimizer = SGD(0.05)\n    quantize = "int8"\n}\n'
    np.save(tmp_path / "x.npy", ROWS)
    np.save(tmp_path / "goals.npy", GOALS)
    (tmp_path / "net.pgraph").write_text(LINEAR)
    (tmp_path / "section.pgraph").write_text(LINEAR + section)
    data = [f"{name}={tmp_path}/{name}.npy" for name in ("x", "goals")]
    shared = [*data, "--batch", "8", "--backend", "reference"]
    given = ["--loss", "mse", "--optimizer", "SGD(0.05)", "--quantize", "int8"]
    for name, options in (("net", given), ("section", [])):
        output = tmp_path / f"{name}.onnx"
        command = ["train", f"{tmp_path}/{name}.pgraph", *shared, *options, "-o", str(output)]
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 0, result.output
        assert "ranges of quantized values" in result.output
    found, wanted = (in_onnxruntime(tmp_path / f"{n}.onnx", ROWS) for n in ("net", "section"))
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"quantize": "int4"}, "quantize must be one of none, int8, not 'int4'"),
        ({"quantize": "none", "precision": "int8"}, "precision must be one of f32, bf16"),
        ({"stages": 2, "accumulate": 2}, "a pipeline cannot share the scales"),
    ],
)
def test_wrong_options(options: dict[str, Any], text: str) -> None:
    with pytest.raises(RunError, match=text):
        trained(**options)


def test_models_that_cannot_be_quantized(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no layer of the model can be quantized"):
        Trainer(
            "graph net(x: f32[N, 4]) -> (y: f32[N, 4]) {\n    weight w: f32[4] = ones\n"
            "    y = x * w\n}",
            "mse",
            "SGD(0.1)",
            quantize="int8",
        )
    trained().save(tmp_path / "trained.onnx")
    with pytest.raises(ModelError, match="already quantized"):
        Trainer(tmp_path / "trained.onnx", "mse", "SGD(0.1)", quantize="int8")
    module, compilation = load(LINEAR)
    ranges = {"x_range": np.array([-np.inf, 1]), "h_range": np.ones(2)}
    with pytest.raises(RunError, match="the range of 'x' is") as caught:
        quantized_model(module, compilation.weights, ranges)
    assert "diverged" in caught.value.hint
