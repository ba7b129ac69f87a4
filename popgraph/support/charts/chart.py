"""What a chart shows, and where its axes begin, end and are marked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby, pairwise
from math import ceil, floor, log10

Point = tuple[float, float]

ROUNDING = 1e-9
"""By so much of a step, numbers may be off that should be marks."""
SMALLEST, LARGEST = 1e-300, 1e300
"""Smaller differences are none, larger numbers are not drawn."""


def is_drawn(number: float) -> bool:
    return abs(number) < LARGEST  # neither infinities nor NaN


@dataclass(frozen=True)
class Curve:
    """Points from left to right; where a value is no number to draw the curve has a gap."""

    name: str
    points: Sequence[Point]
    style: int = 1
    """The number of its colour; 0 is the faint one."""

    def segments(self) -> Iterator[list[Point]]:
        """The points between gaps."""
        for drawn, points in groupby(self.points, lambda point: is_drawn(point[1])):
            if drawn:
                yield list(points)

    def downsampled(self, most: int) -> Curve:
        """At most so many points: each stands for its neighbours, at their mean."""
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
    """From where to where an axis goes, and the places that are marked."""

    low: float
    high: float
    step: float

    @staticmethod
    def over(values: Sequence[float], marks: int) -> Axis:
        """One that holds all values and has about so many marks at round numbers."""
        low, high = min(values, default=0.0), max(values, default=1.0)
        if high - low <= max(SMALLEST, ROUNDING * max(abs(low), abs(high))):
            half = abs(low) / 2 or 0.5
            low, high = low - half, high + half
        step = _round_step((high - low) / marks)
        first, last = floor(low / step + ROUNDING), ceil(high / step - ROUNDING)
        return Axis(first * step, last * step, step)

    def fraction(self, value: float) -> float:
        """Where a value is: 0 at the low end, 1 at the high end."""
        return (value - self.low) / (self.high - self.low)

    @property
    def marks(self) -> list[tuple[float, str]]:
        """The marked values, and what is written beside them."""
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
    """The smallest of 1, 2 and 5 times a power of ten that is not less."""
    power = 10.0 ** floor(log10(least))
    least *= 1 - ROUNDING
    return next(times * power for times in (1, 2, 5, 10) if times * power >= least)


@dataclass(frozen=True)
class Chart:
    """Curves over one axis."""

    title: str
    curves: tuple[Curve, ...]

    @cached_property
    def x_axis(self) -> Axis:
        """The axis of the first numbers of points."""
        return Axis.over([*self._coordinates(0)], 5)

    @cached_property
    def y_axis(self) -> Axis:
        """The axis of the values."""
        return Axis.over([*self._coordinates(1)], 5)

    def _coordinates(self, number: int) -> Iterator[float]:
        points = (point for curve in self.curves for point in curve.points)
        return (point[number] for point in points if is_drawn(point[number]))
