"""Tests warnings about a training that cannot learn: from `check`, and while it runs."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from popgraph.backends.c.run.executable import CExecutable
from popgraph.support.arrays import Array
from popgraph.support.errors import PopgraphError
from popgraph.support.warnings import DoubtfulTrainingWarning
from popgraph.training import diagnosis
from popgraph.training.trainer import Trainer

RNG = np.random.default_rng(5)
X = RNG.normal(size=(24, 4)).astype(np.float32)
LABELS = X[:, :3].argmax(1)


def net(rows: str, y: str = "Softmax(z)") -> str:
    return f"""
    graph net(x: f32[N, 4]) -> (y: f32[N, 3]) {{
        weight w: f32[4, 3] = glorot_uniform
        weight b: f32[3] = zeros
        {rows}
        y = {y}
    }}
    """


def test_gradients_of_a_sound_model_are_those_of_numpy() -> None:
    found = Trainer(net("z = x @ w + b"), "nll", "SGD(0.1)")
    shown = found.check((X, LABELS), batch=24)
    assert not shown.problems
    before = found.predict(X)
    error = (before - np.eye(3)[LABELS]) / len(X)
    sizes = {one.name: one.gradient for one in shown.layers}
    np.testing.assert_allclose(sizes["w"], np.sqrt(np.mean((X.T @ error) ** 2)), rtol=1e-4)
    np.testing.assert_allclose(sizes["b"], np.sqrt(np.mean(error.sum(0) ** 2)), rtol=1e-4)
    np.testing.assert_array_equal(found.predict(X), before)
    assert "w" in str(shown) and "4x3" in str(shown)


@pytest.mark.parametrize(
    ("model", "loss", "problem"),
    [
        (net("z = x @ w + b", "z"), "nll", "'y' holds no probabilities"),
        (net("z = Relu(x @ w * 0.0 - 1.0) + b"), "nll", "zero of 1 of 2 weights: 'w'"),
        (net("z = Relu(x @ w * 0.0 + b - 1.0)"), "nll", "of all weights are zero"),
        (net("z = Exp(x @ w * 1e4) + b", "z"), "mse", "the loss is inf"),
    ],
)
def test_check_reports_problems(model: str, loss: str, problem: str) -> None:
    target = np.eye(3, dtype=np.float32)[LABELS] if loss == "mse" else LABELS
    shown = Trainer(model, loss, "SGD(0.1)").check((X, target))
    assert any(problem in one for one in shown.problems), shown.problems


def test_a_label_outside_the_classes_is_an_error() -> None:
    with pytest.raises(PopgraphError, match="3"):
        Trainer(net("z = x @ w + b"), "nll", "SGD(0.1)").check((X, LABELS + 1))


def test_training_warns_of_weights_that_cannot_learn() -> None:
    with pytest.warns(DoubtfulTrainingWarning, match="'y' holds no probabilities"):
        Trainer(net("z = x @ w + b", "Sigmoid(z)"), "nll", "SGD(0.1)").fit((X, LABELS))
    with pytest.warns(
        DoubtfulTrainingWarning, match="1 of 2 weights did not change in an epoch: 'w'"
    ):
        Trainer(net("z = Relu(x @ w * 0.0 - 1.0) + b"), "nll", "SGD(0.1)").fit((X, LABELS))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Trainer(net("z = x @ w + b"), "nll", "SGD(0.1)").fit((X, LABELS))


def test_no_epoch_reads_the_weights_of_a_large_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of all weights would take as long as a fifth of a step of a language model."""
    monkeypatch.setattr(diagnosis, "MOST_BYTES", 0)
    read: list[str] = []
    original = CExecutable.read

    def noted(self: CExecutable, variable: str) -> Array:
        read.append(variable)
        return original(self, variable)

    monkeypatch.setattr(CExecutable, "read", noted)
    Trainer(net("z = x @ w + b"), "nll", "SGD(0.1)").fit((X, LABELS), epochs=2)
    assert not read


def test_train_check_command(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "labels.npy", LABELS)
    command = [sys.executable, "-m", "popgraph", "train", "net.pgraph", "x=x.npy"]
    command += ["labels=labels.npy", "--loss", "nll", "--optimizer", "SGD(0.1)", "--check"]
    for y, code in (("Softmax(z)", 0), ("z", 1)):
        (tmp_path / "net.pgraph").write_text(net("z = x @ w + b", y))
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == code, done.stderr
        assert ("problem: 'y' holds no probabilities" in done.stdout) == bool(code)
