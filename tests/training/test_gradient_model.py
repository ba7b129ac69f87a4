"""Tests `popgraph.onnx_gradient`: gradients and training steps that other runtimes compute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import popgraph
from popgraph.cli import app
from popgraph.support.arrays import Array
from popgraph.support.errors import ModelError

runtime = pytest.importorskip("onnxruntime")
runtime.set_default_logger_severity(4)  # It warns of every weight that an input can override.

NET = """
graph net(x: f32[N, 4]) -> (y: f32[N, 3]) {
    weight w: f32[4, 3] = glorot_uniform(seed=1)
    weight b: f32[3] = zeros
    y = x @ w + b
}
"""
DEEP = """
opset 21

graph net(x: f32[N, 1, 6, 6]) -> (y: f32[N, 3]) {
    weight k: f32[4, 1, 3, 3] = he_normal(seed=1)
    weight w: f32[16, 3] = glorot_uniform(seed=2)
    c = MaxPool(Relu(Conv(x, k)), kernel_shape=[2, 2], strides=[2, 2])
    d = Dropout(Flatten(c), 0.5, true)
    y = d @ w
}
"""
LABELS = {"labels": "i64[N]"}


def run(model: onnx.ModelProto, inputs: dict[str, Array]) -> dict[str, Array]:
    onnx.checker.check_model(model, full_check=True)
    session = runtime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    names = [one.name for one in session.get_outputs()]
    return dict(zip(names, map(np.asarray, session.run(None, inputs)), strict=True))


def data(*shape: int) -> dict[str, Array]:
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    return {"x": x, "labels": np.arange(shape[0]) % 3}


def by_hand(x: Array, labels: Array, w: Array, b: Array) -> tuple[Array, Array, Array]:
    """The gradients of the mean cross entropy of x w + b, by w, b and x."""
    scores = np.exp(x @ w + b)
    slope = scores / scores.sum(1, keepdims=True)
    slope[np.arange(len(x)), labels] -= 1
    slope /= len(x)
    return x.T @ slope, slope.sum(0), slope @ w.T


def test_gradients_are_those_of_the_formula() -> None:
    model = popgraph.onnx_gradient(
        NET, "cross_entropy", inputs=LABELS, sizes={"N": 6}, wrt=["w", "b", "x"]
    )
    given, w, b = data(6, 4), np.ones((4, 3), np.float32), np.ones(3, np.float32)
    found = run(model, {**given, "w": w, "b": b})
    assert list(found) == ["y", "loss", "Gradient___w", "Gradient___b", "Gradient___x"]
    for name, wanted in zip("wbx", by_hand(given["x"], given["labels"], w, b), strict=True):
        np.testing.assert_allclose(found[f"Gradient___{name}"], wanted, 1e-5, 1e-6)


def test_weights_are_defaults_of_inputs() -> None:
    model = popgraph.onnx_gradient(NET, "cross_entropy", inputs=LABELS, sizes={"N": 6})
    assert [one.name for one in model.graph.input] == ["x", "labels", "w", "b"]
    assert {"w", "b"} <= {one.name for one in model.graph.initializer}
    assert run(model, data(6, 4))["loss"] > 0


def test_products_with_vectors_are_expressions() -> None:
    model = popgraph.onnx_gradient(
        NET, "ReduceSum(y * dy)", inputs={"dy": "f32[N, 3]"}, sizes={"N": 2}, wrt="x"
    )
    assert [one.name for one in model.graph.input] == ["x", "dy"]
    dy, w = np.eye(2, 3, dtype=np.float32), None
    found = run(model, {"x": data(2, 4)["x"], "dy": dy})
    (held,) = (one for one in model.graph.initializer if one.name == "w")
    w = onnx.numpy_helper.to_array(held)
    np.testing.assert_allclose(found["Gradient___x"], dy @ w.T, 1e-6)


@pytest.mark.parametrize("optimizer", ["SGD(0.1, momentum=0.9)", "Adam(0.01)", "Lamb(0.01)"])
@pytest.mark.parametrize(("net", "shape"), [(NET, (6, 4)), (DEEP, (6, 1, 6, 6))])
def test_steps_are_those_of_the_trainer(net: str, shape: tuple[int, ...], optimizer: str) -> None:
    """Dropout draws the same numbers, too."""
    given, steps = data(*shape), 4
    model = popgraph.onnx_gradient(
        net, "cross_entropy", optimizer=optimizer, inputs=LABELS, sizes={"N": 6}
    )
    state, losses = dict[str, Array](), list[float]()
    for _ in range(steps):
        found = run(model, {**given, **state})
        losses.append(float(found["loss"]))
        state = {
            name.removeprefix("UpdatedVar___"): array
            for name, array in found.items()
            if name.startswith("UpdatedVar___")
        }
    trainer = popgraph.Trainer(net, "cross_entropy", optimizer, backend="reference")
    history = trainer.fit(given, epochs=steps, batch=6, shuffle=False)
    np.testing.assert_allclose(losses, history["loss"], 1e-5)


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "name": ({"wrt": "v"}, "the model has no value 'v' to differentiate by"),
    "type": ({"inputs": {"labels": "int[N]"}}, r"'int\[N\]' is not a type"),
    "size": ({"inputs": {"labels": "i64[M]"}}, "the size of 'M' is unknown"),
    "labels": ({"inputs": {}}, "with labels, which is not an input of the model"),
    "nothing": ({"freeze": "*"}, "the model has no weight to differentiate by"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_explained(mistake: str) -> None:
    arguments, message = MISTAKES[mistake]
    given = {"inputs": LABELS, "sizes": {"N": 2}, **arguments}
    with pytest.raises(ModelError, match=message):
        popgraph.onnx_gradient(NET, "cross_entropy", **given)


def test_the_command(tmp_path: Path) -> None:
    net, made = tmp_path / "net.pgraph", tmp_path / "grad.onnx"
    net.write_text(NET)
    arguments = ["gradient", str(net), "--loss", "cross_entropy", "--dim", "N=2", "-o", str(made)]
    result = CliRunner().invoke(app, [*arguments, "--input", "labels=i64[N]"])
    assert result.exit_code == 0, result.output
    assert "outputs: y, loss, Gradient___w, Gradient___b" in result.output
    assert run(onnx.load(made), data(2, 4))["loss"] > 0
    listed = CliRunner().invoke(app, ["gradient", "--list"]).output
    assert "conv_input_grad" in listed and "ConvTranspose" in listed
