"""Tests callbacks and learning-rate schedules under Keras' names."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from math import cos, pi
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popgraph
from popgraph.callbacks import (
    Callback,
    CosineDecay,
    CosineDecayRestarts,
    CSVLogger,
    EarlyStopping,
    ExponentialDecay,
    InverseTimeDecay,
    LambdaCallback,
    LearningRateSchedule,
    LearningRateScheduler,
    ModelCheckpoint,
    PiecewiseConstantDecay,
    PolynomialDecay,
    ReduceLROnPlateau,
    TerminateOnNaN,
)
from popgraph.support.errors import PopgraphError
from popgraph.support.ranks.communicator import SingleRank
from popgraph.training.ranks import Ranks
from popgraph.training.trainer import Trainer

NET = """
graph net(x: f32[N, 4]) -> (y: f32[N, 3]) {
    weight w: f32[4, 3] = glorot_uniform(seed=1)
    y = x @ w
}
"""
RNG = np.random.default_rng(5)
X = RNG.normal(size=(24, 4)).astype(np.float32)
LABELS = RNG.integers(0, 3, 24)


def trainer_of(optimizer: str = "SGD(0.5)", **options: Any) -> Trainer:
    return Trainer(NET, "cross_entropy", optimizer, backend="reference", **options)


class Replaying(Callback):
    """Replaces the monitored value of each epoch; real measurements are hard to choose."""

    def __init__(self, inner: Callback, values: Sequence[float]) -> None:
        self.inner, self.values = inner, values
        self.sets_learning_rate, self.sets_weights = inner.sets_learning_rate, inner.sets_weights

    def on_train_begin(self, logs: dict[str, float] | None = None) -> None:
        self.inner.on_start(self.model)

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        self.inner.on_epoch_end(epoch, {"val_loss": self.values[epoch]})

    def on_train_end(self, logs: dict[str, float] | None = None) -> None:
        self.inner.on_train_end(logs)


def epochs_with(callback: Callback, values: Sequence[float], **options: Any) -> Trainer:
    """A training of one step for each value of `val_loss`."""
    trainer = trainer_of(**options)
    trainer.fit(X, LABELS, epochs=len(values), batch=24, callbacks=[Replaying(callback, values)])
    return trainer


@pytest.mark.parametrize(
    ("options", "values", "epochs"),
    [
        ({}, [3, 2, 1, 1, 0], 4),
        ({"patience": 2}, [3, 2, 2, 2.5, 0, 0], 4),
        ({"patience": 2}, [3, 2, 2, 1, 1, 1, 0], 6),
        ({"patience": 1, "min_delta": 0.5}, [3, 2, 1.6, 0], 3),
        ({"patience": 1, "mode": "max"}, [3, 2, 4], 2),
        ({"patience": 2, "baseline": 1.0}, [3, 2, 0.5, 0.4], 2),
        ({"patience": 1, "start_from_epoch": 3}, [1, 2, 3, 4, 4, 0], 5),
        ({"patience": 9}, [1, 2, 3], 3),
    ],
)
def test_early_stopping(options: dict[str, Any], values: list[float], epochs: int) -> None:
    """With patience 0, the first epoch without improvement is the last one."""
    callback = EarlyStopping(**options)
    trainer = epochs_with(callback, values)
    assert len(trainer.history.epochs) == epochs
    assert callback.stopped_epoch == (epochs - 1 if epochs < len(values) else 0)
    assert bool(trainer.stopped) == (epochs < len(values)) == trainer.stop_training


def test_early_stopping_restores_the_weights_of_the_best_epoch() -> None:
    best = trainer_of()
    best.fit(X, LABELS, epochs=2, batch=24)
    restored = epochs_with(EarlyStopping(patience=2, restore_best_weights=True), [3, 1, 2, 2, 2])
    kept = epochs_with(EarlyStopping(patience=2), [3, 1, 2, 2, 2])
    np.testing.assert_array_equal(restored.weights()["w"], best.weights()["w"])
    assert (np.asarray(kept.weights()["w"]) != best.weights()["w"]).any()


def test_the_direction_is_that_of_the_metric() -> None:
    trainer = trainer_of(metrics="accuracy")
    callback = EarlyStopping("accuracy")
    trainer.fit(X, LABELS, epochs=9, callbacks=[callback])
    values = trainer.history["accuracy"]
    assert callback.best == max(values)


@pytest.mark.parametrize(
    ("options", "values", "rates"),
    [
        ({"patience": 1, "factor": 0.5}, [3, 3, 3, 2, 2], [0.4, 0.4, 0.2, 0.1, 0.1]),
        ({"patience": 2, "factor": 0.5}, [3, 3, 3, 3, 3], [0.4, 0.4, 0.4, 0.2, 0.2]),
        ({"patience": 1, "factor": 0.5, "cooldown": 2}, [3, 3, 3, 3, 3], [0.4, 0.4, 0.2, 0.2, 0.1]),
        ({"patience": 1, "min_lr": 0.3}, [3, 3, 3, 3], [0.4, 0.4, 0.3, 0.3]),
        ({"patience": 1, "min_delta": 0.2, "factor": 0.5}, [3, 2.9, 2.8], [0.4, 0.4, 0.2]),
    ],
)
def test_reduce_on_plateau(
    options: dict[str, Any], values: list[float], rates: list[float]
) -> None:
    """The rates of the steps; a reduction after an epoch holds from the next one."""
    trainer = epochs_with(ReduceLROnPlateau(**options), values, optimizer="SGD(0.4)")
    assert [row["learning_rate"] for row in trainer.history.steps] == pytest.approx(rates)


@pytest.mark.parametrize("accumulate", [None, 2])
@pytest.mark.parametrize("optimizer", ["SGD(0.4, momentum=0.9)", "Adam(0.4)"])
def test_a_set_learning_rate_is_that_of_a_schedule(optimizer: str, accumulate: int | None) -> None:
    """Also if it is first needed after a step was compiled with a constant rate."""
    rates = [0.4, 0.2, 0.1]
    expected = trainer_of(optimizer, schedule=lambda step: [1, 0.5, 0.25][step])
    expected.fit(X, LABELS, epochs=3, batch=24)
    setting = LearningRateScheduler(lambda epoch, rate: rate if epoch == 0 else rate / 2)
    by_epoch = LearningRateScheduler(lambda epoch: rates[epoch])
    for callback in (setting, by_epoch):
        trainer = trainer_of(optimizer, accumulate=accumulate)
        trainer.prepare(X, LABELS, batch=24)
        trainer.fit(X, LABELS, epochs=3, batch=24, callbacks=[callback])
        np.testing.assert_allclose(
            trainer.weights()["w"], expected.weights()["w"], rtol=1e-5, atol=1e-6
        )
        assert [row["learning_rate"] for row in trainer.history.steps] == pytest.approx(rates)


def test_a_resumed_training_continues_at_the_reduced_rate(tmp_path: Path) -> None:
    def halve(epoch: int, rate: float) -> float:
        return rate / 2 if epoch else rate

    whole, first, second = trainer_of(), trainer_of(), trainer_of()
    whole.fit(X, LABELS, epochs=4, callbacks=[LearningRateScheduler(halve)])
    settings = {"checkpoint": tmp_path / "run.ckpt", "resume": True}
    first.fit(X, LABELS, epochs=2, callbacks=[LearningRateScheduler(halve)], **settings)
    second.fit(X, LABELS, epochs=4, callbacks=[LearningRateScheduler(halve)], **settings)
    assert second.history["loss"] == whole.history["loss"]
    assert second.learning_rate == whole.learning_rate == 0.5 / 8


def test_the_learning_rate_may_be_set_between_trainings() -> None:
    trainer = trainer_of()
    assert trainer.learning_rate == 0.5
    trainer.fit(X, LABELS, batch=24)
    trainer.learning_rate = 0.25
    trainer.fit(X, LABELS, batch=24)
    assert [row["learning_rate"] for row in trainer.history.steps] == [0.5, 0.25]
    setting = LambdaCallback(on_epoch_end=lambda epoch, logs: setattr(plain, "learning_rate", 0.1))
    plain = trainer_of()
    with pytest.raises(PopgraphError, match="the compiled step has a constant learning rate"):
        plain.fit(X, LABELS, callbacks=[setting])
    with pytest.raises(PopgraphError, match="the schedule decides the learning rate"):
        trainer_of(schedule="cosine(steps=9)").fit(
            X, LABELS, callbacks=[LearningRateScheduler(lambda epoch: 0.1)]
        )


def test_model_checkpoints(tmp_path: Path) -> None:
    """Only improvements are saved; the name has fields."""
    best = ModelCheckpoint(
        tmp_path / "best-{epoch:02d}-{loss:.1f}.onnx", "loss", save_best_only=True
    )
    weights = ModelCheckpoint(
        tmp_path / "{epoch}-{batch}.safetensors", save_weights_only=True, save_freq=2
    )
    trainer = trainer_of("SGD(0.1)")
    trainer.fit(X, LABELS, epochs=2, batch=8, shuffle=False, callbacks=[best, weights])
    loss = trainer.history["loss"]
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {
        f"best-01-{loss[0]:.1f}.onnx",
        f"best-02-{loss[1]:.1f}.onnx",
        *("1-2.safetensors", "2-1.safetensors", "2-3.safetensors"),
    }
    saved = popgraph.compile(tmp_path / f"best-02-{loss[1]:.1f}.onnx", backend="reference")
    np.testing.assert_allclose(saved({"x": X})["y"], trainer.predict(X), rtol=1e-6)
    expected = trainer.weights()["w"]
    other = trainer_of()
    other.prepare(X, LABELS)
    other.load_weights(tmp_path / "2-3.safetensors")
    np.testing.assert_array_equal(other.predict(np.eye(4, dtype=np.float32)), expected)


def test_a_threshold_holds_the_first_checkpoint_back(tmp_path: Path) -> None:
    callback = ModelCheckpoint(
        tmp_path / "{epoch}.onnx", "loss", save_best_only=True, initial_value_threshold=0.0
    )
    trainer_of().fit(X, LABELS, callbacks=[callback])
    assert not [*tmp_path.iterdir()]


def test_csv_logger(tmp_path: Path) -> None:
    trainer = trainer_of(metrics="accuracy")
    for number in range(2):
        logger = CSVLogger(tmp_path / "log.csv", append=number > 0)
        trainer.fit(X, LABELS, epochs=2, validation_data=(X, LABELS), callbacks=[logger])
    rows = [*csv.DictReader((tmp_path / "log.csv").open())]
    assert [*rows[0]] == ["epoch", "accuracy", "loss", "val_accuracy", "val_loss"]
    assert [row["epoch"] for row in rows] == ["0", "1", "2", "3"]
    assert [float(row["val_loss"]) for row in rows] == trainer.history["val_loss"]


def test_terminate_on_nan_ends_where_a_loss_would_be_an_error() -> None:
    x = X.copy()
    x[12] = np.inf
    trainer = trainer_of()
    trainer.fit(x, LABELS, epochs=3, batch=8, shuffle=False, callbacks=[TerminateOnNaN()])
    assert trainer.stopped == "the loss is not finite in batch 1"
    assert len(trainer.history.steps) == 2
    with pytest.raises(PopgraphError, match="in step 2"):
        trainer_of().fit(x, LABELS, epochs=3, batch=8, shuffle=False)


def test_the_methods_of_a_callback_are_called_in_keras_order() -> None:
    calls: list[object] = []

    def noted(name: str) -> Any:
        return lambda *given: calls.append((name, *given[:-1]))

    names = ("train_begin", "epoch_begin", "train_batch_begin")
    names += ("train_batch_end", "epoch_end", "train_end")
    callback = LambdaCallback(**{f"on_{name}": noted(name) for name in names})
    trainer_of().fit(X, LABELS, epochs=2, batch=12, callbacks=[callback])
    batches = [(f"train_batch_{end}", at) for at in (0, 1) for end in ("begin", "end")]
    epochs = [[("epoch_begin", at), *batches, ("epoch_end", at)] for at in (0, 1)]
    assert calls == [("train_begin",), *epochs[0], *epochs[1], ("train_end",)]


class StopsAtOnce(Callback):
    """A user's class in Keras' style: no call of `__init__` of the base class."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        self.seen.append((logs or {})["loss"])
        self.model.stop_training = True


