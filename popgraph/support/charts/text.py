"""Charts as text, with eight Braille dots per cell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from popgraph.support.charts.chart import Chart, Curve

DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""The bit of each dot of a cell, by column and row."""
EMPTY = 0x2800
"""The Braille cell without dots."""

Span = tuple[str, int | None]
"""A text, and the style of its curve, or None."""


@dataclass
class Cell:
    """The dots of a cell, and the style of the last curve drawn over it."""

    dots: int = 0
    style: int | None = None


def spans(chart: Chart, width: int, height: int) -> Iterator[list[Span]]:
    """The lines of a chart of this size, in spans of one style each."""
    labels = _labels(chart, height)
    margin = max(map(len, labels.values()), default=0)
    cells = _cells(chart, width - margin - 2, height)
    yield [(" " * (margin + 2) + chart.title, None)]
    for row, line in enumerate(cells):
        mark = f"{labels.get(row, ''):>{margin}} {'┤' if row in labels else '│'}"
        yield [(mark, None), *_joined(line)]
    yield [(f"{'':{margin + 2}}{_steps(chart, width - margin - 2)}", None)]
    if len(chart.curves) > 1:
        names = ((f"● {curve.name}  ", curve.style) for curve in chart.curves)
        yield [(" " * (margin + 2), None), *names]


def _joined(line: Sequence[Cell]) -> Iterator[Span]:
    """Merges adjacent cells of the same style."""
    for style, cells in groupby(line, lambda cell: cell.style):
        yield "".join(chr(EMPTY + cell.dots) for cell in cells), style


def text(chart: Chart, width: int = 72, height: int = 10) -> str:
    """The chart as plain text."""
    return "\n".join(
        "".join(part for part, _ in line).rstrip() for line in spans(chart, width, height)
    )


def _labels(chart: Chart, height: int) -> dict[int, str]:
    """{row: label of the vertical axis}."""
    marks = chart.y_axis.marks
    return {_row(chart.y_axis.fraction(value), height): text for value, text in marks}


def _row(fraction: float, height: int) -> int:
    return min(height - 1, int((1 - fraction) * height))


def _steps(chart: Chart, width: int) -> str:
    """The labels at the ends of the horizontal axis."""
    (_, first), *_, (_, last) = chart.x_axis.marks
    return first + last.rjust(max(width - len(first), len(last) + 1))


def _cells(chart: Chart, width: int, height: int) -> list[list[Cell]]:
    cells = [[Cell() for _ in range(width)] for _ in range(height)]
    for curve in chart.curves:
        for x, y in _places(chart, curve, width * 2, height * 4):
            cell = cells[y // 4][x // 2]
            cell.dots |= DOTS[x % 2][y % 4]
            cell.style = curve.style
    return cells


def _places(chart: Chart, curve: Curve, width: int, height: int) -> Iterator[tuple[int, int]]:
    """The dots of a curve, with lines between adjacent points."""
    for segment in curve.downsampled(width).segments():
        before: tuple[int, int] | None = None
        for x, y in segment:
            here = (
                round(chart.x_axis.fraction(x) * (width - 1)),
                round((1 - chart.y_axis.fraction(y)) * (height - 1)),
            )
            yield from _line(before or here, here)
            before = here


def _line(start: tuple[int, int], end: tuple[int, int]) -> Iterator[tuple[int, int]]:
    (left, low), (right, high) = start, end
    count = max(abs(right - left), abs(high - low), 1)
    for at in range(count + 1):
        yield round(left + (right - left) * at / count), round(low + (high - low) * at / count)
