"""The callback that shows training as a page: live in the browser, and as a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from popgraph import compiler
from popgraph.support.charts.chart import Curve
from popgraph.support.charts.svg import sparkline, svg
from popgraph.support.pace import RateLimit
from popgraph.training.callbacks import Callback, Trained
from popgraph.training.checks import Layer
from popgraph.training.history import Row
from popgraph.viewer.document import Document, Part
from popgraph.viewer.viewing import View

NAME = "training"
"""Name of the page's part about training."""
EVERY = 0.25
"""Minimal seconds between two evaluations of gradients."""
EPOCHS = 100
"""Most rows of the table of epochs."""


@dataclass
class TrainingPage(Callback):
    """
    Shows training: curves, sizes of weights and gradients by layer, and the compiled model.

    `browse` opens the page while training runs; `path` is a file that is written at the end.
    """

    path: str | Path | None = None
    browse: bool = False
    name: str = "training"
    """Name of the model on the page."""
    told: Callable[[str], None] = print
    """Receives messages for the user."""
    _looks: list[tuple[int, tuple[Layer, ...]]] = field(default_factory=list)
    """(step, layers after it)."""
    _pace: RateLimit = field(default_factory=lambda: RateLimit(EVERY))
    _view: View | None = None
    _runs: bool = False

    def on_start(self, trainer: Trained) -> None:
        self._runs = True

    def on_step(self, trainer: Trained, row: Row) -> None:
        if self._view is None:
            self._begin(trainer)
            self._look(trainer, row)  # compiles, so it does not count for the pace
        elif self._pace.is_due():
            with self._pace.measured():
                self._look(trainer, row)

    def on_end(self, trainer: Trained) -> None:
        self._runs = False
        if self._view is None:
            self.told("no step has run: there is nothing to show of the training")
            return
        self._view.document.trained = trainer.weights()
        if self.path is not None:
            self._view.save(self.path)
            self.told(f"the report is in {self.path}")

    def _begin(self, trainer: Trained) -> None:
        request = trainer.request()
        options = compiler.for_this_machine(request.options, request.threads)
        document = Document(self.name, request.module, request.compilation, options)
        document.live[NAME] = lambda: self.part(trainer)
        self._view = View(document)
        if self.browse:
            self.told(f"the training is shown at {self._view.open()}")

    def _look(self, trainer: Trained, row: Row) -> None:
        self._looks.append((int(row["step"]), trainer.layers()))

    def part(self, trainer: Trained) -> Part:
        """The current state of training."""
        history = trainer.history
        heading, *rows = history.rows()
        return {
            "runs": self._runs,
            "stopped": trainer.stopped,
            "planned": trainer.planned,
            "done": len(history.steps),
            "facts": dict(trainer.facts),
            "charts": [svg(chart) for chart in history.charts()],
            "heading": heading,
            "epochs": rows[-EPOCHS:],
            "left_out": max(0, len(rows) - EPOCHS),
            "layers": self._layers(),
        }

    def _layers(self) -> list[Part]:
        looks = list(self._looks)
        return [] if not looks else [self._layer(looks, at) for at in range(len(looks[-1][1]))]

    @staticmethod
    def _layer(looks: list[tuple[int, tuple[Layer, ...]]], at: int) -> Part:
        last = looks[-1][1][at]
        sizes = Curve("size", [(step, layers[at].weight) for step, layers in looks])
        gradients = Curve("gradient", [(step, layers[at].gradient) for step, layers in looks])
        return {
            "name": last.name,
            "shape": "x".join(map(str, last.shape)) or "scalar",
            "weight": f"{last.weight:.2e}",
            "gradient": f"{last.gradient:.2e}",
            "remark": last.remark,
            "weights": sparkline(sizes),
            "gradients": sparkline(gradients),
        }