def test_a_users_class_in_keras_style() -> None:
    callback, trainer = StopsAtOnce(), trainer_of()
    trainer.fit(X, LABELS, epochs=2, batch=8, callbacks=[callback])
    assert callback.seen == [trainer.history.steps[0]["loss"]]
    assert trainer.stop_training and len(trainer.history.steps) == 1


SCHEDULES: list[tuple[LearningRateSchedule, dict[int, float]]] = [
    (ExponentialDecay(0.1, 10, 0.5), {0: 0.1, 5: 0.1 * 0.5**0.5, 20: 0.025}),
    (ExponentialDecay(0.1, 10, 0.5, staircase=True), {9: 0.1, 10: 0.05, 29: 0.025}),
    (InverseTimeDecay(0.1, 10, 0.5), {0: 0.1, 5: 0.1 / 1.25, 20: 0.05}),
    (InverseTimeDecay(0.1, 10, 0.5, staircase=True), {9: 0.1, 10: 0.1 / 1.5}),
    (PolynomialDecay(0.1, 10, 0.02, 2.0), {0: 0.1, 5: 0.08 / 4 + 0.02, 10: 0.02, 99: 0.02}),
    (PolynomialDecay(0.1, 10, 0.02, cycle=True), {0: 0.1, 10: 0.02, 15: 0.04, 20: 0.02}),
    (PiecewiseConstantDecay([10, 20], [1.0, 0.5, 0.1]), {0: 1, 10: 1, 11: 0.5, 20: 0.5, 21: 0.1}),
    (CosineDecay(0.1, 10, 0.1), {0: 0.1, 5: 0.055, 10: 0.01, 99: 0.01}),
    (
        CosineDecay(0.0, 10, warmup_target=0.1, warmup_steps=4),
        {0: 0.0, 2: 0.05, 4: 0.1, 9: 0.05, 14: 0.0},
    ),
    (
        CosineDecayRestarts(0.1, 10, m_mul=0.5),
        {0: 0.1, 5: 0.05, 10: 0.05, 20: 0.025, 30: 0.025, 29: 0.025 * (1 + cos(pi * 0.95))},
    ),
    (CosineDecayRestarts(0.1, 10, t_mul=1.0, alpha=0.1), {5: 0.055, 10: 0.1, 25: 0.055}),
]


