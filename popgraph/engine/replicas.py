"""Replicas: sequential runs of a program, one program for all, or copies of it on threads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import TypeAlias

import numpy as np

from popgraph.backends.base import Executable, NativeExecutable
from popgraph.dialects.graphcore.random import SEED
from popgraph.engine.alternating_programs import SeparateUpdate
from popgraph.engine.plan import StepPlan
from popgraph.engine.staged_executable import StagedExecutable
from popgraph.passes.graphcore.training.variables import COUNTER
from popgraph.passes.graphcore.training.weight_context import ACCUMULATED
from popgraph.support.arrays import Array

Inputs: TypeAlias = Mapping[str, Array]
Results: TypeAlias = Mapping[str, Array]
RunBatch: TypeAlias = Callable[[Inputs], Results]
"""Runs the program once."""
RunStacked: TypeAlias = Callable[[Inputs, int], Results]
"""Runs the program on arrays that stack a number of micro-batches."""

_NOTHING = nullcontext()
_SEED_DISTANCE = 0x9E3779B97F4A7C15
"""Distance between the seeds of two replicas or ranks: 2^64 divided by the golden ratio."""


def derive_seed(state: Array, number: int) -> Array:
    """The random state of a replica or rank, derived from that of the first one."""
    seed, step = state.astype(np.uint64).tolist()
    return np.array([(seed + _SEED_DISTANCE * number) % 2**64, step], np.uint64).astype(np.int64)


class ParallelCopies(SeparateUpdate):
    """
    Copies of the micro-batch program, one per thread, and one update program.

    All share the memory of weights and states. Each copy has its own accumulators, which are summed
    after every call, in the order of the copies: results do not depend on their speed.
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
        """Runs micro-batches in parallel; returns their outputs in the same order."""
        programs, count, before = [self._others, *self._twins], len(inputs), self._runs_since_update
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
        if self._runs_since_update == self._period:
            self._last.run_stacked({}, 1)
        return [found for run in runs for found in run.result()]

    def _begin(self) -> None:
        """
        Copies the running statistics of the first copy to all, and gives each its own random state.
        """
        first = self._others
        for number, twin in enumerate(self._twins, 1):
            for name in self._means:
                twin.variable(name)[...] = first.variable(name)
            if SEED in first.variables:
                twin.variable(SEED)[...] = derive_seed(first.variable(SEED), number)

    def _collect(self, active: Sequence[NativeExecutable]) -> None:
        """Sums the accumulators of all copies into the first, and averages their statistics."""
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
    """Runs micro-batches, on the replicas or stages of a program if it has any."""
    if isinstance(program, ParallelCopies):
        return program.run_together(inputs)
    if isinstance(program, StagedExecutable):
        return stack_and_run(program.run_stacked, program.inputs, inputs)
    return [program.run(given) for given in inputs]


def stack_and_run(
    run: RunStacked, names: Iterable[str], inputs: Sequence[Inputs]
) -> list[dict[str, Array]]:
    """Runs stacked micro-batches in one call."""
    rows = {name: np.stack([one[name] for one in inputs]) for name in names}
    found = run(rows, len(inputs))
    return [{name: one[at] for name, one in found.items()} for at in range(len(inputs))]


class Replicas(ABC):
    """The replicas of a program; each runs one micro-batch at a time."""

    @abstractmethod
    def run(self, executable: Executable, inputs: Sequence[Inputs], run: RunBatch) -> list[Results]:
        """Runs a micro-batch on every replica."""

    @abstractmethod
    def enter(self, executable: Executable, replica: int) -> None:
        """Loads the values of a replica into the program."""

    @abstractmethod
    def restart(self) -> None:
        """Resets all replicas to the program's new values."""


class SequentialReplicas(Replicas):
    """
    Independent replicas that run one after the other in the same program.

    Shared values (trained weights, optimizer state) stay in the program, which accumulates the
    gradients of all replicas. Values in `own`, such as running statistics, are swapped in before
    each replica runs. Results in `common` are taken from the last replica. If a replica `draws`
    random numbers, it skips the steps of replicas on other ranks.
    """

    def __init__(
        self, plan: StepPlan, own: Collection[str], common: Collection[str], *, draws: bool
    ) -> None:
        self.count = count = plan.replicas
        self._plan, self._draws = plan, draws and plan.ranks > 1
        self._own = tuple(own) if count > 1 else ()
        self._common = tuple(common) if count > 1 else ()
        self._values: list[Mapping[str, Array]] = []
        self._loaded = 0

    def run(self, executable: Executable, inputs: Sequence[Inputs], run: RunBatch) -> list[Results]:
        results = []
        with self._random_steps(executable) if self._draws else _NOTHING:
            for replica, given in enumerate(inputs):
                self.enter(executable, replica)
                results.append(run(given))
        if not self._common:
            return results
        last = {id: results[-1][id] for id in self._common if id in results[-1]}
        return [{**found, **last} for found in results]

    @contextmanager
    def _random_steps(self, executable: Executable) -> Iterator[None]:
        """Skips the random steps of replicas on other ranks."""
        seed, step = executable.read(SEED)
        first = step + self._plan.rank * self.count
        executable.write(SEED, np.array([seed, first]))
        yield
        executable.write(SEED, np.array([seed, step + self._plan.all_replicas]))

    def enter(self, executable: Executable, replica: int) -> None:
        """Swaps in the values of a replica, and saves the previous one's values."""
        if not self._own:
            return
        held = {id: executable.read(id) for id in self._own}
        if not self._values:
            self._values = [held] * self.count
        if replica != self._loaded:
            self._values[self._loaded] = held
            for id, value in self._values[replica].items():
                executable.write(id, value)
            self._loaded = replica

    def restart(self) -> None:
        self._values, self._loaded = [], 0


class JointReplicas(Replicas):
    """Replicas that communicate, or whose weights differ: one program contains all of them."""

    def __init__(
        self, inputs: Mapping[str, Sequence[str]], results: Mapping[str, Sequence[str]]
    ) -> None:
        """Maps inputs and results of one replica to the program's, one per replica."""
        self._inputs, self._results = inputs, results

    def enter(self, executable: Executable, replica: int) -> None:
        """Does nothing: the program has the values of all replicas."""

    def restart(self) -> None:
        """Does nothing: the program has the values of all replicas."""

    def run(self, executable: Executable, inputs: Sequence[Inputs], run: RunBatch) -> list[Results]:
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
