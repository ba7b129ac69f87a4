"""The best epoch so far, its weights, and early stopping (`patience`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan

from popgraph.support.arrays import Array
from popgraph.support.errors import ModelError
from popgraph.training.history import VALIDATION, Row, columns
from popgraph.training.metrics import Metric


@dataclass
class BestEpoch:
    """The epoch with the best value of the monitored metric."""

    monitor: str
    larger: bool
    patience: int | None = None
    """Epochs in a row without improvement before training stops; None: no limit."""
    value: float | None = None
    epoch: int = 0
    waited: int = 0
    weights: Mapping[str, Array] = field(default_factory=dict)

    def record(self, row: Row, weights: Callable[[], Mapping[str, Array]]) -> bool:
        """Records an epoch; True if patience has run out."""
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


def best_epoch_of(
    monitor: str | None,
    patience: int | None,
    metrics: Sequence[Metric],
    validates: bool,
    loss: str,
) -> BestEpoch | None:
    """
    The tracker of the monitored value, if any.

    Monitors the validation loss by default, or the training loss without held-out data.
    """
    if monitor is None and patience is None:
        return None
    if patience is not None and patience < 1:
        raise ModelError("patience must be an integer of at least 1", "patience")
    chosen = monitor or (f"{VALIDATION}{loss}" if validates else loss)
    larger = {one.name: one.larger_is_better for one in metrics}
    return BestEpoch(chosen, larger.get(chosen.removeprefix(VALIDATION), False), patience)