@pytest.mark.parametrize(("schedule", "rates"), SCHEDULES)
def test_schedules_give_the_rates_of_keras(
    schedule: LearningRateSchedule, rates: dict[int, float]
) -> None:
    assert {step: schedule(step) for step in rates} == pytest.approx(rates)


@pytest.mark.parametrize("optimizer", ["SGD(0.7)", "Adam"])
def test_a_schedule_object_is_the_learning_rate(optimizer: str) -> None:
    """It replaces the optimizer's own rate; a warmup may begin at 0."""
    schedule = CosineDecay(0.0, 4, warmup_target=0.2, warmup_steps=2)
    trainer = trainer_of(optimizer, schedule=schedule)
    trainer.fit(X, LABELS, batch=8, epochs=2)
    found = [row["learning_rate"] for row in trainer.history.steps]
    assert found == pytest.approx([schedule(step) for step in range(6)])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ReduceLROnPlateau(factor=1.0), "a factor of 1.0 does not reduce"),
        (lambda: EarlyStopping(mode="best"), "unknown mode 'best'"),
        (lambda: ModelCheckpoint("net.keras"), ".onnx"),
        (lambda: ModelCheckpoint("w.h5", save_weights_only=True), "weights are saved as .safetens"),
        (lambda: ModelCheckpoint("net.onnx", save_freq=0), "save_freq is 'epoch' or a number"),
        (lambda: PiecewiseConstantDecay([1], [0.1]), "give 2 values"),
    ],
)
def test_what_cannot_work_is_refused_at_once(make: Any, message: str) -> None:
    with pytest.raises(PopgraphError) as caught:
        make()
    assert message in str(caught.value)


