"""The plan of a training step: how it becomes runs of a program, and one update."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from popgraph.passes.optimizer_spec import OptimizerSpec
from popgraph.support.arrays import Array
from popgraph.support.errors import RunError


@dataclass(frozen=True)
class MicroBatch:
    """Rows of a batch that one run of a program takes."""

    inputs: Mapping[str, Array]
    rows: int
    share: float
    """The rows as a fraction of those of the batch."""


@dataclass(frozen=True)
class StepPlan:
    """How a step of training runs; every wrong option is refused here."""

    accumulate: int = 1
    """The micro-batches of a batch: their gradients are accumulated, and one update follows."""

    def __post_init__(self) -> None:
        _check_count("accumulate", self.accumulate, "accumulate=8 splits a batch of 64 by 8 rows")

    @property
    def is_split(self) -> bool:
        """Whether a step is more than one run of a program."""
        return self.accumulate > 1

    def rows(self, batch: int) -> int:
        """The rows of a micro-batch of a whole batch."""
        if batch % self.accumulate:
            smaller = batch - batch % self.accumulate
            raise RunError(
                f"a batch of {batch} samples does not divide into {self.accumulate} micro-batches",
                "accumulate",
                f"batch={smaller or self.accumulate}, a multiple of {self.accumulate}",
            )
        return batch // self.accumulate

    def multiple(self, batch: int) -> int:
        """The smallest batch of at least this size that divides into micro-batches."""
        return -(-batch // self.accumulate) * self.accumulate

    def split(self, inputs: Mapping[str, Array], rows: int) -> Iterator[MicroBatch]:
        """
        The micro-batches of a batch, of `rows` rows each.

        The last batch of an epoch may fill fewer of them, and the last one only in part.
        """
        samples = len(next(iter(inputs.values())))
        rows = max(rows, -(-samples // self.accumulate))
        for start in range(0, samples, rows):
            taken = {name: array[start : start + rows] for name, array in inputs.items()}
            count = min(rows, samples - start)
            yield MicroBatch(taken, count, count / samples)

    def rule(self, rule: OptimizerSpec, *, ranks: int, mean: bool, even: bool) -> OptimizerSpec:
        """
        The update rule that a program of this plan is compiled for.

        `mean`: the loss is a mean over samples, so gradients are averaged. If micro-batches are not
        `even`, each is weighted by its rows: the host writes the weight into the loss scale.
        """
        runs = self.accumulate * ranks
        if runs > 1:
            rule = replace(rule, accumulation=runs, ranks=ranks, mean=mean)
        if self.is_split and mean and not even:
            scale = replace(rule.loss_scaling, constant=False)
            rule = replace(rule, loss_scaling=scale)
        return rule


def _check_count(name: str, value: object, example: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise RunError(f"{name} is an integer from 1 on, not {value!r}", name, example)
