"""Pairs of programs that share variables: one for most runs, one for updates."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping
from functools import partial

import numpy as np

from popgraph.backends.base import (
    ComputedBy,
    Executable,
    NativeExecutable,
    refuse_donations,
)
from popgraph.support.arrays import Array


class AlternatingPrograms(Executable):
    """
    Two programs with the same variables in the same memory.

    The variable `counter` holds the number of runs since the last update, which is due after
    `period` runs.
    """

    def __init__(
        self, others: NativeExecutable, last: NativeExecutable, counter: str, period: int
    ) -> None:
        last.share(others)
        self._others, self._last, self._period = others, last, period
        self._counter = others.variable(counter)
        self.inputs, self.outputs = others.inputs, others.outputs
        self.variables = others.variables | last.variables

    @property
    def computed_by(self) -> ComputedBy:
        return self._others.computed_by

    @property
    def _runs_since_update(self) -> int:
        return int(self._counter)

    @abstractmethod
    def _next_runs(self, most: int) -> int:
        """The number of next runs, at most `most`, of the same program."""

    @abstractmethod
    def _run(self, inputs: Mapping[str, Array]) -> dict[str, Array]: ...

    @abstractmethod
    def _run_part(self, inputs: Mapping[str, Array], count: int) -> dict[str, Array]: ...

    def run(self, inputs: Mapping[str, Array], donate: Collection[str] = ()) -> dict[str, Array]:
        if donate:
            refuse_donations(donate, "its program takes turns with another one")
        return self._run(inputs)

    def run_stacked(self, inputs: Mapping[str, Array], count: int) -> dict[str, Array]:
        results, start = [], 0
        while start < count:
            run_count = self._next_runs(count - start)
            given = {name: rows[start : start + run_count] for name, rows in inputs.items()}
            results.append(self._run_part(given, run_count))
            start += run_count
        return {name: np.concatenate([result[name] for result in results]) for name in self.outputs}

    @property
    def arena(self) -> int:
        return max(self._others.arena, self._last.arena)

    def lend(self, other: NativeExecutable) -> None:
        """Shares the variables with another program of the model."""
        other.share(self._others)

    def _owner(self, variable: str) -> NativeExecutable:
        """
        The program that holds a variable; only the update program holds variables of updates.
        """
        return self._others if variable in self._others.variables else self._last

    def read(self, variable: str) -> Array:
        return self._owner(variable).read(variable)

    def write(self, variable: str, value: Array) -> None:
        self._owner(variable).write(variable, value)


class FusedUpdate(AlternatingPrograms):
    """Alternating programs: `period - 1` runs of one, then one run of the other."""

    @property
    def _is_last(self) -> bool:
        return self._runs_since_update + 1 == self._period

    def _next_runs(self, most: int) -> int:
        return min(max(self._period - 1 - self._runs_since_update, 1), most)

    def _run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        return (self._last if self._is_last else self._others).run(inputs)

    def _run_part(self, inputs: Mapping[str, Array], count: int) -> dict[str, Array]:
        return (self._last if self._is_last else self._others).run_stacked(inputs, count)


class SeparateUpdate(AlternatingPrograms):
    """All runs are of one program; the other one, without inputs, updates after `period` runs."""

    def _next_runs(self, most: int) -> int:
        return min(self._period - self._runs_since_update, most)

    def _run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        return self._run_then_update(partial(self._others.run, inputs))

    def _run_part(self, inputs: Mapping[str, Array], count: int) -> dict[str, Array]:
        return self._run_then_update(partial(self._others.run_stacked, inputs, count))

    def _run_then_update(self, run: Callable[[], dict[str, Array]]) -> dict[str, Array]:
        """Updates even if a run rejected its inputs: it counts as a run."""
        try:
            return run()
        finally:
            if self._runs_since_update == self._period:
                self._last.run_stacked({}, 1)