class TwoRanks(SingleRank):
    size = 2


def test_several_ranks_refuse_callbacks_that_would_change_one_of_them() -> None:
    trainer = trainer_of()
    trainer._ranks = Ranks(TwoRanks())
    with pytest.raises(PopgraphError, match="would continue with another learning rate"):
        trainer.fit(X, LABELS, callbacks=[ReduceLROnPlateau()])
    with pytest.raises(PopgraphError, match="would continue with other weights"):
        trainer.fit(X, LABELS, callbacks=[EarlyStopping(restore_best_weights=True)])


def test_what_no_epoch_has_is_refused(tmp_path: Path) -> None:
    trainer = trainer_of()
    with pytest.raises(PopgraphError, match=r"val_... needs validation data"):
        trainer.fit(X, LABELS, callbacks=[EarlyStopping()])
    with pytest.raises(PopgraphError, match="has the field 'val_acc', which no measurement has"):
        trainer.fit(X, LABELS, callbacks=[ModelCheckpoint(tmp_path / "{val_acc}.onnx")])
    with pytest.raises(PopgraphError, match="the model has no trained weight 'v'"):
        trainer.set_weights({"v": X})
    with pytest.raises(PopgraphError, match=r"weight 'w' has the shape \[4, 3\], not \[24, 4\]"):
        trainer.set_weights({"w": X})
