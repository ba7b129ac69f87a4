"""Callbacks: user code that runs before, during and after training."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from popgraph.compiler import BuildRequest
from popgraph.support.arrays import Array
from popgraph.support.pace import Pace
from popgraph.training.checks import Layer
from popgraph.training.history import History, Row


class Trained(Protocol):
    """The trainer as its callbacks see it."""

    planned: int | None
    stopped: str
    """Why training ends before its last epoch; empty while it continues."""

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

    def request(self) -> BuildRequest:
        """The build request of the last step's program."""

    def stop(self, why: str) -> None:
        """Ends training after the current step or epoch."""

    def save(self, path: str | Path) -> None:
        """Writes the current model for inference."""


class Callback:
    """Base class of callbacks; methods that a subclass leaves out do nothing."""

    def on_start(self, trainer: Trained) -> None:
        """Called before the first step."""

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
        self._pace = Pace(EVERY)

    def on_epoch(self, trainer: Trained, row: Row) -> None:
        if self._pace.is_due():
            with self._pace.kept():
                trainer.history.write(self._path)

    def on_end(self, trainer: Trained) -> None:
        trainer.history.write(self._path)
