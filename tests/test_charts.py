"""Tests charts: their axes, as SVG and as text."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from popgraph.support.charts.chart import LARGEST, Axis, Chart, Curve
from popgraph.support.charts.svg import MAX_DOTS, MAX_POINTS, sparkline, svg
from popgraph.support.charts.text import text

NAMESPACE = "{http://www.w3.org/2000/svg}"
NUMBERS = st.floats(-LARGEST, LARGEST, exclude_min=True, exclude_max=True)


def falling(count: int) -> Chart:
    """A curve from the top left to the bottom right."""
    return Chart("loss", (Curve("steps", [(x, count - x) for x in range(count + 1)]),))


@given(st.lists(NUMBERS, min_size=1), st.integers(2, 8))
def test_fuzz_an_axis_holds_its_values_between_round_marks(values: list[float], marks: int) -> None:
    axis = Axis.over(values, marks)
    slack = 1e-9 * (axis.high - axis.low)
    assert axis.low - slack <= min(values) <= max(values) <= axis.high + slack
    assert 2 <= len(axis.marks) <= marks + 3
    assert math.isclose(axis.marks[0][0], axis.low, abs_tol=slack)
    mantissa = float(f"{axis.step:e}".split("e")[0])
    assert any(math.isclose(mantissa, one) for one in (1, 2, 5))


@pytest.mark.parametrize(
    "values",
    [[0, 5e-324], [1, 1 + 2**-52], [1e16, 1e16 + 2], [-9e299, 9e299], [math.nan, 1e308, math.inf]],
)
def test_any_numbers_are_drawn(values: list[float]) -> None:
    chart = Chart("loss", (Curve("steps", [*enumerate(values)]),))
    assert text(chart).count("\n") == 11 and ElementTree.fromstring(svg(chart)) is not None


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([0, 2.4], ["0.0", "0.5", "1.0", "1.5", "2.0", "2.5"]),
        ([1, 1000], ["0", "200", "400", "600", "800", "1000"]),
        ([0, 1e-5], ["0", "2e-06", "4e-06", "6e-06", "8e-06", "1e-05"]),
        ([3], ["1", "2", "3", "4", "5"]),
        ([], ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
    ],
)
def test_tick_labels_are_rounded(values: list[float], labels: list[str]) -> None:
    assert [text for _, text in Axis.over(values, 5).marks] == labels


def test_many_points_become_few_means_and_gaps_stay_gaps() -> None:
    curve = Curve("steps", [(x, float(x % 2)) for x in range(1000)])
    assert {y for _, y in curve.downsampled(100).points} == {0.5}
    holed = Curve("steps", [(0, 1), (1, math.nan), (2, 1), (3, math.inf), (4, 2), (5, 3)])
    assert [len(piece) for piece in holed.segments()] == [1, 1, 2]


def test_svg_is_well_formed_and_escapes_names() -> None:
    chart = Chart("<script>", (Curve("a & b", [(0, 1), (1, 2)]), Curve("c", [(0, 2)], 2)))
    root = ElementTree.fromstring(svg(chart))
    assert root.findtext(f"{NAMESPACE}title") == "<script>"
    texts = [one.text for one in root.iter(f"{NAMESPACE}text")]
    assert {"<script>", "a & b", "c"} <= set(texts)
    dots = [one.findtext(f"{NAMESPACE}title") for one in root.iter(f"{NAMESPACE}circle")]
    assert [dot for dot in dots if dot] == ["a & b 1 at 0", "a & b 2 at 1", "c 2 at 0"]


def test_svg_of_a_long_curve_is_small() -> None:
    drawn = svg(falling(100_000))
    assert "<circle" not in drawn and drawn.count("L") <= MAX_POINTS + 20
    assert svg(falling(MAX_DOTS - 1)).count("<circle") == MAX_DOTS


def test_a_sparkline_spans_its_range() -> None:
    (path,) = ElementTree.fromstring(sparkline(falling(10).curves[0])).iter(f"{NAMESPACE}path")
    assert path.get("d", "").startswith("M1.0 2.0L") and path.get("d", "").endswith("L149.0 24.0")


def test_charts_as_text() -> None:
    drawn = text(falling(10), 14, 4).splitlines()
    assert drawn[0].strip() == "loss" and drawn[-1].split() == ["0", "10"]
    cells = [line.partition(mark)[2] for line in drawn[1:-1] for mark in "┤│" if mark in line]
    places = [line.index(next(filter(lambda cell: cell > "⠀", line))) for line in cells]
    assert places == sorted(places) and places[0] == 0 and len(cells[-1]) == 10


def test_charts_without_finite_values_are_empty() -> None:
    for curves in ((), (Curve("steps", [(1, math.nan)]),)):
        assert text(Chart("loss", curves)).count("\n") == 11
        assert "<svg" in svg(Chart("loss", curves))
