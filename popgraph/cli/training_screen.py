"""Shows training progress: a line per epoch; on a terminal also a bar and curves."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from popgraph.support.charts.text import spans, text
from popgraph.support.pace import RateLimit
from popgraph.support.progress import is_terminal, silence
from popgraph.training.callbacks import Callback, Trained
from popgraph.training.history import History, Row, format_measurement, measurement_names

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.live import Live
    from rich.progress import Progress

DRAWN_EVERY = 0.5
"""Minimal seconds between two drawings."""
HEIGHT = 10
"""Rows of a chart."""
WIDEST = 100
"""Most columns of a chart."""
COLOURS = ("bright_black", "blue", "yellow")
"""Colours of the curves of steps, epochs and held-out data."""


class Screen(Callback):
    """Prints a line per epoch, for pipes."""

    def __init__(self, epochs: int, curves: bool) -> None:
        self._epochs, self._curves = epochs, curves

    def on_epoch(self, trainer: Trained, row: Row) -> None:
        numbers = [
            f"{name} {format_measurement(name, row[name])}" for name in measurement_names(row)
        ]
        print(f"epoch {int(row['epoch'])}/{self._epochs}  {'  '.join(numbers)}", flush=True)

    def on_end(self, trainer: Trained) -> None:
        for chart in trainer.history.charts() if self._curves else ():
            print(f"\n{text(chart)}")


class Terminal(Screen):
    """Shows a progress bar and live curves on a terminal."""

    def __init__(self, epochs: int, curves: bool, progress: Progress, live: Live) -> None:
        super().__init__(epochs, curves)
        self._progress, self._live = progress, live
        self._task = progress.add_task("", total=None)
        self._pace = RateLimit(DRAWN_EVERY)

    def on_start(self, trainer: Trained) -> None:
        self._progress.update(self._task, total=trainer.planned)

    def on_step(self, trainer: Trained, row: Row) -> None:
        loss = measurement_names(row)[0]
        text = f"epoch {int(row['epoch'])}/{self._epochs}  {loss} {row[loss]:.5f}"
        self._progress.update(self._task, advance=1, description=text)
        if self._curves and self._pace.is_due():
            with self._pace.measured():
                self._draw(trainer.history)

    def on_end(self, trainer: Trained) -> None:
        if self._curves:
            self._live.console.print(Picture(trainer.history))

    def _draw(self, history: History) -> None:
        from rich.console import Group

        self._live.update(Group(Picture(history, first_only=True), self._progress))


class Picture:
    """The curves of a history, coloured and as wide as the terminal."""

    def __init__(self, history: History, first_only: bool = False) -> None:
        self._charts = history.charts()[: 1 if first_only else None]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        for chart in self._charts:
            for line in spans(chart, min(options.max_width - 1, WIDEST), HEIGHT):
                parts = [(part, COLOURS[at] if at is not None else "") for part, at in line]
                yield Text.assemble(*parts, no_wrap=True)


@contextmanager
def screen(epochs: int, curves: bool) -> Iterator[Callback]:
    """The callback that shows training of `epochs` epochs."""
    if not is_terminal():
        yield Screen(epochs, curves)
        return
    from rich.console import Console
    from rich.live import Live
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    # Lines are printed above the bar on the same screen, or to the pipe if there is one.
    console, same_screen = Console(stderr=True), sys.stdout.isatty()
    progress = Progress(*columns, console=console)
    moving = Live(progress, console=console, transient=True, redirect_stdout=same_screen)
    with silence(), moving as live:
        yield Terminal(epochs, curves, progress, live)
