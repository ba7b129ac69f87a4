"""Runs the steps of a compiled program, each at the learning rate of its schedule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from popgraph.backends.base import Executable
from popgraph.engine.host_scalars import HostScalars
from popgraph.engine.loss_scale import next_scale
from popgraph.passes.graphcore.training.variables import GOOD_UPDATES
from popgraph.passes.optimizer_spec import OptimizerSpec, loss_scale_variable
from popgraph.support.arrays import Array
from popgraph.training.task import Task
from popgraph.training.update_rule import Rates, with_rate


class ScheduledDriver:
    """
    Runs training steps: writes scheduled scalars, runs the program, counts steps.

    It outlives the program: another program of the same model continues at the same step.
    """

    def __init__(
        self, scalars: HostScalars, rule: OptimizerSpec, schedule: Rates | None = None
    ) -> None:
        self.rule = rule
        """The update rule; the schedule multiplies its learning rate."""
        self.steps = 0
        """The number of steps run."""
        self._scalars, self._schedule = scalars, schedule

    @classmethod
    def of(cls, task: Task, executable: Executable) -> ScheduledDriver:
        """Creates the driver of a task's program."""
        assert task.rule is not None, "a program that trains has an update rule"
        variables = {name: dtype for name, (dtype, _) in executable.variables.items()}
        loss, _ = executable.outputs[task.loss]
        return cls(HostScalars(task.rule, variables, loss), task.rule, task.schedule)

    @property
    def is_scheduled(self) -> bool:
        return self._schedule is not None

    @property
    def rate(self) -> float:
        """The learning rate of the last step, or of the first one before it runs."""
        rate = self.rule.learning_rate.value
        at = max(self.steps - 1, 0)
        return rate if self._schedule is None else rate * self._schedule.factor(at)

    def set_rate(self, executable: Executable, rate: float) -> None:
        """Sets the learning rate of the following steps of a program without a schedule."""
        scalar = replace(self.rule.learning_rate, value=rate)
        self.rule = replace(self.rule, learning_rate=scalar)
        self.write_scalars(executable, self.rule)

    @property
    def is_adjustable(self) -> bool:
        """Whether the program reads its learning rate from the host."""
        return not self.rule.learning_rate.constant

    def write_scalars(self, executable: Executable, rule: OptimizerSpec) -> None:
        """Writes the scalars of an update rule into the program."""
        for name, value in self._scalars.of(rule).items():
            executable.write(name, value)

    def begin(self, executable: Executable) -> None:
        """Begins a step: writes the scheduled learning rate."""
        if self._schedule is not None:
            self.write_scalars(executable, with_rate(self.rule, self._schedule.factor(self.steps)))
        self.steps += 1

    def end(self, executable: Executable) -> None:
        """Ends a step: adapts the dynamic loss scale."""
        if not self.rule.skip_overflow:
            return
        good, scale = int(executable.read(GOOD_UPDATES)), self.rule.loss_scaling
        value = next_scale(scale.value, good, self._scalars.loss)
        if value != scale.value:
            self.rule = replace(self.rule, loss_scaling=replace(scale, value=value))
            self.write_scalars(executable, self.rule)

    @property
    def loss_scale(self) -> float | None:
        """The dynamic loss scale; None if it is fixed."""
        return self.rule.loss_scaling.value if self.rule.skip_overflow else None

    def resume(self, executable: Executable) -> None:
        """Continues with the loss scale that the program holds."""
        if self.rule.skip_overflow:
            value = float(executable.read(loss_scale_variable(self._scalars.loss)))
            scale = replace(self.rule.loss_scaling, value=value)
            self.rule = replace(self.rule, loss_scaling=scale)

    def continue_from(self, driver: ScheduledDriver, executable: Executable) -> None:
        """Takes over the step count of another driver; the learning rate is this rule's."""
        self.steps = driver.steps
        self.write_scalars(executable, self.rule)

    def scale_gradients(self, executable: Executable, factor: float) -> None:
        """Scales the gradients of the next runs, if the host may write the loss scale."""
        loss = self._scalars.loss
        name = loss_scale_variable(loss)
        if name in executable.variables:
            scaled = self.rule.loss_scaling.value * factor
            executable.write(name, np.array(scaled, loss.numpy))

    def step(self, executable: Executable, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Runs the program once and returns its outputs; `period` runs make an update."""
        if self._schedule is not None:
            updates = self.steps // self._scalars.compiled.period
            self.write_scalars(executable, with_rate(self.rule, self._schedule.factor(updates)))
        self.steps += 1
        return executable.run(inputs)

    def run_stacked(
        self, executable: Executable, inputs: Mapping[str, Array], count: int
    ) -> dict[str, Array]:
        """Runs a program without a schedule `count` times in one call."""
        self.steps += count
        return executable.run_stacked(inputs, count)
