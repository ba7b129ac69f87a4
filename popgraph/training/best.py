"""The best epoch so far: its weights, and when to stop because no better one comes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan

from popgraph.support.arrays import Array
from popgraph.support.errors import ModelError
from popgraph.training.history import VALIDATION, Row, columns
from popgraph.training.metrics import Metric


@dataclass
class Best:
    """The epoch with the best value of what is monitored."""

    monitor: str
    larger: bool
    patience: int | None = None
    """So many epochs in a row may be no better; None: any number."""
    value: float | None = None
    epoch: int = 0
    waited: int = 0
    weights: Mapping[str, Array] = field(default_factory=dict)

    def see(self, row: Row, weights: Callable[[], Mapping[str, Array]]) -> bool:
        """Notes an epoch; whether patience has ended."""
        if self.monitor not in row:
            raise ModelError(
                f"no epoch has {self.monitor!r} to monitor",
                "monitor",
                f"one of {', '.join(map(repr, columns([row])))}",
            )
        value = row[self.monitor]
        if self._is_better(value):
            self.value, self.epoch, self.waited = value, int(row["epoch"]), 0
            self.weights = weights()
        else:
            self.waited += 1
        return self.patience is not None and self.waited >= self.patience

    def _is_better(self, value: float) -> bool:
        if isnan(value):
            return False
        if self.value is None:
            return True
        return value > self.value if self.larger else value < self.value


def best_of(
    monitor: str | None,
    patience: int | None,
    metrics: Sequence[Metric],
    validates: bool,
    loss: str,
) -> Best | None:
    """What is monitored, if anything: by default the loss, of held-out data if there are any."""
    if monitor is None and patience is None:
        return None
    if patience is not None and patience < 1:
        raise ModelError("patience is a number of epochs from 1 on", "patience")
    chosen = monitor or (f"{VALIDATION}{loss}" if validates else loss)
    larger = {one.name: one.larger_is_better for one in metrics}
    return Best(chosen, larger.get(chosen.removeprefix(VALIDATION), False), patience)
