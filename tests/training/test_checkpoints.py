"""Tests checkpoints: an interrupted training ends with the same bits as an uninterrupted one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from popgraph.support.arrays import Array
from popgraph.support.errors import PopgraphError
from popgraph.training.callbacks import Callback, Trained
from popgraph.training.checkpoints import CheckpointWriter
from popgraph.training.history import Row
from popgraph.training.trainer import Trainer

NET = """
graph net(x: f32[N, 6]) -> (y: f32[N, 3]) {
    weight w: f32[6, 8] = glorot_uniform
    weight v: f32[8, 3] = glorot_uniform
    h = x @ w |> Relu |> Dropout(0.3)
    y = h @ v
}
"""
RNG = np.random.default_rng(7)
X = RNG.normal(size=(50, 6)).astype(np.float32)
LABELS = X[:, :3].argmax(1)
SETTINGS: dict[str, Any] = {"batch": 8, "seed": 3, "validation": 0.2, "monitor": "val_loss"}


class StopAt(Callback):
    """Interrupts the training at a step, as a signal would."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step(self, trainer: Trained, row: Row) -> None:
        if row["step"] == self.step:
            signal.raise_signal(signal.SIGINT)


def trainer(optimizer: str = "Adam(0.02)", schedule: str | None = "cosine(steps=20)") -> Trainer:
    return Trainer(NET, "cross_entropy", optimizer, schedule=schedule, metrics=["accuracy", "f1"])


def rows_without_times(found: Trainer) -> tuple[list[Row], list[Row]]:
    """The rows of epochs and steps, without times."""
    epochs = [
        {name: number for name, number in row.items() if name != "seconds"}
        for row in found.history.epochs
    ]
    return epochs, found.history.steps


def weights(found: Trainer, path: Path) -> bytes:
    found.save(path)
    return path.read_bytes()


@pytest.mark.parametrize("step", [1, 5, 7, 10, 19])
def test_a_resumed_training_has_the_same_bits(step: int, tmp_path: Path) -> None:
    """Interrupts in the first batch, within and at the end of an epoch; Adam, dropout, schedule."""
    whole, file = trainer(), tmp_path / "run.ckpt"
    whole.fit((X, LABELS), epochs=4, **SETTINGS)
    broken = trainer()
    with pytest.raises(KeyboardInterrupt, match=f"step {step} is in .*run.ckpt"):
        broken.fit((X, LABELS), epochs=4, checkpoint=file, callbacks=[StopAt(step)], **SETTINGS)
    assert len(broken.history.steps) == step
    again = trainer()
    again.fit((X, LABELS), epochs=4, checkpoint=file, resume=True, **SETTINGS)
    assert rows_without_times(again) == rows_without_times(whole)
    assert weights(again, tmp_path / "a.onnx") == weights(whole, tmp_path / "b.onnx")


def test_a_finished_run_has_nothing_left_to_do(tmp_path: Path) -> None:
    file = tmp_path / "run.ckpt"
    first = trainer()
    first.fit((X, LABELS), epochs=2, checkpoint=file, resume=True, **SETTINGS)
    second = trainer()
    second.fit((X, LABELS), epochs=2, checkpoint=file, resume=True, **SETTINGS)
    assert second.planned == 0
    assert rows_without_times(second) == rows_without_times(first)
    second.fit((X, LABELS), epochs=3, checkpoint=file, resume=True, **SETTINGS)
    assert len(second.history.epochs) == 3


@pytest.mark.parametrize("steps", [3, 5])
def test_more_steps_continue_in_the_data(steps: int, tmp_path: Path) -> None:
    """The first run ends within an epoch, which has a row then, or at its end."""
    file = tmp_path / "run.ckpt"
    whole, first, same, more = (trainer() for _ in range(4))
    whole.fit((X, LABELS), steps=6, **SETTINGS)
    first.fit((X, LABELS), steps=steps, checkpoint=file, **SETTINGS)
    same.fit((X, LABELS), steps=steps, checkpoint=file, resume=True, **SETTINGS)
    assert rows_without_times(same) == rows_without_times(first)
    assert len(first.history.epochs) == 1
    more.fit((X, LABELS), steps=6, checkpoint=file, resume=True, **SETTINGS)
    assert rows_without_times(more) == rows_without_times(whole)
    assert weights(more, tmp_path / "a.onnx") == weights(whole, tmp_path / "b.onnx")


