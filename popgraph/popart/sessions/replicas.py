"""The replicas of a model: one program for all of them, or one that is run for each in turn."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from popgraph.backends.base import Executable
from popgraph.dialects.graphcore.random import SEED
from popgraph.popart.api.step_shape import StepShape
from popgraph.popart.programs.program import Program
from popgraph.support.arrays import Array

Results = Mapping[str, Array]
RunBatch = Callable[[Mapping[str, Array]], Results]
"""Runs the program once."""


class Replicas(ABC):
    """What a session asks of its replicas."""

    @abstractmethod
    def run(
        self, executable: Executable, inputs: Sequence[Mapping[str, Array]], run: RunBatch
    ) -> list[Results]:
        """The results of a micro-batch on every replica."""

    @abstractmethod
    def enter(self, executable: Executable, replica: int) -> None:
        """Makes the values of a replica those of the program."""

    @abstractmethod
    def restart(self) -> None:
        """The program's values are new ones, which are those of every replica."""


class InTurn(Replicas):
    """
    Replicas that know nothing of each other share a program: it is run for one after the other.

    What they have in common (trained weights, optimizer state) stays in the program, where the
    gradients of all of them add up. Of `own`, such as running statistics, each replica has values
    of its own, which are put into the program before its turn. Results that are `common` are on
    all of them what the last one leaves. Each one `draws` at a step of its own: those of other
    ranks take their turns in between.
    """

    def __init__(
        self, shape: StepShape, own: Collection[str], common: Collection[str], *, draws: bool
    ) -> None:
        self.count = count = shape.replicas
        self._shape, self._draws = shape, draws and shape.ranks > 1
        self._own = tuple(own) if count > 1 else ()
        self._common = tuple(common) if count > 1 else ()
        self._values: list[Mapping[str, Array]] = []
        self._inside = 0

    def run(
        self, executable: Executable, inputs: Sequence[Mapping[str, Array]], run: RunBatch
    ) -> list[Results]:
        results = []
        with self._turns(executable):
            for replica, given in enumerate(inputs):
                self.enter(executable, replica)
                results.append(run(given))
        if not self._common:
            return results
        last = {id: results[-1][id] for id in self._common if id in results[-1]}
        return [{**found, **last} for found in results]

    @contextmanager
    def _turns(self, executable: Executable) -> Iterator[None]:
        """Skips the steps at which replicas of other ranks draw."""
        if not self._draws:
            yield
            return
        seed, step = executable.read(SEED)
        first = step + self._shape.rank * self.count
        executable.write(SEED, np.array([seed, first]))
        yield
        executable.write(SEED, np.array([seed, step + self._shape.all_replicas]))

    def enter(self, executable: Executable, replica: int) -> None:
        """Puts the values of a replica into the program, and keeps those that were there."""
        if not self._own:
            return
        held = {id: executable.read(id) for id in self._own}
        if not self._values:
            self._values = [held] * self.count
        if replica != self._inside:
            self._values[self._inside] = held
            for id, value in self._values[replica].items():
                executable.write(id, value)
            self._inside = replica

    def restart(self) -> None:
        self._values, self._inside = [], 0


class Together(Replicas):
    """Replicas that talk to each other, or differ in their weights: a program is all of them."""

    def __init__(self, program: Program) -> None:
        self._inputs = {id: program.replicas.inputs(id) for id in program.inputs}
        self._results = {id: program.results(id) for id in program.computed}

    def enter(self, executable: Executable, replica: int) -> None:
        """The program has the values of all replicas."""

    def restart(self) -> None:
        """Nothing of them stands outside of the program."""

    def run(
        self, executable: Executable, inputs: Sequence[Mapping[str, Array]], run: RunBatch
    ) -> list[Results]:
        given = {
            name: values[id]
            for id, names in self._inputs.items()
            for name, values in zip(names, inputs, strict=True)
        }
        found = run(given)
        return [
            {id: found[names[replica]] for id, names in self._results.items() if names[0] in found}
            for replica in range(len(inputs))
        ]
