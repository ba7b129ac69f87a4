"""The callback that plots training curves."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from popgraph.support.charts.text import text
from popgraph.support.pace import RateLimit
from popgraph.training.callbacks import Callback, Trained
from popgraph.training.history import Row

EVERY = 1.0
"""Minimal seconds between two plots."""


class Curves(Callback):
    """Plots training curves: live in a notebook, otherwise as text at the end."""

    def __init__(self) -> None:
        self._picture: Any = None
        self._pace = RateLimit(EVERY)

    def on_start(self, trainer: Trained) -> None:
        if _is_notebook():
            display = import_module("IPython.display").display
            self._picture = display(trainer.history, display_id=True)

    def on_step(self, trainer: Trained, row: Row) -> None:
        if self._picture is not None and self._pace.is_due():
            with self._pace.measured():
                self._picture.update(trainer.history)

    def on_end(self, trainer: Trained) -> None:
        if self._picture is not None:
            self._picture.update(trainer.history)
            return
        for chart in trainer.history.charts():
            print(text(chart), end="\n\n")


def _is_notebook() -> bool:
    """Whether this runs in a notebook, where plots can be updated."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None
