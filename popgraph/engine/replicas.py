"""Replicas on threads: copies of a program run micro-batches side by side, then one update."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

import numpy as np

from popgraph.backends.base import Executable, NativeExecutable
from popgraph.dialects.graphcore.random import SEED
from popgraph.engine.staged import StagedExecutable
from popgraph.engine.turns import UpdatingApart
from popgraph.passes.graphcore.training.variables import COUNTER
from popgraph.passes.graphcore.training.weight_context import ACCUMULATED
from popgraph.support.arrays import Array

Inputs: TypeAlias = Mapping[str, Array]


_APART = 0x9E3779B97F4A7C15
"""Between the seeds of two replicas or ranks: 2^64 divided by the golden ratio."""


def seed_apart(state: Array, number: int) -> Array:
    """The random state of a replica or rank, from that of the first one."""
    seed, step = state.astype(np.uint64).tolist()
    return np.array([(seed + _APART * number) % 2**64, step], np.uint64).astype(np.int64)


class SideBySide(UpdatingApart):
    """
    Copies of the program of micro-batches, each on a thread, and one program that updates.

    Weights and states are in the memory of all. Each copy has its own accumulators, which are
    summed after every call, in the order of the copies: results do not depend on their speed.
    """

    def __init__(
        self,
        others: NativeExecutable,
        last: NativeExecutable,
        period: int,
        twins: Sequence[NativeExecutable],
        own: Collection[str],
    ) -> None:
        """`own` are the variables that a run without an update changes."""
        super().__init__(others, last, COUNTER, period)
        self._twins = tuple(twins)
        names = sorted(set(own).intersection(others.variables) - {COUNTER, SEED})
        self._sums = [name for name in names if name.startswith(ACCUMULATED)]
        floats = [name for name in names if others.variables[name][0].is_float]
        self._means = [name for name in floats if name not in self._sums]

    @property
    def arena(self) -> int:
        return super().arena + sum(twin.arena for twin in self._twins)

    def run_together(self, inputs: Sequence[Inputs]) -> list[dict[str, Array]]:
        """Runs as many micro-batches; their outputs in the same order."""
        programs, count, before = [self._others, *self._twins], len(inputs), self._before
        size = -(-count // len(programs))
        shares = [inputs[at : at + size] for at in range(0, count, size)]
        active = programs[: len(shares)]
        self._begin()
        with ThreadPoolExecutor(len(active)) as threads:
            runs = [
                threads.submit(_run_each, program, share)
                for program, share in zip(active, shares, strict=True)
            ]
        self._collect(active)
        self._counter[...] = before + count
        if self._before == self._period:
            self._last.run_in_row({}, 1)
        return [found for run in runs for found in run.result()]

    def _begin(self) -> None:
        """Gives all copies the running statistics of the first, and random states apart."""
        first = self._others
        for number, twin in enumerate(self._twins, 1):
            for name in self._means:
                twin.variable(name)[...] = first.variable(name)
            if SEED in first.variables:
                twin.variable(SEED)[...] = seed_apart(first.variable(SEED), number)

    def _collect(self, active: Sequence[NativeExecutable]) -> None:
        """Sums the accumulators in those of the first copy; of statistics it has the means."""
        first, *twins = active
        for twin in twins:
            for name in self._sums:
                added = twin.variable(name)
                first.variable(name)[...] += added
                added[...] = 0
        for name in self._means if twins else ():
            values = [one.variable(name) for one in active]
            first.variable(name)[...] = np.mean(values, axis=0, dtype=np.float64)


def _run_each(program: NativeExecutable, inputs: Sequence[Inputs]) -> list[dict[str, Array]]:
    return [program.run(given) for given in inputs]


def run_all(program: Executable, inputs: Sequence[Inputs]) -> list[dict[str, Array]]:
    """Runs micro-batches, on the replicas or the stages of a program if it has any."""
    if isinstance(program, SideBySide):
        return program.run_together(inputs)
    if isinstance(program, StagedExecutable):
        rows = {name: np.stack([one[name] for one in inputs]) for name in program.inputs}
        found = program.run_in_row(rows, len(inputs))
        return [{name: one[at] for name, one in found.items()} for at in range(len(inputs))]
    return [program.run(given) for given in inputs]
