"""Runs the steps of a compiled program: replica by replica, or several micro-batches per call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from popgraph.backends.base import Executable
from popgraph.engine.delayed_weights import DelayedWeights
from popgraph.engine.engine import Engine
from popgraph.engine.replicas import Inputs, Replicas, Results
from popgraph.engine.staged_executable import StagedExecutable
from popgraph.engine.steps import StepData, Steps


class Driver(Protocol):
    """Runs micro-batches of a program, and writes scheduled scalars between them."""

    @property
    def is_scheduled(self) -> bool:
        """Whether scalars change from one micro-batch to the next."""

    def step(self, executable: Executable, inputs: Inputs) -> Results:
        """Runs the program once."""

    def run_stacked(self, executable: Executable, inputs: Inputs, count: int) -> Results:
        """Runs the program `count` times in one call."""


class UnscheduledDriver:
    """The driver of a program without scheduled scalars."""

    is_scheduled = False

    def step(self, executable: Executable, inputs: Inputs) -> Results:
        return executable.run(inputs)

    def run_stacked(self, executable: Executable, inputs: Inputs, count: int) -> Results:
        return executable.run_stacked(inputs, count)


class StepRunner:
    """The steps of an engine's program."""

    def __init__(
        self,
        engine: Engine,
        steps: Steps,
        replicas: Replicas,
        delays: Mapping[str, int],
        checks: Sequence[Callable[[Executable, Results], None]] = (),
    ) -> None:
        """`checks` are called after each run of the program."""
        self._engine, self._steps, self._checks = engine, steps, checks
        self.replicas = replicas
        self.driver: Driver = UnscheduledDriver()
        self.inputs: Inputs | None = None
        """The last micro-batch that ran."""
        self._delayed = DelayedWeights(delays)

    @property
    def _is_one_by_one(self) -> bool:
        """Whether the host acts between micro-batches."""
        several = self._steps.share.own.all_replicas > 1
        looks = bool(self._checks) or self.driver.is_scheduled
        return several or looks or self._delayed.has_delays

    def step(self, data: StepData, *, forward: bool = False) -> None:
        """Runs one step; with `forward`, its forward pass alone."""
        executable = self._engine.executable
        assert executable is not None, "steps are of a compiled program"
        self._delayed.begin_step()
        if isinstance(executable, StagedExecutable):
            self._steps.run_together(data, partial(self._run_part, executable))
            return
        is_whole = self._steps.runs_in_one_call and not (forward or self._is_one_by_one)
        if is_whole and self._steps.run_stacked(data, partial(self._run_part, executable)):
            return
        run = partial(self._run_replicas, executable, forward)
        only = self._engine.program.forward_outputs if forward else None
        self._steps.run(data, run, only)

    def _run_part(self, executable: Executable, inputs: Inputs, count: int) -> Results:
        self.inputs = {id: rows[-1] for id, rows in inputs.items()}
        return self.driver.run_stacked(executable, inputs, count)

    def _run_replicas(
        self, executable: Executable, forward: bool, inputs: Sequence[Inputs]
    ) -> Sequence[Results]:
        """Runs one micro-batch on each replica."""
        self._delayed.enter(executable)
        run = self._forward if forward else partial(self.driver.step, executable)
        return self.replicas.run(executable, inputs, partial(self._checked, executable, run))

    def _checked(
        self, executable: Executable, run: Callable[[Inputs], Results], inputs: Inputs
    ) -> Results:
        self.inputs = inputs
        results = run(inputs)
        for check in self._checks:
            check(executable, results)
        return results

    def _forward(self, inputs: Inputs) -> Results:
        assert self._engine.forward is not None, "it was compiled with the program"
        return self._engine.forward.run(inputs)