def test_a_signal_between_two_steps_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_due(_: CheckpointWriter, steps: int) -> bool:
        if steps == 2:
            signal.raise_signal(signal.SIGINT)
        return False

    monkeypatch.setattr(CheckpointWriter, "is_due", is_due)
    with pytest.raises(KeyboardInterrupt, match="step 2 is in"):
        trainer().fit((X, LABELS), checkpoint=tmp_path / "run.ckpt", **SETTINGS)


def test_patience_continues_after_resuming(tmp_path: Path) -> None:
    file = tmp_path / "run.ckpt"
    settings = SETTINGS | {"patience": 2, "schedule": None}
    settings.pop("schedule")
    whole = trainer("SGD(0)", None)
    whole.fit((X, LABELS), epochs=9, **settings)
    first = trainer("SGD(0)", None)
    with pytest.raises(KeyboardInterrupt):
        first.fit((X, LABELS), epochs=9, checkpoint=file, callbacks=[StopAt(11)], **settings)
    second = trainer("SGD(0)", None)
    second.fit((X, LABELS), epochs=9, checkpoint=file, resume=True, **settings)
    assert "did not improve" in second.stopped
    assert rows_without_times(second) == rows_without_times(whole)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"optimizer": "Adam(0.03)"}, "differs in optimizer"),
        ({"rows": 30}, "differs in data: 40 samples, not 24 samples"),
        ({"seed": 4}, "differs in batches: 8 samples, in the order of seed 3, not"),
        ({"batch": 4}, "differs in batches"),
        ({"drop_last": True}, "differs in last batches: kept, not left out"),
        ({"net": NET.replace("8", "9")}, "another model or optimizer"),
    ],
)
def test_a_checkpoint_of_another_training_is_refused(
    change: dict[str, Any], said: str, tmp_path: Path
) -> None:
    file, settings = tmp_path / "run.ckpt", dict(SETTINGS)
    trainer().fit((X, LABELS), epochs=1, checkpoint=file, **settings)
    rows = change.pop("rows", 50)
    other = trainer(change.pop("optimizer", "Adam(0.02)"))
    if "net" in change:
        schedule = "cosine(steps=20)"
        other = Trainer(change.pop("net"), "cross_entropy", "Adam(0.02)", schedule=schedule)
    settings |= change
    before = file.read_bytes()
    with pytest.raises(PopgraphError, match=said):
        other.fit((X[:rows], LABELS[:rows]), epochs=2, checkpoint=file, resume=True, **settings)
    assert file.read_bytes() == before


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def other_kind(data: bytes) -> bytes:
    return b"PK" + data[2:]


def other_format(data: bytes) -> bytes:
    return data.replace(b'\\"format\\": 1', b'\\"format\\": 9')


@pytest.mark.parametrize("damage", [cut, other_kind, other_format])
def test_a_damaged_file_is_refused(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    file = tmp_path / "run.ckpt"
    trainer().fit((X, LABELS), epochs=1, checkpoint=file, **SETTINGS)
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(PopgraphError, match="cannot be read"):
        trainer().fit((X, LABELS), epochs=2, resume=file, **SETTINGS)


def test_a_missing_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PopgraphError, match="cannot be read"):
        trainer().fit((X, LABELS), resume=tmp_path / "none.ckpt", **SETTINGS)
    with pytest.raises(PopgraphError, match="resume=True requires a checkpoint"):
        trainer().fit((X, LABELS), resume=True, **SETTINGS)


