"""Sums over an epoch, from which its row in the history is computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from popgraph.support.arrays import Array
from popgraph.support.errors import ModelError
from popgraph.training.history import Row
from popgraph.training.metrics import Metric


class Totals:
    """Totals over batches; means are over samples, not over batches."""

    def __init__(self, names: Sequence[str], metrics: Sequence[Metric]) -> None:
        self.metrics = metrics
        self.sums = dict.fromkeys(names, 0.0)
        self.clear()

    def clear(self) -> None:
        self.samples = 0
        self.sums = dict.fromkeys(self.sums, 0.0)
        self.counts: dict[str, Array] = {}

    def add(
        self,
        numbers: Mapping[str, float],
        samples: int,
        prediction: Array | None,
        target: Array | None,
    ) -> None:
        """Adds a batch: the program's outputs, and the counts of the metrics."""
        self.samples += samples
        for name in self.sums:
            self.sums[name] += numbers[name] * samples
        for metric in self.metrics:
            if target is None or prediction is None:
                raise ModelError(
                    "the model has no one input with which predictions could be compared",
                    "metrics",
                    "target='labels' names it, or a value of the data that is an input",
                )
            counts = np.asarray(metric.counts(prediction, target), np.float64)
            before = self.counts.get(metric.name)
            self.counts[metric.name] = counts if before is None else before + counts

    def take(self, samples: int, sums: Mapping[str, float], counts: Mapping[str, Array]) -> None:
        """Adds the totals of another rank."""
        self.samples += samples
        for name in self.sums:
            self.sums[name] += sums[name]
        for name, one in counts.items():
            self.counts[name] = self.counts[name] + one if name in self.counts else one

    def row(self, start: str = "") -> Row:
        """Means and metrics; `start` prefixes their names."""
        found = {start + name: total / max(self.samples, 1) for name, total in self.sums.items()}
        for metric in self.metrics:
            if metric.name in self.counts:
                found[start + metric.name] = float(metric.value(self.counts[metric.name]))
        return found
