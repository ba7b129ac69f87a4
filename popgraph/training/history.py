"""The history of training: measurements of every step and every epoch."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TypeAlias

from popgraph.support.charts.chart import Chart, Curve
from popgraph.support.charts.svg import svg
from popgraph.support.tables import table
from popgraph.support.writing import write_text

Row: TypeAlias = dict[str, float]
"""Measurements at one time: name -> value."""

VALIDATION = "val_"
"""Name prefix of values measured on held-out data."""

NOT_DRAWN = frozenset(["epoch", "step", "seconds"])
RATE = "learning_rate"


@dataclass(repr=False)
class History:
    """
    Measurements, oldest first.

    `history["loss"]` is a column of the epochs: means over the epoch, and, under names that begin
    with `val_`, results of the held-out data after it.
    """

    epochs: list[Row] = field(default_factory=list)
    """One row per epoch: `epoch` (from 1), `step` (total so far), `loss`, metrics, `seconds`."""
    steps: list[Row] = field(default_factory=list)
    """One row per step: `step` (from 1), `epoch`, `loss`, `learning_rate`, terms."""

    def __getitem__(self, name: str) -> list[float]:
        if not any(name in row for row in self.epochs):
            known = ", ".join(repr(one) for one in columns(self.epochs))
            raise KeyError(f"no epoch has {name!r}; there are {known or 'none'}")
        return [row[name] for row in self.epochs if name in row]

    @property
    def history(self) -> dict[str, list[float]]:
        """The measurements of the epochs by name, as in Keras; `history.history["val_loss"]`."""
        return {name: self[name] for name in columns(self.epochs) if name not in NOT_DRAWN}

    @property
    def epoch(self) -> list[int]:
        """The epochs, counted from 0, as in Keras."""
        return [int(row["epoch"]) - 1 for row in self.epochs]

    def to_dict(self) -> dict[str, list[Row]]:
        """The history as plain lists and dicts, for JSON."""
        return {"epochs": [*map(dict, self.epochs)], "steps": [*map(dict, self.steps)]}

    def to_csv(self, path: str | Path, *, steps: bool = False) -> None:
        """Writes the epochs, or the steps, as CSV."""
        write_text(path, csv_of(self.steps if steps else self.epochs))

    def write(self, path: str | Path) -> None:
        """Writes the epochs as .csv, or as .jsonl with one row per line."""
        if Path(path).suffix == ".jsonl":
            write_text(path, "".join(json.dumps(row) + "\n" for row in self.epochs))
        else:
            self.to_csv(path)

    def charts(self) -> list[Chart]:
        """One chart per measurement, with curves for steps, epochs and held-out data."""
        rows = self.epochs + self.steps[-1:]
        names = (name.removeprefix(VALIDATION) for row in rows for name in measurement_names(row))
        found = [Chart(name, tuple(self._curves(name))) for name in dict.fromkeys(names)]
        return [chart for chart in found if chart.title != RATE or _moves(chart)]

    def _curves(self, name: str) -> Iterator[Curve]:
        kinds = (
            ("steps", name, self.steps),
            ("epochs", name, self.epochs),
            ("held-out data", VALIDATION + name, self.epochs),
        )
        for style, (title, column, rows) in enumerate(kinds):
            points = [(row["step"], row[column]) for row in rows if column in row]
            if points:
                yield Curve(title, points, style)

    def __repr__(self) -> str:
        return table(self.rows()) if self.epochs else f"{len(self.steps)} steps, no whole epoch"

    def _repr_html_(self) -> str:
        """The history as charts and a table, for notebooks."""
        heading, *rows = self.rows()
        lines = [_html_row("th", heading), *(_html_row("td", row) for row in rows)]
        return f"<div>{''.join(map(svg, self.charts()))}<table>{''.join(lines)}</table></div>"

    def rows(self) -> list[tuple[str, ...]]:
        """The column names, then one row per epoch."""
        names = columns(self.epochs)
        rows = [
            tuple(format_measurement(name, row.get(name)) for name in names) for row in self.epochs
        ]
        return [tuple(names), *rows]


def _moves(chart: Chart) -> bool:
    """Whether a curve changes at all; a constant learning rate is not charted."""
    return any(len({value for _, value in curve.points}) > 1 for curve in chart.curves)


def _html_row(kind: str, cells: Sequence[str]) -> str:
    inside = "".join(f"<{kind}>{escape(cell)}</{kind}>" for cell in cells)
    return f"<tr>{inside}</tr>"


def measurement_names(row: Row) -> list[str]:
    """Names of the measurements of a step or epoch, the loss first."""
    return [name for name in row if name not in NOT_DRAWN]


def columns(rows: Sequence[Mapping[str, float]]) -> list[str]:
    """All column names, in order of first appearance."""
    return list(dict.fromkeys(name for row in rows for name in row))


def csv_of(rows: Sequence[Mapping[str, float]]) -> str:
    file = io.StringIO()
    writer = csv.DictWriter(file, columns(rows), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def format_measurement(name: str, value: float | None) -> str:
    """Formats a measurement for display."""
    if value is None:
        return ""
    if name in ("epoch", "step"):
        return str(int(value))
    return f"{value:.1f}" if name == "seconds" else f"{value:.5f}"
