"""Keras' callbacks by their names: methods take the epoch or batch, from 0, and `logs`."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import signature
from io import StringIO
from math import inf, isfinite
from pathlib import Path

from popgraph.compiler.saving import check_kind
from popgraph.support.argument_types import check_types
from popgraph.support.arrays import Array
from popgraph.support.errors import ModelError
from popgraph.support.safetensors import safetensors
from popgraph.support.writing import append_to, write_file, write_text
from popgraph.training.callbacks import Callback as OurCallback
from popgraph.training.callbacks import Trained
from popgraph.training.history import VALIDATION, Row, measurement_names

Logs = dict[str, float]
"""Measurements by name: `loss`, metrics, and `val_loss` ... after an epoch."""


class Callback(OurCallback):
    """
    Base class of callbacks with Keras' methods; `self.model` is the trainer.

    `self.model.stop_training = True` ends the training. A class that sets
    `self.model.learning_rate` has `sets_learning_rate = True`.
    """

    # Defaults of the class: subclasses need not call its `__init__`.
    _epoch = 0
    _batch = 0
    _trainer: Trained | None = None

    @property
    def model(self) -> Trained:
        """The trainer; known while it trains."""
        assert self._trainer is not None, "a callback has a model once training has started"
        return self._trainer

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Called before the first step."""

    def on_train_end(self, logs: Logs | None = None) -> None:
        """Called after the last step, however training ended."""

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Called before the first step of an epoch, counted from 0."""

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Called after an epoch and its validation."""

    def on_train_batch_begin(self, batch: int, logs: Logs | None = None) -> None:
        """Called before a step; `batch` counts the steps of the epoch from 0."""

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Called after a step."""

    def on_start(self, trainer: Trained) -> None:
        self._trainer = trainer
        self.on_train_begin({})

    def on_epoch_start(self, trainer: Trained, epoch: int, batch: int) -> None:
        self._epoch, self._batch = epoch, batch
        self.on_epoch_begin(epoch, {})

    def on_step_start(self, trainer: Trained) -> None:
        self.on_train_batch_begin(self._batch, {})

    def on_step(self, trainer: Trained, row: Row) -> None:
        self.on_train_batch_end(self._batch, _logs(row))
        self._batch += 1

    def on_epoch(self, trainer: Trained, row: Row) -> None:
        self.on_epoch_end(self._epoch, _logs(row))

    def on_end(self, trainer: Trained) -> None:
        self.on_train_end({})


def _logs(row: Row) -> Logs:
    return {name: row[name] for name in measurement_names(row)}


@dataclass(frozen=True)
class _Better:
    """The comparison of a monitored value with the best one so far."""

    monitor: str
    mode: str
    margin: float = 0.0
    """Change that counts as an improvement."""

    def __post_init__(self) -> None:
        if self.mode not in ("auto", "min", "max"):
            raise ModelError(f"unknown mode {self.mode!r}", "mode", "pass 'auto', 'min' or 'max'")

    def value(self, logs: Logs) -> float:
        """The monitored value of an epoch."""
        if self.monitor not in logs:
            raise ModelError(
                f"no epoch has {self.monitor!r} to monitor",
                "monitor",
                f"one of {', '.join(map(repr, logs))}"
                + ("; val_... needs validation data" * self.monitor.startswith(VALIDATION)),
            )
        return logs[self.monitor]

    def is_larger_better(self, trainer: Trained) -> bool:
        """Whether larger values are better; `auto` asks the metric of this name."""
        name = self.monitor.removeprefix(VALIDATION)
        larger = any(one.larger_is_better for one in trainer.metrics if one.name == name)
        return self.mode == "max" or (self.mode == "auto" and larger)

    def improves(self, trainer: Trained, value: float, best: float | None) -> bool:
        """Whether a value is better than the best one by more than the margin."""
        if best is None:
            return True
        if self.is_larger_better(trainer):
            return value - self.margin > best
        return value + self.margin < best


class EarlyStopping(Callback):
    """
    Ends training if `monitor` has not improved by more than `min_delta` for `patience` epochs.

    With a `baseline`, only epochs that are better than it reset the patience. Epochs before
    `start_from_epoch` do not count. `restore_best_weights` ends with the weights of the best epoch.
    """

    @check_types()
    def __init__(
        self,
        monitor: str = "val_loss",
        min_delta: float = 0,
        patience: int = 0,
        verbose: int = 0,
        mode: str = "auto",
        baseline: float | None = None,
        restore_best_weights: bool = False,
        start_from_epoch: int = 0,
    ) -> None:
        super().__init__()
        self._better = _Better(monitor, mode, abs(min_delta))
        self.patience, self.verbose, self.baseline = patience, verbose, baseline
        self.restore_best_weights, self.start_from_epoch = restore_best_weights, start_from_epoch
        self.sets_weights = restore_best_weights

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self.wait, self.stopped_epoch, self.best_epoch = 0, 0, 0
        self.best: float | None = None
        self.best_weights: Mapping[str, Array] | None = None

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        if epoch < self.start_from_epoch:
            return
        value = self._better.value(logs or {})
        if self.restore_best_weights and self.best_weights is None:
            self.best_weights, self.best_epoch = self.model.weights(), epoch
        self.wait += 1
        if self._better.improves(self.model, value, self.best):
            self.best, self.best_epoch = value, epoch
            if self.restore_best_weights:
                self.best_weights = self.model.weights()
            if self.baseline is None or self._better.improves(self.model, value, self.baseline):
                self.wait = 0
                return
        if self.wait >= self.patience and epoch > 0:
            self.stopped_epoch = epoch
            name = self._better.monitor
            self.model.stop(f"{name} did not improve for {self.patience} epochs")
            if self.verbose:
                print(f"Epoch {epoch + 1}: early stopping", flush=True)

    def on_train_end(self, logs: Logs | None = None) -> None:
        if self.best_weights is not None:
            self.model.set_weights(self.best_weights)


class ReduceLROnPlateau(Callback):
    """
    Multiplies the learning rate by `factor` after `patience` epochs without an improvement.

    An improvement of `monitor` exceeds `min_delta`. After a reduction, `cooldown` epochs do not
    count. The rate does not fall below `min_lr`.
    """

    sets_learning_rate = True

    @check_types()
    def __init__(
        self,
        monitor: str = "val_loss",
        factor: float = 0.1,
        patience: int = 10,
        verbose: int = 0,
        mode: str = "auto",
        min_delta: float = 1e-4,
        cooldown: int = 0,
        min_lr: float = 0.0,
    ) -> None:
        super().__init__()
        if factor >= 1:
            raise ModelError(
                f"a factor of {factor} does not reduce the learning rate", "factor", "0.1"
            )
        self._better = _Better(monitor, mode, min_delta)
        self.factor, self.patience, self.verbose = factor, patience, verbose
        self.cooldown, self.min_lr = cooldown, min_lr

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self.wait, self.cooldown_counter = 0, 0
        self.best: float | None = None

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        value = self._better.value(logs or {})
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.wait = 0
        if self._better.improves(self.model, value, self.best):
            self.best, self.wait = value, 0
        elif self.cooldown_counter <= 0:
            self.wait += 1
            if self.wait >= self.patience:
                self._reduce(epoch)

    def _reduce(self, epoch: int) -> None:
        rate = self.model.learning_rate
        if rate <= self.min_lr:
            return
        self.model.learning_rate = max(rate * self.factor, self.min_lr)
        self.cooldown_counter, self.wait = self.cooldown, 0
        if self.verbose:
            print(
                f"Epoch {epoch + 1}: the learning rate is now {self.model.learning_rate:g}",
                flush=True,
            )


class LearningRateScheduler(Callback):
    """Sets the learning rate of each epoch to `schedule(epoch)` or `schedule(epoch, rate)`."""

    sets_learning_rate = True

    @check_types()
    def __init__(self, schedule: Callable[..., float], verbose: int = 0) -> None:
        super().__init__()
        self.schedule, self.verbose = schedule, verbose
        self._takes_rate = _takes(schedule, 2)

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        given = (epoch, self.model.learning_rate) if self._takes_rate else (epoch,)
        rate = float(self.schedule(*given))
        self.model.learning_rate = rate
        if self.verbose:
            print(f"Epoch {epoch + 1}: the learning rate is {rate:g}", flush=True)


def _takes(function: Callable[..., object], count: int) -> bool:
    """Whether a function can be called with this number of arguments."""
    try:
        signature(function).bind(*range(count))
    except TypeError:
        return False
    return True


class ModelCheckpoint(Callback):
    """
    Saves the model for inference (.onnx, .pgraph) after each epoch, or every `save_freq` batches.

    `filepath` may have fields: "net-{epoch:02d}-{val_loss:.2f}.onnx"; epochs are counted from 1.
    With `save_best_only`, a worse epoch saves nothing; `initial_value_threshold` is the value to
    beat at first. `save_weights_only` writes .safetensors, for `Trainer.load_weights`. To resume
    a training with the same bits, use `fit(checkpoint=...)` instead.
    """

    @check_types()
    def __init__(
        self,
        filepath: str | Path,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_best_only: bool = False,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: int | str = "epoch",
        initial_value_threshold: float | None = None,
    ) -> None:
        super().__init__()
        if not save_weights_only:
            check_kind(Path(filepath))
        elif Path(filepath).suffix != ".safetensors":
            raise ModelError(
                f"weights are saved as .safetensors, not {Path(filepath).suffix!r}",
                str(filepath),
                str(Path(filepath).with_suffix(".safetensors")),
            )
        by_steps = isinstance(save_freq, int) and not isinstance(save_freq, bool) and save_freq > 0
        if save_freq != "epoch" and not by_steps:
            raise ModelError(
                f"save_freq is 'epoch' or a number of batches, not {save_freq!r}", "save_freq"
            )
        self._better = _Better(monitor, mode)
        self.filepath, self.verbose = str(filepath), verbose
        self.save_best_only, self.save_weights_only = save_best_only, save_weights_only
        self.save_freq, self.best = save_freq, initial_value_threshold
        self._seen = 0

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        if isinstance(self.save_freq, int):
            self._seen += 1
            if self._seen >= self.save_freq:
                self._seen = 0
                self._save(logs or {}, batch=batch + 1)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        if self.save_freq == "epoch":
            self._save(logs or {})

    def _save(self, logs: Logs, **more: int) -> None:
        if self.save_best_only:
            value = self._better.value(logs)
            if not self._better.improves(self.model, value, self.best):
                return
            self.best = value
        path = Path(self._path({**logs, **more, "epoch": self._epoch + 1}))
        path.parent.mkdir(parents=True, exist_ok=True)
        if self.save_weights_only:
            write_file(path, safetensors(dict(self.model.weights()), {}))
        else:
            self.model.save(path)
        if self.verbose:
            print(f"Epoch {self._epoch + 1}: saved {path}", flush=True)

    def _path(self, fields: Mapping[str, object]) -> str:
        try:
            return self.filepath.format(**fields)
        except KeyError as error:
            raise ModelError(
                f"{self.filepath!r} has the field {error}, which no measurement has",
                "filepath",
                f"the fields are {', '.join(fields)}",
            ) from error


class CSVLogger(Callback):
    """
    Writes a row after each epoch: `epoch`, counted from 0, then measurements by name.

    `append` continues an existing file, without a second heading.
    """

    @check_types()
    def __init__(self, filename: str | Path, separator: str = ",", append: bool = False) -> None:
        super().__init__()
        self._path, self._separator, self._appends = Path(filename), separator, append
        self._keys: list[str] = []

    def on_train_begin(self, logs: Logs | None = None) -> None:
        if not self._appends:
            write_text(self._path, "")
        self._keys = []

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        values: dict[str, object] = dict(logs or {})
        text = StringIO()
        keys = self._keys or sorted(values)
        writer = csv.DictWriter(
            text,
            ["epoch", *keys],
            restval="NA",
            extrasaction="ignore",
            delimiter=self._separator,
            lineterminator="\n",
        )
        if not (self._path.exists() and self._path.stat().st_size):
            writer.writeheader()
        writer.writerow({"epoch": epoch, **values})
        append_to(self._path, text.getvalue().encode())
        self._keys = keys


class TerminateOnNaN(Callback):
    """Ends training at the first loss that is not finite; without it, that is an error."""

    tolerates_nan = True

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        if not isfinite(next(iter((logs or {"": inf}).values()))):
            self.model.stop(f"the loss is not finite in batch {batch}")


class LambdaCallback(Callback):
    """Calls functions with the arguments of Keras' methods of the same names."""

    @check_types()
    def __init__(
        self,
        on_epoch_begin: Callable[[int, Logs], object] | None = None,
        on_epoch_end: Callable[[int, Logs], object] | None = None,
        on_train_begin: Callable[[Logs], object] | None = None,
        on_train_end: Callable[[Logs], object] | None = None,
        on_train_batch_begin: Callable[[int, Logs], object] | None = None,
        on_train_batch_end: Callable[[int, Logs], object] | None = None,
    ) -> None:
        super().__init__()
        given = {name: value for name, value in locals().items() if name.startswith("on_")}
        for name, function in given.items():
            if function is not None:
                setattr(self, name, function)
