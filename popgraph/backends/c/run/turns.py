"""Programs that take turns: two with the same variables, one for the last run of several."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from popgraph.backends.base import Executable, refuse_donations
from popgraph.backends.c.run.executable import CExecutable
from popgraph.support.arrays import Array


class TakingTurns(Executable):
    """
    Of `period` runs, all but the last are runs of one program, and the last one is of another.

    Both have the same variables in the same memory. One of these, `counter`, says how many runs
    were before; both programs count.
    """

    def __init__(self, others: CExecutable, last: CExecutable, counter: str, period: int) -> None:
        last.share(others)
        self._others, self._last, self._period = others, last, period
        self._counter = others.variable(counter)
        self.inputs, self.outputs = last.inputs, last.outputs
        self.variables = others.variables | last.variables

    @property
    def _before(self) -> int:
        return int(self._counter)

    def run(self, inputs: Mapping[str, Array], donate: Collection[str] = ()) -> dict[str, Array]:
        if donate:
            refuse_donations(donate, "its program takes turns with another one")
        is_last = self._before + 1 == self._period
        return (self._last if is_last else self._others).run(inputs)

    def run_in_row(self, inputs: Mapping[str, Array], count: int) -> dict[str, Array]:
        parts, start = [], 0
        while start < count:
            left = self._period - 1 - self._before
            turns = min(max(left, 1), count - start)
            given = {name: rows[start : start + turns] for name, rows in inputs.items()}
            parts.append((self._others if left else self._last).run_in_row(given, turns))
            start += turns
        return {name: np.concatenate([part[name] for part in parts]) for name in self.outputs}

    def lend(self, other: CExecutable) -> None:
        """Has another program of the model have the same variables."""
        other.share(self._others)

    def _owner(self, variable: str) -> CExecutable:
        """A program that has a variable: what only updates need, not both have."""
        return self._others if variable in self._others.variables else self._last

    def read(self, variable: str) -> Array:
        return self._owner(variable).read(variable)

    def write(self, variable: str, value: Array) -> None:
        self._owner(variable).write(variable, value)
