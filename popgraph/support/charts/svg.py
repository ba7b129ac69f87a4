"""Charts as SVG, in the colour of the text around them."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from popgraph.support.charts.chart import Chart, Curve, Point

COLOURS = ("#8aa9d6", "#2f6bd0", "#d9662b")
"""Colours by the style of a curve."""
WIDTH, HEIGHT = 440, 240
LEFT, RIGHT, TOP, BOTTOM = 58, 14, 44, 26
"""Margins around the curves, for labels, title and names."""
MAX_POINTS = 400
MAX_DOTS = 60
"""Curves with at most this many points show a dot per point, with its values as a tooltip."""


def svg(chart: Chart) -> str:
    """The chart as an SVG element."""
    lines = [*_frame(chart)]
    for curve in chart.curves:
        lines += _curve(chart, curve)
    return _element(WIDTH, HEIGHT, chart.title, lines)


def sparkline(curve: Curve, width: int = 150, height: int = 26) -> str:
    """A curve without axes, for a row of a table."""
    chart = Chart(curve.name, (curve.downsampled(MAX_POINTS),))
    paths = _paths(chart, chart.curves[0], (1, width - 1, height - 2, 2))
    return _element(
        width, height, curve.name, [_path(each, COLOURS[curve.style], 1.2) for each in paths]
    )


def _element(width: int, height: int, title: str, lines: list[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="system-ui, sans-serif" font-size="11">'
    )
    return "\n".join([head, f"<title>{escape(title)}</title>", *lines, "</svg>"])


BOX = (LEFT, WIDTH - RIGHT, HEIGHT - BOTTOM, TOP)
"""Left, right, bottom and top of the plot area."""


def _position(chart: Chart, point: Point, box: tuple[float, ...]) -> Point:
    left, right, bottom, top = box
    x, y = chart.x_axis.fraction(point[0]), chart.y_axis.fraction(point[1])
    return left + x * (right - left), bottom + y * (top - bottom)


def _frame(chart: Chart) -> Iterator[str]:
    """The title, the names of the curves, and the tick marks of both axes."""
    yield _text(LEFT, 15, chart.title, "start", 'font-weight="600" font-size="12.5"')
    at = LEFT
    for curve in chart.curves if len(chart.curves) > 1 else ():
        yield f'<circle cx="{at + 4}" cy="29" r="3.5" fill="{COLOURS[curve.style]}"/>'
        yield _text(at + 12, 33, curve.name, "start")
        at += 30 + 6 * len(curve.name)
    for value, text in chart.y_axis.marks:
        _, y = _position(chart, (chart.x_axis.low, value), BOX)
        yield f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="currentColor" opacity=".15"/>'
        yield _text(LEFT - 6, y + 4, text, "end")
    for value, text in chart.x_axis.marks:
        x, _ = _position(chart, (value, chart.y_axis.low), BOX)
        yield _text(x, HEIGHT - BOTTOM + 15, text, "middle")


def _text(x: float, y: float, text: str, anchor: str, more: str = 'opacity=".75"') -> str:
    attributes = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="currentColor"'
    return f"<text {attributes} {more}>{escape(text)}</text>"


def _curve(chart: Chart, curve: Curve) -> Iterator[str]:
    colour = COLOURS[curve.style]
    for path in _paths(chart, curve.downsampled(MAX_POINTS), BOX):
        yield _path(path, colour, 1.6)
    if len(curve.points) > MAX_DOTS:
        return
    for segment in curve.segments():
        for point in segment:
            x, y = _position(chart, point, BOX)
            said = f"{curve.name} {point[1]:.6g} at {point[0]:.6g}"
            dot = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}">'
            yield f"{dot}<title>{escape(said)}</title></circle>"


def _paths(chart: Chart, curve: Curve, box: tuple[float, ...]) -> Iterator[str]:
    for segment in curve.segments():
        points = (_position(chart, point, box) for point in segment)
        yield "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _path(points: str, colour: str, width: float) -> str:
    round_ends = 'stroke-linejoin="round" stroke-linecap="round"'
    return f'<path d="{points}" fill="none" stroke="{colour}" stroke-width="{width}" {round_ends}/>'
