"""Tests `popgraph.onnx_vjp` and `popgraph.onnx_jvp` against finite differences, in onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import popgraph
from popgraph.cli import app
from popgraph.support.arrays import Array
from popgraph.support.errors import DifferentiationError, PopgraphError

runtime = pytest.importorskip("onnxruntime")
runtime.set_default_logger_severity(4)  # It warns of every weight that an input can override.

NET = """
opset 21

graph net(x: f32[N, 1, 6, 6], s: f32[N, 3]) -> (y: f32[N, 3], z: f32[N]) {
    weight k: f32[4, 1, 3, 3] = he_normal(seed=1)
    weight w: f32[16, 3] = glorot_uniform(seed=2)
    c = MaxPool(Relu(Conv(x, k)), kernel_shape=[2, 2], strides=[2, 2])
    y = Softmax(Flatten(c) @ w * s)
    z = ReduceSum(LayerNormalization(y, s[0]), [1], keepdims=0)
}
"""
RECURRENT = """
graph recurrent(x: f32[5, 2, 3]) -> h: f32[2, 4] {
    weight w: f32[1, 12, 3] = glorot_uniform(seed=1)
    weight r: f32[1, 12, 4] = glorot_uniform(seed=2)
    (_, last) = GRU(x, w, r, hidden_size=4)
    h = Squeeze(last, [0])
}
"""


def run(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> dict[str, Array]:
    session = runtime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    wanted = {one.name for one in session.get_inputs()}
    found = session.run(None, {name: one for name, one in feeds.items() if name in wanted})
    return dict(zip(names, found, strict=True))


def drawn(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Array]:
    generator = np.random.default_rng(3)
    return {name: generator.normal(size=shape).astype("f") for name, shape in shapes.items()}


X, S = (2, 1, 6, 6), (2, 3)


def test_forward_mode_equals_finite_differences() -> None:
    """Also for an output that reads only one of the inputs."""
    model = popgraph.onnx_jvp(NET, sizes={"N": 2})
    assert [one.name for one in model.graph.output] == ["y", "z", "Tangent___y", "Tangent___z"]
    feeds = drawn({"x": X, "s": S, "Tangent___x": X, "Tangent___s": S})
    found = run(model, feeds)
    step = 1e-3  # Larger steps cross kinks of Relu and MaxPool.
    ends = [
        run(model, {n: feeds[n] + sign * step * feeds[f"Tangent___{n}"] for n in "xs"} | tangents)
        for sign in (1, -1)
        for tangents in [{n: feeds[n] for n in feeds if n.startswith("Tangent")}]
    ]
    for name in "yz":
        slope = (ends[0][name] - ends[1][name]) / (2 * step)
        np.testing.assert_allclose(found[f"Tangent___{name}"], slope, rtol=0.02, atol=0.01)


@pytest.mark.parametrize(
    ("text", "sizes", "x", "y"),
    [(NET, {"N": 2}, X, "y"), (RECURRENT, {}, (5, 2, 3), "h")],
    ids=["convolution", "recurrence"],
)
def test_both_modes_are_one_jacobian(
    text: str, sizes: Mapping[str, int], x: tuple[int, ...], y: str
) -> None:
    """<u, J v> = <J^T u, v>; also through a loop, whose gradient is a loop."""
    forward = popgraph.onnx_jvp(text, "x", outputs=y, sizes=sizes)
    reverse = popgraph.onnx_vjp(text, "x", outputs=y, sizes=sizes)
    (shape,) = (
        [one.dim_value for one in output.type.tensor_type.shape.dim]
        for output in forward.graph.output
        if output.name == y
    )
    feeds = drawn({"x": x, "s": S, "Tangent___x": x, f"Gradient___{y}": tuple(shape)})
    tangent = run(forward, feeds)[f"Tangent___{y}"]
    gradient = run(reverse, feeds)["Gradient___x"]
    one = np.vdot(feeds[f"Gradient___{y}"], tangent)
    other = np.vdot(gradient, feeds["Tangent___x"])
    assert abs(one) > 1e-3 and one == pytest.approx(other, rel=1e-4)


def test_products_by_weights_have_defaults() -> None:
    model = popgraph.onnx_jvp(NET, ["w", "k"], outputs="y", sizes={"N": 2})
    inputs = [one.name for one in model.graph.input]
    assert {"w", "k", "Tangent___w", "Tangent___k"} <= {*inputs}
    assert not any(name.startswith("Gradient") for name in inputs)
    assert {"w", "k"} <= {one.name for one in model.graph.initializer}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"wrt": "xx", "sizes": {"N": 2}}, "no value 'xx'.*did you mean 'x'"),
        ({"outputs": "yy", "sizes": {"N": 2}}, "no output 'yy'.*did you mean 'y'"),
        ({}, "the shape of input 'x' is not known"),
        ({"sizes": {"M": 2}}, "no symbolic dimension 'M'"),
    ],
)
@pytest.mark.parametrize("product", [popgraph.onnx_jvp, popgraph.onnx_vjp])
def test_wrong_names_are_errors(product: object, given: dict[str, object], message: str) -> None:
    assert callable(product)
    with pytest.raises(PopgraphError, match=f"(?s){message}"):
        product(NET, **given)


def test_outputs_that_do_not_depend_on_an_input() -> None:
    """Their tangents are 0; an input without any output is an error."""
    text = """
    graph net(x: f32[3], s: f32[3]) -> (y: f32[3], z: f32[3], r: f32[3]) {
        y = x * s
        z = Exp(s)
        r = Floor(x)
    }
    """
    feeds = drawn(dict.fromkeys(("x", "s", "Tangent___x"), (3,)))
    found = run(popgraph.onnx_jvp(text, "x"), feeds)
    np.testing.assert_allclose(found["Tangent___y"], feeds["s"] * feeds["Tangent___x"], rtol=1e-6)
    assert not np.any(found["Tangent___z"]) and not np.any(found["Tangent___r"])
    with pytest.raises(DifferentiationError, match="no output depends on 'x'"):
        popgraph.onnx_vjp(text, "x", outputs="z")


def test_tangents_where_gradients_are_zero() -> None:
    """A gradient of 0 hides values that are not finite; its own gradient does not."""
    text = "graph net(x: f32[2, 3]) -> y: f32[2, 3] {\n y = Softmax(x)\n}"
    model = popgraph.onnx_jvp(text)
    assert [one.name for one in model.graph.input] == ["x", "Tangent___x"]
    feeds = drawn(dict.fromkeys(("x", "Tangent___x"), (2, 3)))
    found = run(model, feeds)
    y, tangent = found["y"], feeds["Tangent___x"]
    expected = y * (tangent - (y * tangent).sum(1, keepdims=True))
    np.testing.assert_allclose(found["Tangent___y"], expected, rtol=1e-5, atol=1e-7)


def test_the_command_writes_products(tmp_path: Path) -> None:
    source, target = tmp_path / "net.pgraph", tmp_path / "jvp.onnx"
    source.write_text("graph net(x: f32[N, 3]) -> y: f32[N, 3] {\n y = Softmax(x)\n}")
    runner, given = CliRunner(), ["gradient", str(source), "--dim", "N=2", "-o", str(target)]
    found = runner.invoke(app, [*given, "--product", "jvp", "--wrt", "x"])
    assert found.exit_code == 0, found.output
    assert [one.name for one in onnx.load(target).graph.output] == ["y", "Tangent___y"]
    refused = runner.invoke(app, [*given, "--product", "vjp", "--loss", "mse"])
    assert refused.exit_code == 2 and "--product has no --loss" in refused.output
    refused = runner.invoke(app, [*given, "--of", "y"])
    assert refused.exit_code == 2 and "belongs to --product" in refused.output
