"""The training driver: steps of a compiled program, each at the learning rate of its schedule."""

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


class Driver:
    """
    Runs steps of training: writes what the schedule changes, runs the program, counts.

    It outlives the program: another one made of the same model goes on where this one was.
    """

    def __init__(
        self, scalars: HostScalars, rule: OptimizerSpec, schedule: Rates | None = None
    ) -> None:
        self.rule = rule
        """The update rule, whose learning rate the schedule multiplies."""
        self.steps = 0
        """How many steps were run."""
        self._scalars, self._schedule = scalars, schedule

    @classmethod
    def of(cls, task: Task, executable: Executable) -> Driver:
        """The driver of a task and the program that was made for it."""
        assert task.rule is not None, "a program that trains has an update rule"
        variables = {name: dtype for name, (dtype, _) in executable.variables.items()}
        loss, _ = executable.outputs[task.loss]
        return cls(HostScalars(task.rule, variables, loss), task.rule, task.schedule)

    @property
    def is_scheduled(self) -> bool:
        """Whether the learning rate changes from step to step."""
        return self._schedule is not None

    @property
    def rate(self) -> float:
        """The learning rate of the step that was run last, or of the first one."""
        rate = self.rule.learning_rate.value
        at = max(self.steps - 1, 0)
        return rate if self._schedule is None else rate * self._schedule.factor(at)

    def send(self, executable: Executable, rule: OptimizerSpec) -> None:
        """Writes the scalars of a rule."""
        for name, value in self._scalars.of(rule).items():
            executable.write(name, value)

    def begin(self, executable: Executable) -> None:
        """Begins a step, at the learning rate of the schedule."""
        if self._schedule is not None:
            self.send(executable, with_rate(self.rule, self._schedule.factor(self.steps)))
        self.steps += 1

    def end(self, executable: Executable) -> None:
        """Ends a step: the loss scale follows the gradients, if it is to."""
        if not self.rule.skip_overflow:
            return
        good, scale = int(executable.read(GOOD_UPDATES)), self.rule.loss_scaling
        value = next_scale(scale.value, good, self._scalars.loss)
        if value != scale.value:
            self.rule = replace(self.rule, loss_scaling=replace(scale, value=value))
            self.send(executable, self.rule)

    @property
    def loss_scale(self) -> float | None:
        """The loss scale, where it follows the gradients."""
        return self.rule.loss_scaling.value if self.rule.skip_overflow else None

    def resume(self, executable: Executable) -> None:
        """Goes on with the loss scale that a program has."""
        if self.rule.skip_overflow:
            value = float(executable.read(loss_scale_variable(self._scalars.loss)))
            scale = replace(self.rule.loss_scaling, value=value)
            self.rule = replace(self.rule, loss_scaling=scale)

    def weigh(self, executable: Executable, factor: float) -> None:
        """Multiplies the gradients of the next runs by a factor, where the host may."""
        loss = self._scalars.loss
        name = loss_scale_variable(loss)
        if name in executable.variables:
            scaled = self.rule.loss_scaling.value * factor
            executable.write(name, np.array(scaled, loss.numpy))

    def step(self, executable: Executable, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """One run of a program; its outputs. Every `period` of them are an update."""
        if self._schedule is not None:
            updates = self.steps // self._scalars.compiled.period
            self.send(executable, with_rate(self.rule, self._schedule.factor(updates)))
        self.steps += 1
        return executable.run(inputs)

    def run_in_row(
        self, executable: Executable, inputs: Mapping[str, Array], count: int
    ) -> dict[str, Array]:
        """So many runs of a program without a schedule, by one call; their outputs."""
        self.steps += count
        return executable.run_in_row(inputs, count)
