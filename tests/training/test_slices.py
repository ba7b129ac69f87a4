"""Tests steps that train slices of weights: values, state, memory, exported C, wrong slices."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

import popgraph
from popgraph.builder.pgraph import parse
from popgraph.compiler import lower
from popgraph.dialects.graphcore import ConvWeightGradOp, InsertOp, MatMulOp
from popgraph.dialects.graphcore.base import shape_of
from popgraph.dialects.onnx import model_of
from popgraph.dialects.onnx.weight_names import weights_by_name
from popgraph.dialects.program import VariableOp
from popgraph.passes.base import Compilation
from popgraph.passes.graphcore.canonicalize import Canonicalize
from popgraph.passes.graphcore.dce import EliminateDeadCode
from popgraph.passes.options import Options
from popgraph.support.arrays import Array
from popgraph.support.boxes import BadSlice, Box, split_slice, written
from popgraph.support.errors import ModelError, PopgraphError, RunError
from popgraph.training.selection import WeightPatterns
from popgraph.training.task import Task, task_of
from tests.backends.test_c_export import exported, made
from tests.backends.test_c_training import DELTAS, built

NET = """
graph net(x: f32[N, 2, 5, 5]) -> (y: f32[N, 3]) {
    weight first: f32[4, 2, 3, 3] = he_normal(seed=1)
    weight `conv.w`: f32[6, 4, 3, 3] = he_normal(seed=2)
    weight `conv.b`: f32[6] = ones
    weight head: f32[6, 3] = glorot_uniform(seed=3)
    h = Relu(Conv(x, first, pads=[1, 1, 1, 1]))
    h2 = Tanh(Conv(h, `conv.w`, `conv.b`))
    y = ReduceMean(h2, [2, 3], keepdims=0) @ head
}

