"""Tests `dropout=False`: nodes keep all elements unless their own mode is training."""

from __future__ import annotations

from inspect import signature
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser
from typer.testing import CliRunner

import popgraph
from popgraph.cli import app
from popgraph.cli import train as train_command
from popgraph.passes.optimizer_spec import SGD, Scalar
from popgraph.passes.options import Options, Training
from popgraph.training.trainer import Trainer

COUNT = 1000
DOMAINS = '"ai.graphcore" : 1, "com.microsoft" : 1'
FOLLOWING = {
    "1": "d = Dropout<is_test = 0, ratio = 0.5, consumed_inputs = [0]>(h)",
    "6": "d = Dropout<is_test = 0>(h)",
    "7": "d = Dropout(h)",
    "10": "d, mask = Dropout(h)",
    "12": "d, mask = Dropout(h)",
    "13": "d = Dropout(h, half)",
    "21": "d = Dropout<seed = 7>(h, half)",
    "21 of ai.graphcore": "d = ai.graphcore.ShapedDropout<ratio = 0.5, shape = [1000]>(h)",
    "21 of com.microsoft": "d, mask = com.microsoft.BiasDropout(h, none)",
}
"""Dropout nodes without a mode of their own, by opset version."""


def model(opset: str, node: str) -> onnx.ModelProto:
    version = opset.partition(" ")[0]
    old = "axes = [0], keepdims = 0"
    mean = f"ReduceMean<{old}>" if int(version) < 18 else "ReduceMean<keepdims = 0>"
    return parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : {version}, {DOMAINS}]> '
        f"g (float[{COUNT}] x) => (float[{COUNT}] y, float loss) "
        f"<float[1] scale = {{1}}, float half = {{0.5}}, float[1] none = {{0}}, bool on = {{1}}> "
        f"{{ h = Mul(x, scale)  {node}  y = Relu(d)  loss = {mean}(y) }}"
    )


def kept(made: onnx.ModelProto, backend: str, *, dropout: bool) -> float:
    """The fraction of elements that a step keeps."""
    training = Training("loss", SGD(learning_rate=Scalar(0.0)), gradients=("x",))
    options = Options(training=training, dropout=dropout)
    found = popgraph.compile(made, backend=backend, options=options)(x=np.ones(COUNT, np.float32))
    np.testing.assert_array_equal(found["Gradient___x"] != 0, found["y"] != 0)
    return float((found["y"] != 0).mean())


@pytest.mark.parametrize("opset", FOLLOWING)
def test_nodes_of_all_versions_follow_the_dropout_option(opset: str) -> None:
    made = model(opset, FOLLOWING[opset])
    assert abs(kept(made, "reference", dropout=True) - 0.5) < 0.06
    assert kept(made, "reference", dropout=False) == 1


@pytest.mark.parametrize("backend", ["reference", "c"])
def test_a_node_in_training_mode_always_drops(backend: str) -> None:
    made = model("13", "d = Dropout(h, half, on)")
    assert abs(kept(made, backend, dropout=False) - 0.5) < 0.06


TEXT = """
graph net(x: f32[N, 64]) -> (y: f32[N, 64]) {
    weight w: f32[64, 64] = glorot_uniform
    (a, _) = Dropout(x @ w)
    (b, _) = Dropout(a, 0.5)
    (c, _) = Dropout(b, 0.5, true)
    (y, _) = Dropout(c, 0.5, false)
}
train {
    loss = ReduceMean(y * y, keepdims=0)
    optimizer = SGD(0.1)
}
"""


def test_the_table_says_which_nodes_drop_before_the_first_step() -> None:
    x = np.ones((8, 64), np.float32)
    trainer = Trainer(TEXT, backend="reference")
    trainer.prepare({"x": x})
    assert [line.split("  ")[0] for line in str(trainer.selection).splitlines()] == [
        "trained",
        "drops elements",
        "drops elements",
    ]
    assert "2 nodes" in str(trainer.selection)
    assert "Dropout without training_mode; dropout=False turns it off" in str(trainer.selection)
    trainer = popgraph.train(TEXT, {"x": x}, steps=1, dropout=False, backend="reference")
    assert list(trainer.selection.rows())[1:] == [
        ("drops nothing", "2 nodes", "", "Dropout without training_mode, by dropout=False"),
        ("drops elements", "1 node", "", "Dropout with training_mode"),
    ]


def test_the_command_has_a_no_dropout_option(tmp_path: Path) -> None:
    (tmp_path / "net.pgraph").write_text(TEXT.replace("(c, _) = Dropout(b, 0.5, true)", "c = b"))
    np.save(tmp_path / "x.npy", np.ones((64, 64), np.float32))
    arguments = ["train", f"{tmp_path}/net.pgraph", f"x={tmp_path}/x.npy", "--backend", "reference"]
    reported = CliRunner().invoke(app, arguments)
    assert "Dropout without training_mode; --no-dropout turns it off" in reported.output
    first, second = (CliRunner().invoke(app, [*arguments, "--no-dropout"]) for _ in range(2))
    assert "drops nothing" in first.output
    losses = [one.stdout.splitlines()[-1].split()[-1] for one in (reported, first, second)]
    assert losses[1] == losses[2] != losses[0]


def test_exported_steps_follow_the_dropout_option(tmp_path: Path) -> None:
    (tmp_path / "net.pgraph").write_text(TEXT.replace("0.5, true", "0.5"))
    states = []
    for number, more in enumerate([[], ["--no-dropout"]]):
        folder = tmp_path / str(number)
        arguments = ["export", f"{tmp_path}/net.pgraph", "--train", "--dim", "N=2", "-o", folder]
        result = CliRunner().invoke(app, [*map(str, [*arguments, *more])])
        assert result.exit_code == 0, result.output
        states.append("threefry" in (folder / "model.c").read_text())
    assert states == [True, False]


def test_all_entry_points_have_the_dropout_option() -> None:
    for door in (Trainer, popgraph.train, train_command.command):
        assert signature(door).parameters["dropout"].default is True
