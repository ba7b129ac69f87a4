"""Tests sessions and `popgraph train` on `.pgraph` texts with a `train` section."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import popgraph
from popgraph.builder.pgraph import Schedule, parse, parse_optimizer
from popgraph.builder.pgraph.lower.schedules import SCHEDULES
from popgraph.cli import app
from popgraph.passes import optimizer_spec
from popgraph.popart.api.optimizers import popart_optimizer
from popgraph.support.errors import PopgraphError
from popgraph.training.update_rule import OPTIMIZERS, optimizer_of

NET = """
graph g(x: f32[2, 3]) -> y {{
    weight base: f32[3] = [1.0, 2.0, 3.0]
    weight w: f32[3] = [0.5, 0.5, 0.5]
    y = x * (w + base)
}}
train (t: f32[2, 3]) {{
    fit = ReduceSum(y - t, keepdims=0)
    size = ReduceSum(w, keepdims=0)
    loss = fit + 0.5 * size
    optimizer = {optimizer}
    {more}
}}
"""
X = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
GRADIENT = X.sum(0) + 0.5
"""The gradient of `w`, equal in every step."""


def text(folder: Path, optimizer: str = "SGD(0.1)", more: str = "") -> Path:
    path = folder / "net.pgraph"
    path.write_text(NET.format(optimizer=optimizer, more=more))
    return path


def steps(path: Path, count: int, batches: int = 1, **given: Any) -> dict[str, Any]:
    """The weights after `count` steps, and the last anchors."""
    flow = popgraph.DataFlow(batches, ["loss", "fit", "size"])
    session = popgraph.TrainingSession(path, flow, **given)
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    data = {"x": X, "t": np.zeros_like(X)}
    if batches > 1:
        data = {name: np.stack([array] * batches) for name, array in data.items()}
    for _ in range(count):
        session.run(popgraph.PyStepIO(data, anchors))
    session.weightsToHost()
    return {**session.weights(), **anchors}


def test_a_session_takes_loss_and_optimizer_from_the_text(tmp_path: Path) -> None:
    held = steps(text(tmp_path), 2)
    assert np.allclose(held["w"], 0.5 - 0.2 * GRADIENT)


def test_arguments_of_a_session_override_the_text(tmp_path: Path) -> None:
    rule = popgraph.SGD({"defaultLearningRate": (0.2, True)})
    held = steps(text(tmp_path), 1, optimizer=rule)
    assert np.allclose(held["w"], 0.5 - 0.2 * GRADIENT)


def test_the_terms_of_a_loss_can_be_anchored(tmp_path: Path) -> None:
    held = steps(text(tmp_path, "SGD(0.0001)"), 1)
    assert held["fit"] == pytest.approx((X * [1.5, 2.5, 3.5]).sum())
    assert held["size"] == pytest.approx(1.5)
    assert held["loss"] == pytest.approx(held["fit"] + 0.5 * held["size"])
    section = parse(text(tmp_path).read_text()).training
    assert section is not None
    assert section.terms == ("fit", "size")


def test_frozen_weights_stay_and_the_others_change(tmp_path: Path) -> None:
    held = steps(text(tmp_path, more="freeze base"), 3)
    assert "base" not in held
    assert np.allclose(held["w"], 0.5 - 0.3 * GRADIENT)
    section = parse(text(tmp_path, more='freeze "b*"').read_text()).training
    assert section is not None
    assert section.frozen == ("base",)


def test_train_only_freezes_other_weights(tmp_path: Path) -> None:
    path = text(tmp_path, more="train_only w")
    held = steps(path, 3)
    assert "base" not in held
    assert np.allclose(held["w"], 0.5 - 0.3 * GRADIENT)
    both = parse(text(tmp_path, more='train_only "*"\n freeze base').read_text()).training
    assert both is not None
    assert both.frozen == ("base",)


def test_a_session_takes_weights_to_freeze(tmp_path: Path) -> None:
    flow = popgraph.DataFlow(1, ["loss"])
    session = popgraph.TrainingSession(text(tmp_path), flow, freeze="bas?")
    assert session.selection.trained == ("w",) and session.selection.frozen == ("base",)
    held = steps(text(tmp_path), 3, train_only=["w"])
    assert np.allclose(held["w"], 0.5 - 0.3 * GRADIENT)
    assert held["base"].tolist() == [1, 2, 3]
    with pytest.raises(popgraph.popart_exception, match="matches the pattern 'bse'") as caught:
        popgraph.TrainingSession(text(tmp_path), flow, train_only=["w", "bse"])
    assert "at: train_only" in str(caught.value) and "did you mean 'base'?" in str(caught.value)
    with pytest.raises(popgraph.popart_exception, match="no weights are left to train"):
        popgraph.TrainingSession(text(tmp_path), flow, freeze=["*"])
    with pytest.raises(popgraph.popart_exception, match="3 is not a name pattern"):
        popgraph.TrainingSession(text(tmp_path), flow, freeze=[3])  # type: ignore[list-item]


@pytest.mark.parametrize("batches", [1, 2])
def test_a_session_follows_the_schedule(batches: int, tmp_path: Path) -> None:
    path = text(tmp_path, more="schedule = step(every=1, factor=0.5, warmup=2)")
    held = steps(path, 4 // batches, batches)
    assert np.allclose(held["w"], 0.5 - (0.05 + 0.1 + 0.1 + 0.05) * GRADIENT)


def test_a_schedule_counts_updates_not_micro_batches(tmp_path: Path) -> None:
    path = text(tmp_path, more="schedule = step(every=1, factor=0.5, warmup=2)")
    options = popgraph.SessionOptions()
    options.enableGradientAccumulation, options.accumulationFactor = True, 2
    flow = popgraph.DataFlow(4, ["loss"])
    session = popgraph.TrainingSession(path, flow, userOptions=options)
    session.prepareDevice()
    session.weightsFromHost()
    data = {"x": np.stack([X] * 8), "t": np.zeros((8, 2, 3), np.float32)}
    session.run(popgraph.PyStepIO(data, session.initAnchorArrays()))
    session.weightsToHost()
    moved = 2 * (0.05 + 0.1 + 0.1 + 0.05) * GRADIENT
    assert np.allclose(session.weights()["w"], 0.5 - moved)


def test_popgraph_train_follows_the_schedule_and_shows_the_terms(tmp_path: Path) -> None:
    path = text(tmp_path, more="schedule = step(every=1, factor=0.5, warmup=2)\n freeze base")
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "t.npy", np.zeros_like(X))
    trained = tmp_path / "trained.pgraph"
    data = [f"x={tmp_path / 'x.npy'}", f"t={tmp_path / 't.npy'}"]
    arguments = ["train", str(path), *data, "--epochs", "4", "--output", str(trained)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    table = "trained      1 tensor  3 values\nnot trained  1 tensor  3 values  frozen\n\n"
    assert result.output.startswith(table)
    assert re.search(r"\n\nepoch 1/4  loss \S+  fit \S+  size 1\.50000\n", result.output)
    numbers = re.search(r"w: f32\[3\] = \[(.*)\]", trained.read_text())
    assert numbers is not None
    found = np.array(list(map(float, numbers[1].split(","))))
    assert np.allclose(found, 0.5 - 0.3 * GRADIENT, rtol=1e-5)
    assert "base: f32[3] = [1.0, 2.0, 3.0]" in trained.read_text()


def test_inference_sessions_read_texts_too(tmp_path: Path) -> None:
    session = popgraph.InferenceSession(text(tmp_path), popgraph.DataFlow(1, ["y"]))
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.run(popgraph.PyStepIO({"x": X}, anchors))
    assert np.allclose(anchors["y"], X * [1.5, 2.5, 3.5])


def test_a_text_without_a_train_section(tmp_path: Path) -> None:
    path = tmp_path / "net.pgraph"
    path.write_text("graph g(x: f32[2]) -> y {\n y = x\n}")
    with pytest.raises(PopgraphError, match="does not say how it is trained"):
        popgraph.TrainingSession(path, popgraph.DataFlow(1, ["y"]))


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (Schedule("constant", {}, 4), [0.25, 0.5, 0.75, 1, 1, 1]),
        (Schedule("linear", {"steps": 4}), [1, 0.75, 0.5, 0.25, 0, 0]),
        (Schedule("linear", {"steps": 2, "end": 0.5}, 1), [1, 1, 0.75, 0.5, 0.5, 0.5]),
        (Schedule("cosine", {"steps": 2}), [1, 0.5, 0, 0, 0, 0]),
        (Schedule("cosine", {"steps": 2, "end": 0.5}), [1, 0.75, 0.5, 0.5, 0.5, 0.5]),
        (Schedule("step", {"every": 2}), [1, 1, 0.1, 0.1, 0.01, 0.01]),
        (Schedule("exponential", {"factor": 0.5}), [1, 0.5, 0.25, 0.125, 0.0625, 0.03125]),
        (Schedule("exponential", {"factor": 0.25, "every": 2}), [2**-at for at in range(6)]),
    ],
)  # fmt: skip
def test_schedules(schedule: Schedule, expected: list[float]) -> None:
    assert [schedule.factor(at) for at in range(6)] == pytest.approx(expected)


def test_every_schedule_is_tested() -> None:
    assert set(SCHEDULES) == {"constant", "linear", "cosine", "step", "exponential"}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("schedule = cosin(steps=1)", "did you mean 'cosine'?"),
        ("schedule = warp(2)", "the schedules are constant, linear, cosine, step, exponential"),
        ("schedule = cosine", "`cosine` needs `steps`"),
        ("schedule = cosine(0)", "`steps` must be an integer of at least 1"),
        ("schedule = step(1, -0.5)", "`factor` must be a number of at least 0"),
        ("schedule = step(1, 2, 3, 4)", "it takes every, factor, warmup"),
        ("schedule = 3", "a schedule is a name with arguments"),
        ("freeze bas", "there is no weight `bas`"),
        ("freeze bas", "did you mean `base`?"),
        ('freeze "*"', "no weights are left to train"),
        ("train_only bas", "did you mean `base`?"),
        ("train_only base\n freeze base", "no weights are left to train"),
        ("train_only 1", "`train_only` names weights"),
    ],
)
def test_wrong_settings_of_a_text(more: str, said: str) -> None:
    with pytest.raises(PopgraphError) as caught:
        parse(NET.format(optimizer="SGD(0.1)", more=more), "net.pgraph")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "written",
    [
        "SGD(0.1, momentum=0.9, dampening=0.1, weight_decay=0.01, velocity_scaling=2)",
        "SGD(0.1, momentum=0.9, nesterov=true, combined=false, loss_scaling=8, clip_norm=1)",
        "Adam(0.1, beta1=0.8, beta2=0.9, epsilon=0.001, weight_decay=0.1, decay=false)",
        "Lamb(0.1, max_weight_norm=2, clip_norm=3, scaled_state=true)",
        "AdaMax(0.1)",
        "RMSProp(0.1, alpha=0.8, momentum=0.5, tf_variant=true)",
        "AdaDelta(0.1, decay=false, clip_norm=2)",
    ],
)
def test_optimizers_of_a_text_are_those_of_a_session(written: str) -> None:
    """The specifications differ in clipping only: PopART clips updates, a text clips gradients."""
    spec = optimizer_of(parse_optimizer(written))
    clip = tuple(replace(group, of_updates=True) for group in spec.clip)
    assert popart_optimizer(spec).spec() == replace(spec, clip=clip)
    assert isinstance(spec, tuple(optimizer_spec.KINDS.values()))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_case_makes_no_difference_in_names_of_optimizers(name: str) -> None:
    specs = {
        str(optimizer_of(parse_optimizer(f"{one}(0.1, weight_decay=0.01)")))
        for one in (name, name.lower(), name.upper())
    }
    assert len(specs) == 1


def test_adamw_is_adam() -> None:
    """AdamW and PopART's Adam both apply weight decay in the update."""
    one, other = (optimizer_of(parse_optimizer(f"{name}(0.1)")) for name in ("AdamW", "Adam"))
    assert one == other


def test_a_misspelt_optimizer() -> None:
    with pytest.raises(PopgraphError, match=r"did you mean 'Adam'\?"):
        optimizer_of(parse_optimizer("Adem(0.1)"))
    with pytest.raises(PopgraphError, match=r"did you mean 'momentum'\?"):
        optimizer_of(parse_optimizer("SGD(0.1, momentun=0.9)"))


@pytest.mark.parametrize(
    ("optimizer", "said"),
    [
        ("Adem(0.1)", "did you mean 'Adam'?"),
        ("SGD(0.1, momentun=0.9)", "did you mean 'momentum'?"),
        ("SGD(-0.1)", "Negative learning rate"),
        ('Adam(0.1, mode="sgd")', "unknown optimizer mode 'sgd'"),
    ],
)
def test_popgraph_check_knows_the_optimizers(optimizer: str, said: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["check", str(text(tmp_path, optimizer))])
    assert result.exit_code == 1, result.output
    assert said in result.output
    assert "net.pgraph:11:17" in result.output
