"""The callback that keeps a row for each epoch in a file."""

from __future__ import annotations

from pathlib import Path

from popgraph.support.pace import Pace
from popgraph.training.callbacks import Callback, Trained
from popgraph.training.history import Row

EVERY = 1.0
"""Seconds: short epochs do not write their log again and again."""


class Log(Callback):
    """Keeps the epochs as .csv or .jsonl: whole after epochs, and however the training ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pace = Pace(EVERY)

    def on_epoch(self, trainer: Trained, row: Row) -> None:
        if self._pace.is_due():
            with self._pace.kept():
                trainer.history.write(self._path)

    def on_end(self, trainer: Trained) -> None:
        trainer.history.write(self._path)
