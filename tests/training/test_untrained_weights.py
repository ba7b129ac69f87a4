"""Tests the warning for trained weights that no gradient reaches."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

import popgraph
from popgraph.passes.optimizer_spec import SGD, Scalar
from popgraph.passes.options import Options, Training
from popgraph.support.warnings import UntrainedWeightsWarning

WEIGHTS = (
    "float[2] w = {1.3, 2.4}, float[2] v = {1, 2}, float scale = {0.1}, uint8 zero = {0}, "
    "float[2] zeros = {0, 0}, bool[2] mask = {0, 1}, bool yes = {1}, int64 turns = {2}"
)
QUANTIZED = "i = QuantizeLinear(w, scale, zero)  r = DequantizeLinear(i, scale, zero)"
BODIES = {
    "QuantizeLinear": QUANTIZED,
    "Round": "r = Round(w)",
    "Floor": "h = Floor(w)  r = Exp(h)",
    "Ceil": "h = Neg(w)  r = Ceil(h)",
    "Cast": "i = Cast<to = 6>(w)  r = Cast<to = 1>(i)",
    "Greater": "b = Greater(w, x)  r = Where(b, x, v)",
    "zeros": "n = Constant<value_floats = [0., 0.]>()  r = Mul(w, n)",
    "If": "r = If(yes) <then_branch = t () => (a) { a = Round(w) }, "
    "else_branch = e () => (c) { c = Floor(w) }>",
    "aside": "aside = Neg(w)  r = Exp(x)",
}
STRAIGHT = {
    "through": "r = Neg(w)",
    "one way": "h = Round(w)  r = Add(h, w)",
    "If": "b = ReduceMax<keepdims = 0>(x)  o = Cast<to = 9>(b)  r = If(o) <then_branch = t () => "
    "(a) { a = Round(w) }, else_branch = e () => (c) { c = Neg(w) }>",
    "Loop": "r = Loop(turns, , w) <body = l (int64 at, bool go, float[2] h) => (more, n) "
    "{ more = Identity(go)  n = Mul(h, h) }>",
}


def model(body: str, output: str = "") -> onnx.ModelProto:
    return parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> '
        f"g (float[2] x) => (float loss{output}) <{WEIGHTS}> "
        f"{{ {body}  y = Mul(r, x)  z = Mul(y, v)  loss = ReduceSum<keepdims = 0>(z) }}"
    )


def run(proto: object, backend: str = "reference", through: bool = False) -> list[str]:
    """The warnings of compiling and running a training step."""
    training = Training("loss", SGD(learning_rate=Scalar(0.1)))
    options = Options(training=training, straight_through=through)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        popgraph.compile(proto, backend=backend, options=options)({"x": np.ones(2, np.float32)})
    return [str(one.message) for one in caught if one.category is UntrainedWeightsWarning]


@pytest.mark.parametrize("way", BODIES)
def test_weights_before_flat_operators_are_named(way: str) -> None:
    (message,) = run(model(BODIES[way], ", float[2] aside" if way == "aside" else ""))
    assert "of the loss 'loss' reaches 1 weight: 'w', which is not trained" in message
    assert "try: freeze" in message
    assert "straight_through lets gradients pass QuantizeLinear" in message


@pytest.mark.parametrize("way", STRAIGHT)
def test_weights_with_gradients_are_not_named(way: str) -> None:
    assert run(model(STRAIGHT[way])) == []


def test_the_straight_through_option_avoids_the_warning() -> None:
    assert run(model(QUANTIZED), through=True) == []


def test_cached_programs_warn(tmp_path: Path) -> None:
    """A program from the cache warns like a new one."""
    path = tmp_path / "m.onnx"
    onnx.save(model(BODIES["Round"]), path)
    for _ in range(3):
        assert len(run(path, "c")) == 1
        assert len(run(model(BODIES["Round"]), "c")) == 1


def test_the_warning_names_the_operator_and_a_few_weights() -> None:
    names = [f"w{number}" for number in range(7)]
    text = " ".join(f"q{name} = Round({name})" for name in names)
    total = f"r = Sum({', '.join('q' + name for name in names)})"
    held = ", ".join(f"float[2] {name} = {{1, 2}}" for name in names)
    proto = model(f"{text} {total}")
    extra = parser.parse_graph(
        f"e () => (float u) <{held}> {{ u = Constant<value = float {{1}}>() }}"
    )
    proto.graph.initializer.extend(extra.initializer)
    (message,) = run(proto)
    assert "7 weights: 'w0', 'w1', 'w2', 'w3', 'w4', ..., which are not trained" in message
    assert "at node 'qw0', node 'qw1'" in message


def session(**more: object) -> popgraph.TrainingSession:
    flow = popgraph.DataFlow(1, ["loss"])
    data = model(BODIES["Round"]).SerializeToString()
    return popgraph.TrainingSession(data, flow, "loss", popgraph.ConstSGD(0.1), **more)  # type: ignore[arg-type]


def test_sessions_warn_unless_untrained_weights_are_frozen() -> None:
    with pytest.warns(UntrainedWeightsWarning, match="1 weight: 'w'"):
        session()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session(freeze=["w"])


def test_the_command_warns_of_untrained_weights(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((4, 2), np.float32))
    text = "graph g(x: f32[N, 2]) -> (y: f32[N, 2]) {\n weight w: f32[2] = ones\n"
    text += " weight v: f32[2] = ones\n y = x * Round(w) * v\n}\n"
    text += "train () {\n loss = ReduceMean(y, keepdims=0)\n optimizer = SGD(0.1)\n}\n"
    (tmp_path / "m.pgraph").write_text(text)
    command = [sys.executable, "-m", "popgraph", "train", "m.pgraph", "x=x.npy", "--backend"]
    done = subprocess.run(
        [*command, "reference"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    (line,) = (one for one in done.stderr.splitlines() if "reaches 1 weight: 'w'" in one)
    assert line.startswith("warning: no gradient of the loss")  # without a source line of PopGraph
