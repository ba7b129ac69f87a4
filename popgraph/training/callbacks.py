"""Callbacks: what others do while a model is trained."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from popgraph.compiler import BuildRequest
from popgraph.support.arrays import Array
from popgraph.training.checks import Layer
from popgraph.training.history import History, Row


class Trained(Protocol):
    """What a callback sees of the trainer that calls it."""

    planned: int | None
    stopped: str
    """Why the training ends before its last epoch; empty while it goes on."""

    @property
    def history(self) -> History:
        """What was measured so far."""

    @property
    def facts(self) -> Mapping[str, str]:
        """What the optimizer and the data are."""

    def layers(self) -> tuple[Layer, ...]:
        """How large each weight is now, and its gradient on the batch of the last step."""

    def weights(self) -> Mapping[str, Array]:
        """The weights of the model, as they are now."""

    def request(self) -> BuildRequest:
        """What was compiled for the last step."""

    def stop(self, why: str) -> None:
        """Ends the training behind this step or epoch."""

    def save(self, path: str | Path) -> None:
        """Writes the model, as it is now, for inference."""


class Callback:
    """Is called while a model is trained; a method that a subclass leaves out does nothing."""

    def on_start(self, trainer: Trained) -> None:
        """Before the first step."""

    def on_step(self, trainer: Trained, row: Row) -> None:
        """After every step, with its row of the history."""

    def on_epoch(self, trainer: Trained, row: Row) -> None:
        """After every epoch and its validation, with its row of the history."""

    def on_end(self, trainer: Trained) -> None:
        """After the last step, however the training ended."""
