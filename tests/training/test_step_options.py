"""Tests options of a training step: clipping, loss scales and recomputation."""

from __future__ import annotations

from dataclasses import fields
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import popgraph
from popgraph.cli import app
from popgraph.cli.train import command
from popgraph.engine.loss_scale import GROWS_AFTER, next_scale
from popgraph.engine.plan import StepPlan
from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.support.errors import PopgraphError, RunError
from popgraph.support.step_options import STEP_OPTIONS
from popgraph.training.trainer import Trainer
from tests.training.test_checkpoints import StopAt

NET = """
graph net(x: f32[N, 6]) -> (y: f32[N, 3]) {
    weight w: f32[6, 8] = glorot_uniform(seed=1)
    weight v: f32[8, 3] = glorot_uniform(seed=2)
    h = x @ w |> Tanh
    y = h @ v
}
"""
LINEAR = (
    "graph net(x: f32[N, 6]) -> (y: f32[N, 1]) {\n    weight w: f32[6, 1] = ones\n    y = x @ w\n}"
)
HALVES = NET.replace("f32", "f16")
RNG = np.random.default_rng(7)
X = RNG.normal(size=(45, 6)).astype(np.float32)
DATA = {"x": X, "labels": X[:, :3].argmax(1)}
GOALS = (3 * X[:, :1] + 2).astype(np.float32)


def trained(model: str = NET, **options: Any) -> Trainer:
    optimizer = options.pop("optimizer", "SGD(0.2, momentum=0.9)")
    settings = {"epochs": 2, "batch": 16, "seed": 3, **options}
    return popgraph.train(model, DATA, "cross_entropy", optimizer, **settings)


def assert_alike(found: Trainer, wanted: Trainer, tolerance: float = 1e-5) -> None:
    for name, weight in wanted.weights().items():
        np.testing.assert_allclose(
            found.weights()[name], weight, rtol=tolerance, atol=tolerance, err_msg=name
        )


# Clipping


def clipped(steps: int, clip: float, momentum: float) -> Array:
    """SGD on mean gradients that are clipped as by PyTorch's `clip_grad_norm_`."""
    w, velocity = np.ones((6, 1)), np.zeros((6, 1))
    for _ in range(steps):
        gradient = 2 * X[:40].T @ (X[:40] @ w - GOALS[:40]) / 40
        gradient *= min(1.0, clip / np.linalg.norm(gradient))
        velocity = momentum * velocity + gradient
        w = w - 0.1 * velocity
    return w


@pytest.mark.parametrize("backend", ["c", "reference"])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize(
    "how",
    [
        {"clip": 0.5},
        {"clip": 0.5, "accumulate": 4},
        {"clip": 0.5, "loss_scale": 128.0, "accumulate": 5},
        {"clip": 0.5, "loss_scale": "auto"},
        {"optimizer": "clip_norm=0.5", "accumulate": 4},
    ],
)
def test_mean_gradients_are_clipped(backend: str, momentum: float, how: dict[str, Any]) -> None:
    more = "".join(f", {one}" for one in [how.get("optimizer")] if one)
    given = {name: value for name, value in how.items() if name != "optimizer"}
    trainer = popgraph.train(
        LINEAR,
        (X[:40], GOALS[:40]),
        "mse",
        f"SGD(0.1, momentum={momentum}{more})",
        batch=40,
        epochs=4,
        backend=backend,
        **given,
    )
    expected = clipped(4, 0.5, momentum)
    np.testing.assert_allclose(trainer.weights()["w"], expected, rtol=1e-4)
    assert not np.allclose(expected, clipped(4, 1e9, momentum), rtol=1e-2)


def test_an_argument_overrides_the_norm_of_the_optimizer() -> None:
    one = trained(optimizer="SGD(0.2, clip_norm=0.01)", clip=0.3)
    assert one.optimizer == "SGD(learning_rate=0.2, clip_norm=0.3)"
    assert_alike(one, trained(optimizer="SGD(0.2, clip_norm=0.3)"))


# Loss scales


@pytest.mark.parametrize("optimizer", ["SGD(0.2, momentum=0.9)", "Adam(0.02)", "RMSProp(0.01)"])
@pytest.mark.parametrize("accumulate", [1, 4])
def test_a_loss_scale_changes_no_number(optimizer: str, accumulate: int) -> None:
    """A power of two is exact in f32, as long as nothing underflows."""
    plain = trained(optimizer=optimizer)
    scales: tuple[float | str, ...] = (128.0, "auto")
    for scale in scales:
        scaled = trained(optimizer=optimizer, loss_scale=scale, accumulate=accumulate)
        assert_alike(scaled, plain)


def test_halves_that_would_underflow_are_trained_at_a_scale() -> None:
    small = {**DATA, "x": (X * 2e-5).astype(np.float16)}

    def moved(**options: Any) -> float:
        trainer = popgraph.train(HALVES, small, "cross_entropy", "SGD(1e4)", batch=16, **options)
        return float(np.abs(trainer.weights()["w"]).sum())

    assert moved(epochs=3) != moved(epochs=3, loss_scale=1024.0)