train (labels: i32[N]) {
    loss = cross_entropy(y, labels)
    optimizer = OPTIMIZER
}
"""
ADAM = NET.replace("OPTIMIZER", "Adam(0.01)")
SLICES = ("conv.w[1:3, -3:]", "conv.b[2:5]", "head[:, :2]")
BOXES: dict[str, Any] = {"conv.w": np.s_[1:3, 1:], "conv.b": np.s_[2:5], "head": np.s_[:, :2]}
X = np.random.default_rng(0).normal(size=(8, 2, 5, 5)).astype(np.float32)
LABELS = np.arange(8, dtype=np.int32) % 3


def trained(text: str, *, steps: int = 4, **options: Any) -> popgraph.Trainer:
    trainer = popgraph.Trainer(text, **{"backend": "reference", **options})
    trainer.fit((X, LABELS), steps=steps, batch=4, shuffle=False)
    return trainer


def initial() -> dict[str, Array]:
    """The weights of the network before training."""
    document = parse(ADAM)
    found = weights_by_name(model_of(document.module).graph)
    return {name: one.array(document.weights) for name, one in found.items()}


def masked(text: str) -> str:
    """The network whose weights are constants outside of the slices."""
    for name, places in BOXES.items():
        found = re.search(rf"weight `?{re.escape(name)}`?: f32\[(.*)\] = (.*)\n", text)
        assert found is not None
        mask = np.zeros([int(size) for size in found[1].split(",")], bool)
        mask[places] = True
        plain = f"`{name}`" if "." in name else name
        rest, held, used = (f"`{name}.{one}`" for one in ("rest", "mask", "used"))
        text = text.replace(
            found[0],
            f"{found[0]}    const {rest}: f32[{found[1]}] = {found[2]}\n"
            f"    const {held}: bool[{found[1]}] = {json.dumps(mask.tolist())}\n",
        )
        head, body = text.split("    h = ")
        body = body.replace(f"{plain})", f"{used})").replace(f"{plain},", f"{used},")
        body = body.replace(f"@ {plain}\n", f"@ {used}\n")
        text = f"{head}    {used} = Where({held}, {plain}, {rest})\n    h = {body}"
    return text


@pytest.mark.parametrize("optimizer", ["SGD(0.1, momentum=0.9)", "Adam(0.01)"])
def test_a_slice_is_trained_as_by_a_masked_gradient(optimizer: str) -> None:
    text = NET.replace("OPTIMIZER", optimizer)
    first = initial()
    ours = trained(text, train_only=SLICES).weights()
    whole = trained(masked(text), train_only=[*BOXES]).weights()
    assert ours.keys() == whole.keys() == BOXES.keys()
    for name, places in BOXES.items():
        rest = np.ones(ours[name].shape, bool)
        rest[places] = False
        assert (ours[name][places] != first[name][places]).any()
        np.testing.assert_array_equal(ours[name][rest], first[name][rest])
        np.testing.assert_allclose(ours[name], whole[name], rtol=1e-6, atol=1e-6)


def test_the_model_has_the_whole_weights(tmp_path: Path) -> None:
    whole = trained(ADAM, train_only=SLICES)
    split = trained(ADAM, train_only=SLICES, accumulate=2, recompute="checkpoints")
    for name, weight in whole.weights().items():
        np.testing.assert_allclose(split.weights()[name], weight, rtol=1e-5, atol=1e-6)
    assert [(one.name, one.shape) for one in whole.check((X, LABELS), batch=4).layers] == [
        (name, initial()[name][places].shape) for name, places in BOXES.items()
    ]
    whole.save(tmp_path / "net.onnx")
    saved = popgraph.compile(tmp_path / "net.onnx", backend="reference")
    np.testing.assert_allclose(saved(x=X)["y"], np.asarray(whole.predict(X)), rtol=1e-5, atol=1e-6)


def task(*patterns: str, text: str = ADAM) -> Task:
    found = task_of(parse(text.replace("N,", "2,").replace("[N]", "[2]")))
    assert found is not None
    return replace(found, patterns=WeightPatterns.of((), patterns))


def step(task: Task) -> ModuleOp:
    """The graph of a training step, simplified."""
    compilation, options = Compilation(task.weights), Options(training=task.training)
    lower(task.module, compilation, options, level="graphcore", until=Canonicalize.name)
    EliminateDeadCode().run(compilation, task.module)
    return task.module


def test_gradient_and_state_are_those_of_the_slice() -> None:
    module = step(task(*SLICES))
    shapes = {"conv.w": (2, 3, 3, 3), "conv.b": (3,), "head": (6, 2)}
    variables = {op.variable.text: op for op in module.walk() if isinstance(op, VariableOp)}
    for name, shape in shapes.items():
        for state in ("Accl1___", "Accl2___"):
            assert shape_of(variables[state + name].result) == shape
    (gradient,) = (op for op in module.walk() if isinstance(op, ConvWeightGradOp))
    assert shape_of(gradient.result) == shapes["conv.w"]
    products = [shape_of(op.result) for op in module.walk() if isinstance(op, MatMulOp)]
    assert shapes["head"] in products and (6, 3) not in products
    inserted = {op.x for op in module.walk() if isinstance(op, InsertOp)}
    assert inserted == {variables[name].result for name in shapes}


def ram(folder: Path) -> dict[str, int]:
    rows = json.loads((folder / "model.json").read_text())["ram"]
    return {row["name"]: row["bytes"] for row in rows}


def test_exported_steps_keep_one_copy_of_the_weight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """
    graph net(x: f32[2, 64]) -> (y: f32[2, 64]) {
        weight w: f32[64, 64] = he_normal(seed=1)
        y = Tanh(x @ w)
    }
    train (target: f32[2, 64]) {
        loss = mse(y, target)
        optimizer = Adam(0.01)
    }
    """
    options = ("--train", "--target", "armv7e-m", "--train-only")
    whole = ram(exported(tmp_path, *options, "w", text=text))
    monkeypatch.setenv("POPGRAPH_CHECK", "2")  # The proof follows the update in place.
    part = ram(exported(tmp_path, *options, "w[:, :8]", text=text))
    assert part["weights"] == whole["weights"] == 4 * 64 * 64
    assert part["optimizer state"] - 2 * 4 * 64 * 8 == whole["optimizer state"] - 2 * 4 * 64 * 64
    assert sum(part.values()) < 4 * 64 * 64 * 1.5, "neither a gradient nor a copy of w"
    assert sum(whole.values()) > 4 * 64 * 64 * 4


def test_exported_c_is_the_trainer_and_exchanges_slices(tmp_path: Path) -> None:
    given = [word for one in SLICES for word in ("--train-only", one)]
    folder = exported(tmp_path, "--train", "--dim", "N=2", "--accumulate", 2, *given, text=ADAM)
    assert "outputs and state: the trainer's, bit by bit" in made(folder)
    layout = json.loads((folder / "model.json").read_text())["delta"]
    assert layout == [
        {
            "name": name,
            "shape": [*np.zeros(of)[BOXES[name]].shape],
            "first": first,
            "starts": starts,
            "of": of,
        }
        for name, first, starts, of in (
            ("conv.w", 0, [1, 1, 0, 0], [6, 4, 3, 3]),
            ("conv.b", 54, [2], [6]),
            ("head", 57, [0, 0], [6, 3]),
        )
    ]
    source = DELTAS.replace("x[12]", "x[100]")
    done = subprocess.run([built(folder, source)], cwd=folder, capture_output=True)
    assert done.returncode == 0
    first, delta, last = np.frombuffer(done.stdout, np.float32).reshape(3, -1)
    flat = [initial()[name][places].ravel() for name, places in BOXES.items()]
    np.testing.assert_array_equal(first, np.concatenate(flat))
    assert delta.any()
    np.testing.assert_allclose(last, first + np.float32(0.5) * delta, rtol=2e-7)


WRONG = {
    "w[:9]": "9 is outside axis 0, which has 6 elements",
    "w[-7:]": "-7 is outside axis 0",
    "w[:2, :, :, :, :]": "it has 5 axes, and the tensor 4: 6x4x3x3",
    "w[::2]": "'::2' has a step of 2, which must be 1",
    "w[3:3]": "'3:3' selects nothing of axis 0, which has 6 elements",
    "w[:, 1]": "'1' is not a range such as 0:8",
    "w[a:b]": "'a:b' is not a range",
}


@pytest.mark.parametrize("slice_", WRONG)
def test_a_wrong_slice_is_an_error(slice_: str) -> None:
    with pytest.raises(ModelError, match=re.escape(WRONG[slice_])) as raised:
        task(f"conv.{slice_}").selection.check()
    assert raised.value.where == "train_only" and "conv.w[0:3]" in raised.value.hint
    text = ADAM.replace("optimizer =", f'train_only "conv.{slice_}"\n    optimizer =')
    with pytest.raises(PopgraphError, match=re.escape(WRONG[slice_])) as raised_by_text:
        parse(text)
    assert "<text>:14:16" in raised_by_text.value.where


def test_selections_that_contradict_a_slice_are_errors() -> None:
    def refused(**patterns: object) -> ModelError:
        with pytest.raises(ModelError) as raised:
            found = WeightPatterns.of(patterns.get("freeze", ()), patterns.get("train_only", ()))
            replace(task(), patterns=found).selection.check()
        return raised.value

    for other in ("conv.*", "conv.w", "conv.w[3:4]"):
        assert "selected twice" in refused(train_only=["conv.w[:2]", other]).what
    unknown = refused(train_only="covn.w[:2]")
    assert "no weight matches" in unknown.what and "'conv.w'" in unknown.hint
    assert "only whole weights are frozen" in refused(freeze="conv.w[:2]").what
    text = ADAM.replace("optimizer =", 'train_only "conv.w[:2]", head\n    optimizer =')
    with pytest.raises(ModelError, match="the text trains"):
        task("conv.w[:3]", text=text).selection.check()
    for statement, what in (
        ('freeze "conv.w[:2]"', "only whole weights are frozen"),
        ('train_only "conv.w[:2]", "conv.w"', "selected twice"),
        ('train_only "cnov.w[:2]"', "there is no weight"),
    ):
        with pytest.raises(PopgraphError, match=re.escape(what)):
            parse(ADAM.replace("optimizer =", f"{statement}\n    optimizer ="))
    with pytest.raises(ModelError, match="its running statistics"):
        norm = "BatchNormalization(Conv(h, `conv.w`), `conv.b`, `conv.b`, `conv.b`, mean)"
        text = ADAM.replace("Conv(h, `conv.w`, `conv.b`)", norm)
        text = text.replace("    h = ", "    weight mean: f32[6] = ones\n    h = ")
        task("mean[:2]", "conv.w", text=text).selection.check()


def test_a_text_selects_slices() -> None:
    said = '    train_only "conv.w[1:3, -3:]", "conv.b[2:5]", "head[:, :2]"\n    optimizer ='
    text = ADAM.replace("    optimizer =", said)
    chosen, other = task(text=text), task(*SLICES)
    assert chosen.training.parts == other.training.parts == written(chosen.selection.boxes)
    assert "outside the slices of train_only" in str(chosen.selection)
    assert task("head[:]").selection.boxes == {}
    assert task("first", "conv.[wb]", "head[:1]").selection.boxes.keys() == {"head"}


def test_a_checkpoint_of_another_slice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.ckpt"
    given: dict[str, Any] = {"train_only": "head[:2]", "backend": "reference"}
    popgraph.Trainer(ADAM, **given).fit((X, LABELS), epochs=1, batch=4, checkpoint=path)
    popgraph.Trainer(ADAM, **given).fit((X, LABELS), epochs=1, batch=4, resume=path)
    given["train_only"] = "head[1:3]"
    with pytest.raises(RunError, match=r"trained slices: head\[0:2, 0:3\]"):
        popgraph.Trainer(ADAM, **given).fit((X, LABELS), epochs=1, batch=4, resume=path)


def test_boxes_are_slices_of_numpy() -> None:
    generator = np.random.default_rng(0)
    for rank in (1, 2, 3, 4) * 50:
        shape = tuple(generator.integers(1, 4, rank).tolist())
        ends = [sorted(generator.choice(size + 1, 2, replace=False)) for size in shape]
        box = Box.of(", ".join(f"{start}:{stop}" for start, stop in ends), shape)
        numbers = np.arange(np.prod(shape)).reshape(shape)
        expected = numbers[tuple(slice(*one) for one in ends)]
        (text,) = written({"a[0]": box})
        name, slices = split_slice(text)
        assert name == "a[0]" and Box.of(slices, shape) == box
        np.testing.assert_array_equal(numbers[box.places], expected)
        found = [
            first + row * stride + at
            for first, rows, stride, length in box.rows(shape)
            for row, at in product(range(rows), range(length))
        ]
        assert found == expected.ravel().tolist()


def test_only_brackets_with_a_colon_are_a_slice() -> None:
    assert split_slice("conv*.w[:8, 1:]") == ("conv*.w", ":8, 1:")
    assert split_slice("bn[12].w") == ("bn[12].w", "")
    assert split_slice("w[12]") == ("w[12]", "")
    assert Box.of("-2:", (4, 3)) == Box((2, 0), (2, 3))
    with pytest.raises(BadSlice):
        Box.of(":", ())
