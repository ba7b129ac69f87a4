"""The callback that writes one row per epoch to a file."""

from __future__ import annotations

from pathlib import Path

from popgraph.support.pace import RateLimit
from popgraph.training.callbacks import Callback, Trained
from popgraph.training.history import Row

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
