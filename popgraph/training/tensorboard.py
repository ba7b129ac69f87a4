"""The callback that writes training curves for TensorBoard."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from popgraph.support.errors import PopgraphError
from popgraph.training.callbacks import Callback, Trained
from popgraph.training.history import Row


class TensorBoard(Callback):
    """Writes rows of steps (`step/loss`) and of epochs (`epoch/val_loss`) into a folder."""

    def __init__(self, folder: str | Path) -> None:
        try:
            self._make: Any = import_module("tensorboardX").SummaryWriter
        except ImportError as error:
            raise PopgraphError(
                f"TensorBoard's files cannot be written: {error}",
                hint="pip install popgraph[tensorboard]",
            ) from error
        self._folder = str(folder)
        self._writer: Any = None

    def on_start(self, trainer: Trained) -> None:
        self._writer = self._make(self._folder)

    def on_step(self, trainer: Trained, row: Row) -> None:
        self._write("step", row)

    def on_epoch(self, trainer: Trained, row: Row) -> None:
        self._write("epoch", row)

    def on_end(self, trainer: Trained) -> None:
        self._writer.close()

    def _write(self, group: str, row: Row) -> None:
        for name, number in row.items():
            if name not in ("step", "epoch"):
                self._writer.add_scalar(f"{group}/{name}", number, int(row["step"]))
