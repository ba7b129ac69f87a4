"""Measures batches: the loss, its terms, and metrics of predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from popgraph.support.arrays import Array
from popgraph.support.errors import RunError
from popgraph.training.history import Row
from popgraph.training.metrics import Metric
from popgraph.training.programs import Inference
from popgraph.training.samples import Batch, Order, Source, count_samples
from popgraph.training.totals import Totals


@dataclass(frozen=True)
class Measures:
    """Names of the outputs to measure, and of the target that metrics compare them with."""

    numbers: Sequence[str]
    """Outputs that are averaged: the loss and its terms."""
    metrics: Sequence[Metric]
    prediction: str
    target: str | None

    def totals(self) -> Totals:
        """Empty totals."""
        return Totals(self.numbers, self.metrics)

    def add(self, totals: Totals, batch: Batch, outputs: Mapping[str, Array]) -> Row:
        """Adds a batch to the totals; returns the batch's own values."""
        row = {name: _mean(outputs[name]) for name in self.numbers}
        predicted = outputs[self.prediction] if self.metrics else None
        totals.add(row, count_samples(batch), predicted, batch.get(self.target or ""))
        return row

    def tested(self, inference: Inference, source: Source, order: Order, start: str = "") -> Row:
        """Evaluates all samples; `start` prefixes the names of the results."""
        totals = self.totals()
        for batch in source.epoch(order, 0, 0):
            self.add(totals, batch, inference.run(batch))
        if not totals.samples:
            raise RunError("no data to test the model on", "validation")
        return totals.row(start)


def _mean(value: Array) -> float:
    return float(value.astype(np.float64).mean() if value.ndim else value)