class Watch(popgraph.Callback):
    """Keeps the weights after every step."""

    def __init__(self) -> None:
        self.weights: list[dict[str, Array]] = []

    def on_step(self, trainer: Any, row: Any) -> None:
        self.weights.append({name: np.array(one) for name, one in trainer.weights().items()})


@pytest.mark.parametrize("backend", ["c", "reference"])
@pytest.mark.parametrize("accumulate", [1, 4])
@pytest.mark.parametrize("optimizer", ["SGD(0.01, momentum=0.9)", "Adam(0.001)"])
def test_updates_that_overflow_are_skipped(backend: str, accumulate: int, optimizer: str) -> None:
    """In the second batch, gradients overflow until the scale is small enough."""
    x = np.concatenate([X[:16], 400 * X[16:32]] * 3).astype(np.float16)
    labels = np.concatenate([DATA["labels"][:32]] * 3)
    seen = Watch()
    trainer = popgraph.train(
        HALVES.replace("Tanh", "Relu"),
        (x, labels),
        "cross_entropy",
        optimizer,
        batch=16,
        epochs=3,
        shuffle=False,
        accumulate=accumulate,
        loss_scale="auto",
        callbacks=[seen],
        backend=backend,
    )
    scales = [row["loss_scale"] for row in trainer.history.steps]
    skipped = [after < before for before, after in zip([2.0**15, *scales], scales, strict=False)]
    assert any(skipped) and not all(skipped)
    for at, is_skipped in enumerate(skipped[1:], 1):
        same = all(
            np.array_equal(seen.weights[at - 1][name], one)
            for name, one in seen.weights[at].items()
        )
        assert same == is_skipped, at
    assert all(np.isfinite(one).all() for one in trainer.weights().values())


def test_the_scale_follows_the_updates() -> None:
    f32, f16 = dtypes.BY_NAME["f32"], dtypes.BY_NAME["f16"]
    assert next_scale(1024.0, 0, f32) == 512.0
    assert next_scale(1024.0, 1, f32) == 1024.0
    assert next_scale(1024.0, GROWS_AFTER, f32) == 2048.0
    assert next_scale(2.0**15, GROWS_AFTER, f16) == 2.0**15
    with pytest.raises(RunError, match="however small the loss scale"):
        next_scale(1.0, 0, f32)


def test_a_checkpoint_has_the_scale(tmp_path: Path) -> None:
    path = tmp_path / "run.ckpt"
    data = (np.concatenate([300 * X[:16], X[16:]]).astype(np.float16), DATA["labels"])
    settings: dict[str, Any] = {"epochs": 3, "batch": 8, "loss_scale": "auto", "accumulate": 2}
    arguments = (HALVES.replace("Tanh", "Relu"), data, "cross_entropy", "Adam(0.001)")
    whole = popgraph.train(*arguments, **settings)
    with pytest.raises(KeyboardInterrupt):
        popgraph.train(*arguments, **settings, checkpoint=path, callbacks=[StopAt(8)])
    again = popgraph.train(*arguments, **settings, checkpoint=path, resume=True)
    assert again.history.steps == whole.history.steps
    assert len({row["loss_scale"] for row in whole.history.steps}) > 1
    with pytest.raises(RunError, match="differs in optimizer"):
        popgraph.train(
            *arguments, **{**settings, "loss_scale": 128.0}, checkpoint=path, resume=True
        )


def test_gradients_are_shown_without_the_scale() -> None:
    plain = Trainer(NET, "cross_entropy", "SGD(0.1)").check(DATA)
    scales: tuple[float | str, ...] = (128.0, "auto")
    for scale in scales:
        scaled = Trainer(NET, "cross_entropy", "SGD(0.1)", loss_scale=scale).check(DATA)
        for ours, theirs in zip(scaled.layers, plain.layers, strict=True):
            assert ours.gradient == pytest.approx(theirs.gradient, rel=1e-5)


# Recomputation

DEEP = """
graph net(x: f32[N, 32]) -> (y: f32[N, 3]) {
    weight v: f32[32, 3] = glorot_uniform(seed=2)
    LAYERS
    y = h @ v
}
"""


def test_checkpoints_save_memory_and_change_no_bit() -> None:
    lines = ["h = x"] + [f"h = Tanh(h) * {1 + i / 100} |> Sigmoid" for i in range(12)]
    text = DEEP.replace("LAYERS", "\n    ".join(lines))
    for number in range(12):  # unique names for all layers
        text = text.replace("h = Tanh(h)", f"h{number} = Tanh(h{number - 1})", 1)
    text = text.replace("h = x", "h_ = x").replace("h-1", "h_").replace("h @ v", "h11 @ v")
    x = RNG.normal(size=(256, 32)).astype(np.float32)
    data = (x, x[:, :3].argmax(1))

    def run(recompute: str | None) -> Trainer:
        return popgraph.train(
            text, data, "cross_entropy", "SGD(0.2)", batch=256, epochs=2, recompute=recompute
        )

    plain, again = run(None), run("checkpoints")
    np.testing.assert_array_equal(again.weights()["v"], plain.weights()["v"])
    assert again.arena <= plain.arena


