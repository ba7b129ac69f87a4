"""Histograms of values over all batches, and the ranges that calibration methods derive of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from popgraph.quantization.grids import Grid
from popgraph.support.arrays import Array
from popgraph.support.names import Names

MINMAX = "minmax"
METHODS = Names("calibration method", {MINMAX: "", "percentile": "", "entropy": "kl", "mse": ""})
BINS = 8192
"""Bins from -limit to limit. After the limit has doubled, each half still has 2048 or more."""
COARSE = 4
"""Bins that are one for the divergence of distributions, which a few samples must fill."""
SHRINKS: Array = np.linspace(1, 0.1, 73)
"""Candidates for the ends of a range, as fractions of the largest values."""
Range: TypeAlias = tuple[float, float]


@dataclass
class Histogram:
    """The extreme values of a tensor, and counts of its values in bins of equal width."""

    counted: bool = True
    """Whether to count values, or to note the extremes only."""
    least: float = np.inf
    most: float = -np.inf
    limit: float = 0.0
    counts: Array = field(default_factory=lambda: np.zeros(BINS, np.int64))

    def add(self, x: Array) -> None:
        """Adds the values of a batch."""
        if not x.size:
            return
        low, high = float(x.min()), float(x.max())
        self.least, self.most = min(self.least, low), max(self.most, high)
        size = max(-low, high)
        if not self.counted or not size:
            return
        if not self.limit:
            self.limit = size
        while self.limit < size:
            self._widen()
        self.counts += np.histogram(x, BINS, (-self.limit, self.limit))[0]

    def _widen(self) -> None:
        """Doubles the limit: pairs of bins become one, which loses no count."""
        pairs = self.counts.reshape(-1, 2).sum(axis=1)
        self.counts[:] = 0
        self.counts[BINS // 4 : -BINS // 4] = pairs
        self.limit *= 2

    @property
    def centers(self) -> Array:
        """The middles of the bins."""
        width = 2 * self.limit / BINS
        return np.asarray((np.arange(BINS) + 0.5) * width - self.limit)

    @property
    def extremes(self) -> Range:
        return (self.least, self.most) if self.least <= self.most else (0.0, 0.0)


def range_by(method: str, values: Histogram, grid: Grid, percentile: float) -> Range:
    """The range that a method chooses; never wider than the extremes."""
    if method == MINMAX or not values.limit:
        return values.extremes
    if method == "percentile":
        return _by_percentile(values, grid, percentile)
    badness = _squared_error if method == "mse" else _divergence
    return _searched(values, lambda ends: badness(values, grid, ends))


def _by_percentile(values: Histogram, grid: Grid, percentile: float) -> Range:
    """The range with this percentage of the values; as many are cut off below as above."""
    outside = (1 - percentile / 100) * values.counts.sum()
    edges = np.linspace(-values.limit, values.limit, BINS + 1)
    if grid.symmetric:
        folded = values.counts[BINS // 2 :] + values.counts[: BINS // 2][::-1]
        kept = np.cumsum(folded) >= folded.sum() - outside
        size = float(edges[BINS // 2 + 1 :][np.argmax(kept)])
        return max(-size, values.least), min(size, values.most)
    below = np.cumsum(values.counts)
    low = edges[np.searchsorted(below, outside / 2, "right")]
    high = edges[np.searchsorted(below, below[-1] - outside / 2) + 1]
    return max(float(low), values.least), min(float(high), values.most)


def _searched(values: Histogram, badness: Callable[[Range], float]) -> Range:
    """The best range: both ends shrink together first, and then each one alone."""
    low, high = (min(values.least, 0.0), max(values.most, 0.0))

    def best(candidates: Iterable[Range]) -> Range:
        return min(candidates, key=badness)

    found = best((low * part, high * part) for part in SHRINKS)
    if low and high:
        found = best((found[0], high * part) for part in SHRINKS)
        found = best((low * part, found[1]) for part in SHRINKS)
    return found


def _squared_error(values: Histogram, grid: Grid, ends: Range) -> float:
    """The sum of squared errors of rounding to the grid of a range."""
    scale, zero = grid.fitted(np.array(ends[0]), np.array(ends[1]))
    filled = np.flatnonzero(values.counts)
    x = values.centers[filled]
    errors = grid.restored(grid.rounded(x, scale, zero), scale, zero) - x
    return float((values.counts[filled] * errors**2).sum())


def _divergence(values: Histogram, grid: Grid, ends: Range) -> float:
    """
    The Kullback-Leibler divergence of the rounded distribution from the clipped one.

    Values outside the range count at its ends, and each step of the grid spreads its values evenly
    over the bins that it covers and that are not empty. In n samples of an even distribution, the
    counts of b bins in s steps diverge by (b - s) / 2n. This bias, which favors narrow ranges, is
    subtracted.
    """
    scale, zero = grid.fitted(np.array(ends[0]), np.array(ends[1]))
    low, high = grid.restored(np.array([grid.low, grid.high]), scale, zero)
    low, high = max(low, ends[0]), min(high, ends[1])
    all_counts = values.counts.reshape(-1, COARSE).sum(axis=1)
    x = values.centers.reshape(-1, COARSE).mean(axis=1)
    inside = (x >= low) & (x <= high)
    if not inside.any():
        return np.inf
    plain = np.where(inside, all_counts, 0).astype(np.float64)
    clipped = plain.copy()
    first, last = np.flatnonzero(inside)[[0, -1]]
    clipped[first] += all_counts[x < low].sum()
    clipped[last] += all_counts[x > high].sum()
    steps = grid.rounded(x[first : last + 1], scale, zero) - grid.low
    counts, filled = plain[first : last + 1], clipped[first : last + 1] > 0
    sums = np.bincount(steps, counts)
    bins = np.maximum(np.bincount(steps, filled), 1)
    # Half a count in steps that hold only values from outside.
    spread = np.where(filled, np.maximum((sums / bins)[steps], 0.5), 0)
    wanted = clipped[first : last + 1]
    p, q = wanted[filled] / wanted.sum(), spread[filled] / spread.sum()
    chance = (filled.sum() - np.count_nonzero(sums)) / (2 * wanted.sum())
    return float((p * np.log(p / q)).sum() - chance)
