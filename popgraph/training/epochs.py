"""Epochs: training on arrays of samples, in batches of a random order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from popgraph.backends.base import Executable
from popgraph.support.arrays import Array
from popgraph.support.errors import RunError
from popgraph.training.driver import Driver


@dataclass(frozen=True)
class Batches:
    """How samples become steps."""

    epochs: int
    size: int
    """Samples of a batch; those that do not fill one are left out of an epoch."""
    samples: int
    seed: int

    @property
    def per_epoch(self) -> int:
        return self.samples // self.size

    def __iter__(self) -> Iterator[tuple[int, int, Array]]:
        """The epoch, the step in it, and the samples of that step."""
        generator = np.random.default_rng(self.seed)
        for epoch in range(self.epochs):
            order = generator.permutation(self.samples)
            for step in range(self.per_epoch):
                yield epoch, step, order[step * self.size : (step + 1) * self.size]


@dataclass(frozen=True)
class Progress:
    """Where training is after a step."""

    epoch: int
    step: int
    means: Mapping[str, float]
    """Of the outputs that are watched, since the epoch began."""
    ends_epoch: bool


def train(
    driver: Driver,
    executable: Executable,
    arrays: Mapping[str, Array],
    batches: Batches,
    watched: Sequence[str],
) -> Iterator[Progress]:
    """Runs all steps; tells after each how far it is."""
    totals = dict.fromkeys(watched, 0.0)
    for epoch, step, chosen in batches:
        if step == 0:
            totals = dict.fromkeys(watched, 0.0)
        results = driver.step(executable, {name: array[chosen] for name, array in arrays.items()})
        for name in watched:
            totals[name] += float(results[name].astype(np.float64).mean())
        means = {name: total / (step + 1) for name, total in totals.items()}
        yield Progress(epoch, step, means, step + 1 == batches.per_epoch)


def count_samples(arrays: Mapping[str, Array]) -> int:
    """How many samples there are; RunError unless all arrays agree."""
    if not arrays:
        raise RunError("there is no data to train on", hint="x=x.npy labels=labels.npy")
    counts = {name: array.shape[0] if array.ndim else 0 for name, array in arrays.items()}
    if len(set(counts.values())) != 1 or not min(counts.values()):
        listed = ", ".join(f"{name}: {count}" for name, count in counts.items())
        raise RunError(f"the arrays have different numbers of samples ({listed})")
    return next(iter(counts.values()))
