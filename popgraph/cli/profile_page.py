"""The HTML page of a profile: bars of time, the memory curve, a table."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from html import escape

from popgraph.measure.profile_report import (
    Report,
    columns,
    lines,
    longest,
    megabytes,
    memory_summary,
    summary,
)

WIDTH, CURVE, BAR = 960, 200, 22
BARS = 30
"""Number of longest calls with a bar."""

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: #222; background: #fff }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2rem }
svg { width: 100%; height: auto; font: 12px system-ui, sans-serif }
table { border-collapse: collapse; width: 100%; font-size: 13px }
td, th { padding: 2px 8px; border-bottom: 1px solid #ddd; text-align: left }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums }
td.kernel { white-space: pre }
.bar { fill: #4a7ebb } .area { fill: #cfe0f3; stroke: #4a7ebb } .bound { stroke: #b33 }
.note { fill: #555 }
@media (prefers-color-scheme: dark) {
  body { color: #ddd; background: #1b1b1b } td, th { border-color: #444 } text { fill: #ddd }
  .area { fill: #2b3e55 } .note { fill: #aaa }
}
"""


def page(found: Report) -> str:
    """The whole page as one HTML text."""
    title = escape(f"Profile of {found.model}")
    return "\n".join(
        [
            "<!doctype html>",
            f'<html lang="en"><meta charset="utf-8"><title>{title}</title>',
            f"<style>{STYLE}</style>",
            f"<h1>{title}</h1>",
            f"<p>{escape(summary(found))}.</p>",
            "<h2>Time by call, the longest first</h2>",
            bars(found),
            "<h2>Arena in use, call by call</h2>",
            f"<p>{escape(memory_summary(found))}.</p>",
            curve(found),
            "<h2>All calls in order</h2>",
            table(found),
            *passes(found),
            "</html>",
            "",
        ]
    )


def svg(height: float, parts: list[str], label: str) -> str:
    opening = f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(label)}">'
    return "\n".join([opening, *parts, "</svg>"])


def bars(found: Report) -> str:
    """One bar per call, labelled by the user's name if there is one."""
    shown = longest(found.leaves())[:BARS]
    most = max((call.microseconds for call in shown), default=0) or 1
    parts = []
    for number, call in enumerate(shown):
        top, long = number * BAR, 420 * call.microseconds / most
        name = call.source or call.kernel
        short = name if len(name) <= 52 else f"{name[:51]}…"
        parts.append(
            f"<g><title>{escape(f'{call.kernel} {call.source}')}</title>"
            f'<text x="340" y="{top + 15}" text-anchor="end">{escape(short)}</text>'
            f'<rect class="bar" x="350" y="{top + 3}" width="{long:.1f}" height="{BAR - 6}"/>'
            f'<text class="note" x="{356 + long:.1f}" y="{top + 15}">'
            f"{call.microseconds:.1f} us, {call.share:.1%}</text></g>"
        )
    return svg(BAR * len(shown), parts, "time of each call")


def curve(found: Report) -> str:
    """The bytes in use at each call, and the size of the arena as a line."""
    if not found.arena:
        return "<p>No call leaves anything in the arena.</p>"
    step = WIDTH / len(found.calls)
    height = 0.9 * CURVE / found.arena
    points = [f"0,{CURVE}"]
    for number, call in enumerate(found.calls):
        level = CURVE - call.in_use * height
        points += [f"{number * step:.2f},{level:.2f}", f"{(number + 1) * step:.2f},{level:.2f}"]
    points.append(f"{WIDTH},{CURVE}")
    top = CURVE - found.arena * height
    hints = [
        f'<rect x="{number * step:.2f}" y="0" width="{step:.2f}" height="{CURVE}" '
        f'fill="transparent"><title>{escape(f"{number}: {call.source or call.kernel}")}, '
        f"{megabytes(call.in_use)}</title></rect>"
        for number, call in enumerate(found.calls)
    ]
    return svg(
        CURVE + 2,
        [
            f'<polygon class="area" points="{" ".join(points)}"/>',
            f'<line class="bound" x1="0" x2="{WIDTH}" y1="{top:.2f}" y2="{top:.2f}"/>',
            f'<text class="note" x="4" y="{top - 5:.2f}">arena {megabytes(found.arena)}</text>',
            *hints,
        ],
        "memory in use at each call",
    )


def table(found: Report) -> str:
    """Every call in program order; calls of bodies are indented."""
    numbers = itertools.count()
    rows = [_row("th", ("", *columns(found)))]
    for line in lines(found.calls, sys.maxsize, sort=False):
        number = str(next(numbers)) if line.depth == 0 else ""
        rows.append(_row("td", (number, *line.cells(counted=found.has_bodies))))
    return "\n".join(["<table>", *rows, "</table>"])


def passes(found: Report) -> Iterator[str]:
    """The time of each pass during compilation, in order."""
    if not found.passes:
        return
    yield "<h2>Passes, and the C compiler</h2>"
    yield '<table><tr><th class="number">ms</th><th>pass</th></tr>'
    for one in found.passes:
        yield (
            f'<tr><td class="number">{one.microseconds / 1e3:.2f}</td>'
            f"<td>{escape(one.name)}</td></tr>"
        )
    yield "</table>"


def _row(tag: str, row: tuple[str, ...]) -> str:
    """The last two cells are text; leading spaces in the kernel's name are kept."""
    *numbers, kernel, source = (escape(cell) for cell in row)
    cells = [f'<{tag} class="number">{number}</{tag}>' for number in numbers]
    cells += [f'<{tag} class="kernel">{kernel}</{tag}>', f"<{tag}>{source}</{tag}>"]
    return "<tr>" + "".join(cells) + "</tr>"