# Doors


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ({"accumulate": 0}, "accumulate must be an integer of at least 1, not 0"),
        ({"clip": 0}, "clip must be a positive number, not 0"),
        ({"clip": float("nan")}, "clip must be a positive number, not nan"),
        ({"loss_scale": "automatic"}, "loss_scale must be a positive number or 'auto'"),
        ({"loss_scale": -1.0}, "loss_scale must be a positive number or 'auto', not -1.0"),
        ({"recompute": "all"}, "recompute must be one of none, checkpoints, norms, not 'all'"),
    ],
)
def test_invalid_step_options(option: dict[str, Any], text: str) -> None:
    with pytest.raises(PopgraphError) as caught:
        trained(**option)
    assert text in caught.value.what and caught.value.where == next(iter(option))


SECTION = """
train (labels: i64[N]) {
    loss = cross_entropy(y, labels)
    optimizer = SGD(0.2, momentum=0.9)
    accumulate = 4
    clip = 0.1
    loss_scale = "auto"
    recompute = "checkpoints"
}
"""


def test_a_train_section_has_step_options() -> None:
    said = popgraph.train(NET + SECTION, DATA, epochs=2, batch=16, seed=3)
    given = trained(accumulate=4, clip=0.1, loss_scale="auto", recompute="checkpoints")
    for name, weight in given.weights().items():
        np.testing.assert_array_equal(said.weights()[name], weight)
    assert said.facts["batches"].startswith("16 samples in 4 micro-batches")
    other = popgraph.train(NET + SECTION, DATA, batch=16, accumulate=2, clip=3.0)
    assert other.facts["batches"].startswith("16 samples in 2 micro-batches")
    assert "clip_norm=3" in other.optimizer


def test_a_value_may_have_the_name_of_a_step_option() -> None:
    clip = "    clip = Clip(y, -0.5, 0.5)\n    loss = cross_entropy(clip,"
    section = SECTION.replace("    clip = 0.1\n", "").replace("    loss = cross_entropy(y,", clip)
    assert "clip_norm" not in popgraph.train(NET + section, DATA, batch=16).optimizer


@pytest.mark.parametrize("line", ["accumulate = 0", "clip = -1", 'loss_scale = "some"'])
def test_wrong_step_options_of_a_text_have_a_location(line: str) -> None:
    name = line.split()[0]
    lines = [one for one in SECTION.splitlines() if not one.strip().startswith(name)]
    text = NET + "\n".join([*lines[:-1], "    " + line, "}"])
    with pytest.raises(PopgraphError, match=f"`{name}` is ") as caught:
        Trainer(text)
    assert line in str(caught.value)


def test_a_session_refuses_step_options_of_a_text(tmp_path: Path) -> None:
    (tmp_path / "net.pgraph").write_text(NET.replace("N", "4") + SECTION.replace("N", "4"))
    flow = popgraph.DataFlow(1, ["loss"])
    with pytest.raises(popgraph.PopgraphError, match="does not take `accumulate`, `clip`"):
        popgraph.TrainingSession(str(tmp_path / "net.pgraph"), flow)


def test_the_command_has_the_same_step_options(tmp_path: Path) -> None:
    (tmp_path / "net.pgraph").write_text(NET)
    for name, array in DATA.items():
        np.save(tmp_path / f"{name}.npy", array)
    arguments = ["train", tmp_path / "net.pgraph", f"x={tmp_path}/x.npy"]
    arguments += [f"labels={tmp_path}/labels.npy", "--loss", "cross_entropy", "--batch", 16]
    arguments += ["--optimizer", "SGD(0.2, momentum=0.9)", "--seed", 3, "--epochs", 2]
    arguments += ["--accumulate", 4, "--clip", 0.1, "--loss-scale", "auto"]
    arguments += ["--recompute", "norms", "-o", tmp_path / "trained.onnx"]
    result = CliRunner().invoke(app, [*map(str, arguments)])
    assert result.exit_code == 0, result.output
    given = trained(accumulate=4, clip=0.1, loss_scale="auto", recompute="norms")
    run = popgraph.compile(tmp_path / "trained.onnx")
    np.testing.assert_array_equal(run(x=X)["y"], given.predict({"x": X}, batch=45))
    wrong = CliRunner().invoke(app, [*map(str, arguments), "--loss-scale", "much"])
    assert wrong.exit_code
    assert "loss_scale must be a positive number or 'auto', not 'much'" in wrong.output


def test_all_entry_points_have_all_step_options() -> None:
    for door in (Trainer, popgraph.train, command):
        assert STEP_OPTIONS.keys() <= signature(door).parameters.keys()
    others = {"batches", "ranks", "rank"}
    assert {field.name for field in fields(StepPlan)} - others == STEP_OPTIONS.keys()
