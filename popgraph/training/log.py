"""Callbacks that write one row per epoch, to a file or to the terminal."""

from __future__ import annotations

from pathlib import Path

from popgraph.support.pace import Pace
from popgraph.training.callbacks import Callback, Trained
from popgraph.training.history import Row, measured, told

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


class EpochLines(Callback):
    """Prints a line after each epoch, as `verbose=2` does in Keras."""

    def on_epoch(self, trainer: Trained, row: Row) -> None:
        values = [f"{name}: {told(name, row[name])}" for name in measured(row)]
        seconds = told("seconds", row["seconds"])
        print(" - ".join([f"Epoch {int(row['epoch'])}", f"{seconds}s", *values]), flush=True)
