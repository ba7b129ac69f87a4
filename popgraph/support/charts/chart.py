"""Charts: curves, and axes with their ranges and tick marks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from math import ceil, floor, log10

from popgraph.support.memo import cached_property

Point = tuple[float, float]

ROUNDING = 1e-9
"""Tolerance for tick marks, as a fraction of a step."""
SMALLEST, LARGEST = 1e-300, 1e300
"""Smaller differences count as zero; larger numbers are not drawn."""


def is_drawn(number: float) -> bool:
    return abs(number) < LARGEST  # neither infinities nor NaN


@dataclass(frozen=True)
class Curve:
    """Points from left to right; a NaN or infinite value leaves a gap."""

    name: str
    points: Sequence[Point]
    style: int = 1
    """The index of its colour; 0 is the faint one."""

    def segments(self) -> Iterator[list[Point]]:
        """The runs of points between gaps."""
        for drawn, points in groupby(self.points, lambda point: is_drawn(point[1])):
            if drawn:
                yield list(points)

    def downsampled(self, most: int) -> Curve:
        """At most `most` points, each the mean of a group of neighbours."""
        count = len(self.points)
        if count <= most:
            return self
        edges = [count * at // most for at in range(most + 1)]
        groups = [self.points[low:high] for low, high in pairwise(edges)]
        return replace(self, points=[_mean(group) for group in groups])


def _mean(points: Sequence[Point]) -> Point:
    return points[-1][0], sum(y for _, y in points) / len(points)


@dataclass(frozen=True)
class Axis:
    """The range of an axis, and the distance of its tick marks."""

    low: float
    high: float
    step: float

    @staticmethod
    def over(values: Sequence[float], marks: int) -> Axis:
        """An axis that covers all values, with about `marks` tick marks at round numbers."""
        low, high = min(values, default=0.0), max(values, default=1.0)
        if high - low <= max(SMALLEST, ROUNDING * max(abs(low), abs(high))):
            half = abs(low) / 2 or 0.5
            low, high = low - half, high + half
        step = _round_step((high - low) / marks)
        first, last = floor(low / step + ROUNDING), ceil(high / step - ROUNDING)
        return Axis(first * step, last * step, step)

    def fraction(self, value: float) -> float:
        """The relative position of a value: 0 at the low end, 1 at the high end."""
        return (value - self.low) / (self.high - self.low)

    @property
    def marks(self) -> list[tuple[float, str]]:
        """The values of tick marks, with their labels."""
        count = round((self.high - self.low) / self.step)
        return [(value, self._text(value)) for value in map(self._mark, range(count + 1))]

    def _mark(self, number: int) -> float:
        return round(self.low / self.step + number) * self.step

    def _text(self, value: float) -> str:
        size = max(abs(self.low), abs(self.high))
        if size and not 1e-3 <= size < 1e6:
            return f"{value:.3g}"
        return f"{value:.{max(0, -floor(log10(self.step)))}f}"


def _round_step(least: float) -> float:
    """The smallest of 1, 2 and 5 times a power of ten that is at least `least`."""
    power = 10.0 ** floor(log10(least))
    least *= 1 - ROUNDING
    return next(times * power for times in (1, 2, 5, 10) if times * power >= least)


@dataclass(frozen=True)
class Chart:
    """Curves over a common axis."""

    title: str
    curves: tuple[Curve, ...]

    @cached_property
    def x_axis(self) -> Axis:
        """The horizontal axis."""
        return Axis.over([*self._coordinates(0)], 5)

    @cached_property
    def y_axis(self) -> Axis:
        """The vertical axis."""
        return Axis.over([*self._coordinates(1)], 5)

    def _coordinates(self, number: int) -> Iterator[float]:
        points = (point for curve in self.curves for point in curve.points)
        return (point[number] for point in points if is_drawn(point[number]))
