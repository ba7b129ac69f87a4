"""Callbacks: user code that runs before, during and after training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Protocol

from popgraph.compiler import BuildRequest
from popgraph.support.arrays import Array
from popgraph.support.pace import RateLimit
from popgraph.training.checks import Layer
from popgraph.training.history import History, Row, format_measurement, measurement_names
from popgraph.training.metrics import Metric


class Trained(Protocol):
    """The trainer as its callbacks see it."""

    planned: int | None
    stopped: str
    """Why training ends before its last epoch; empty while it continues."""
    stop_training: bool
    """Whether training ends after the current step or epoch, as in Keras."""
    learning_rate: float
    """The current learning rate."""

    @property
    def metrics(self) -> Sequence[Metric]:
        """The metrics besides the loss."""

    @property
    def history(self) -> History:
        """The measurements so far."""

    @property
    def facts(self) -> Mapping[str, str]:
        """Descriptions of the optimizer and the data."""

    def layers(self) -> tuple[Layer, ...]:
        """Size of each weight now, and of its gradient on the batch of the last step."""

    def weights(self) -> Mapping[str, Array]:
        """The current weights of the model."""

    def set_weights(self, weights: Mapping[str, Array]) -> None:
        """Replaces weights of the model by name."""

    def request(self) -> BuildRequest:
        """The build request of the last step's program."""

    def stop(self, why: str) -> None:
        """Ends training after the current step or epoch."""

    def save(self, path: str | Path) -> None:
        """Writes the current model for inference."""


class Callback:
    """Base class of callbacks; methods that a subclass leaves out do nothing."""

    sets_learning_rate: bool = False
    """Whether it sets `trainer.learning_rate`, which the compiled step must then read."""
    sets_weights: bool = False
    """Whether it calls `trainer.set_weights`."""
    tolerates_nan: ClassVar[bool] = False
    """Whether it ends the training at a loss that is not finite, instead of an error."""

    def on_start(self, trainer: Trained) -> None:
        """Called before the first step."""

    def on_epoch_start(self, trainer: Trained, epoch: int, batch: int) -> None:
        """Called before an epoch, counted from 0; `batch` is 0, unless a checkpoint resumes it."""

    def on_step_start(self, trainer: Trained) -> None:
        """Called before every step."""

    def on_step(self, trainer: Trained, row: Row) -> None:
        """Called after every step, with its row of the history."""

    def on_epoch(self, trainer: Trained, row: Row) -> None:
        """Called after every epoch and its validation, with its row of the history."""

    def on_end(self, trainer: Trained) -> None:
        """Called after the last step, however training ended."""


EVERY = 1.0
"""Minimal seconds between two writes, so that short epochs do not rewrite the file each time."""


class Log(Callback):
    """Writes the epochs as .csv or .jsonl, complete after each write and at the end of training."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pace = RateLimit(EVERY)

    def on_epoch(self, trainer: Trained, row: Row) -> None:
        if self._pace.is_due():
            with self._pace.measured():
                trainer.history.write(self._path)

    def on_end(self, trainer: Trained) -> None:
        trainer.history.write(self._path)


class EpochLines(Callback):
    """Prints a line after each epoch, as `verbose=2` does in Keras."""

    def on_epoch(self, trainer: Trained, row: Row) -> None:
        values = [
            f"{name}: {format_measurement(name, row[name])}" for name in measurement_names(row)
        ]
        seconds = format_measurement("seconds", row["seconds"])
        print(" - ".join([f"Epoch {int(row['epoch'])}", f"{seconds}s", *values]), flush=True)