@pytest.mark.parametrize("every", [0, -3, "often", "5 days", "min"])
def test_invalid_intervals_are_refused(every: int | str) -> None:
    with pytest.raises(PopgraphError, match="invalid checkpoint interval"):
        CheckpointWriter.of("run.ckpt", every)


def test_intervals_are_steps_or_times(tmp_path: Path) -> None:
    assert CheckpointWriter.of("a", "1.5 min").seconds == 90
    assert CheckpointWriter.of("a", "2h").seconds == 7200
    file, seen = tmp_path / "run.ckpt", list[int]()

    class Look(Callback):
        def on_step(self, trainer: Trained, row: Row) -> None:
            if file.exists():
                seen.append(int(row["step"]))

    trainer().fit((X, LABELS), epochs=1, checkpoint=file, every=3, callbacks=[Look()], **SETTINGS)
    assert seen == [4, 5]


def test_a_step_that_is_not_finite_is_not_saved(tmp_path: Path) -> None:
    file = tmp_path / "run.ckpt"
    spoilt: Array = X.copy()
    spoilt[17, 2] = np.inf
    found = trainer("SGD(0.1)", None)
    with pytest.raises(PopgraphError, match=r"epoch 1: input 'x' holds inf in sample 17 of the"):
        found.fit((spoilt, LABELS), epochs=3, checkpoint=file, every=1, batch=8, seed=1)
    again = trainer("SGD(0.1)", None)
    steps = len(found.history.steps)
    with pytest.raises(PopgraphError, match=f"step {steps}, epoch 1"):
        again.fit((spoilt, LABELS), epochs=3, checkpoint=file, resume=True, batch=8, seed=1)


def test_the_first_value_that_is_not_finite_is_named(tmp_path: Path) -> None:
    """Weights grow until an inner value overflows; the step is repeated to find the first one."""
    growing = """
    graph net(x: f32[N, 6]) -> (y: f32[N, 3]) {
        weight w: f32[6, 3] = glorot_uniform
        h = x @ w
        big = Exp(h * 3.0)
        y = big * 0.5
    }
    """
    found = Trainer(growing, "l1", "SGD(2.0)")
    with pytest.raises(PopgraphError, match=r"in step \d+, epoch \d+; 'big' was the first"):
        found.fit((X, np.eye(3, dtype=np.float32)[LABELS]), epochs=50, batch=8)


def test_the_command_resumes_after_sigterm(tmp_path: Path) -> None:
    """A run with SIGTERM in the middle, resumed, writes the same files as one run."""
    (tmp_path / "net.pgraph").write_text(NET)
    np.save(tmp_path / "x.npy", np.tile(X, (20, 1)))
    np.save(tmp_path / "labels.npy", np.tile(LABELS, 20))
    command = [sys.executable, "-m", "popgraph", "train", "net.pgraph", "x=x.npy"]
    command += ["labels=labels.npy", "--loss", "cross_entropy", "--optimizer", "Adam(0.01)"]
    command += ["--epochs", "6", "--batch", "8"]
    parted = [*command, "--checkpoint", "run.ckpt", "--every", "50", "--log", "a.jsonl"]
    started = subprocess.Popen(parted, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "a.jsonl").exists():  # written after the first epoch
        assert started.poll() is None
    os.kill(started.pid, signal.SIGTERM)
    _, said = started.communicate()
    assert started.returncode == 143, said
    assert "is in run.ckpt; --resume continues it" in said
    assert 1 <= len((tmp_path / "a.jsonl").read_text().splitlines()) < 6
    subprocess.run([*parted, "--resume", "-o", "a.onnx"], cwd=tmp_path, check=True)
    again = subprocess.run([*parted, "--resume"], cwd=tmp_path, capture_output=True, text=True)
    assert "run.ckpt ends where this training does: nothing is left to do" in again.stderr
    subprocess.run([*command, "-o", "b.onnx", "--log", "b.jsonl"], cwd=tmp_path, check=True)
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    for log in ("a.jsonl", "b.jsonl"):
        assert len((tmp_path / log).read_text().splitlines()) == 6
