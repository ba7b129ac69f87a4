"""Training steps as programs, without the trainer around them: for commands and other machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from popgraph.backends.base import Executable
from popgraph.compiler import BuildRequest
from popgraph.engine.accumulation import AccumulatingRequest
from popgraph.engine.plan import StepPlan
from popgraph.engine.program_code import ProgramCode
from popgraph.passes.graphcore.training.variables import COUNTER
from popgraph.passes.graphcore.training.weight_context import ACCUMULATED
from popgraph.passes.options import Options
from popgraph.support.boxes import Box
from popgraph.support.errors import UnsupportedError
from popgraph.support.machine import Machine
from popgraph.support.step_options import PRECISIONS, RECOMPUTED
from popgraph.training.programs import check_words
from popgraph.training.ranks import Ranks
from popgraph.training.task import Task

_OF_TRAINER = {
    "quantize": "its program trains in the element types of the model",
    "replicas": "one program runs the step, on --threads threads",
    "stages": "one program runs the step, on --threads threads",
}
"""Step options that only a trainer can apply, with the reason."""


def _left_out(plan: StepPlan) -> dict[str, str]:
    return {
        name: reason
        for name, reason in _OF_TRAINER.items()
        if getattr(plan, name) != getattr(StepPlan, name)
    }


@dataclass(frozen=True)
class DeviceStep:
    """A training step as one program: the task with the update rule of its plan."""

    task: Task
    plan: StepPlan

    @staticmethod
    def of(task: Task, given: Mapping[str, object]) -> DeviceStep:
        """
        The step of a text's task; `given` step options that are not None override the text.

        UnsupportedError for step options that need a trainer, ModelError if nothing is trained.
        """
        plan = StepPlan.of(task.step_options, given)
        for name, reason in _left_out(plan).items():
            raise UnsupportedError(
                f"an exported step has no {name}: {reason}", name, f"leave out {name}"
            )
        if plan.follows_overflow:
            raise UnsupportedError(
                "an exported step has a constant loss scale",
                "loss_scale",
                "a number: loss_scale = 128.0",
            )
        return DeviceStep._planned(task, plan)

    @staticmethod
    def of_text(task: Task) -> DeviceStep:
        """The step of a text's task; step options that need a trainer are `left_out`."""
        return DeviceStep._planned(task, StepPlan.of(task.step_options, {}))

    @staticmethod
    def _planned(task: Task, plan: StepPlan) -> DeviceStep:
        assert task.rule is not None, "the caller has checked that the text has an optimizer"
        task.selection.check()
        task = replace(task, rule=plan.for_loss(task.rule))
        return DeviceStep(Ranks.current().task(task, plan, even=True), plan)

    @property
    def left_out(self) -> dict[str, str]:
        """The step options of the plan that only a trainer can apply, with the reasons."""
        return _left_out(self.plan)

    def check(self, machine: Machine) -> None:
        """RunError unless the machine has products of the plan's precision."""
        check_words(machine, PRECISIONS[self.plan.precision])

    def options(self, options: Options) -> Options:
        """The options of a compilation, with those of the step."""
        return replace(
            options,
            training=self.task.training,
            recompute=RECOMPUTED[self.plan.recompute],
            precision=PRECISIONS[self.plan.precision],
            determinism=self.plan.determinism or options.determinism,
        )

    @property
    def period(self) -> int:
        """Runs of the program per update of the weights."""
        return self.plan.accumulate

    @property
    def counter(self) -> str:
        """The variable that counts the runs since the last update; "" if each run updates."""
        return COUNTER if self.period > 1 else ""

    @property
    def is_mean(self) -> bool:
        """Whether an update takes the mean of the gradients of its runs."""
        return self.task.training.optimizer.mean

    @property
    def clips(self) -> bool:
        """Whether an update scales all gradients by their common norm."""
        return bool(self.task.training.optimizer.clip)

    @property
    def recomputes(self) -> bool:
        """Whether the backward pass recomputes activations."""
        return bool(RECOMPUTED[self.plan.recompute])

    @property
    def accumulators(self) -> tuple[str, ...]:
        """The variables that hold the sums of gradients."""
        trained = self.task.selection.trained
        return tuple(ACCUMULATED + name for name in trained) if self.period > 1 else ()

    @property
    def weights(self) -> tuple[str, ...]:
        """The weights and running statistics that steps change."""
        selection = self.task.selection
        return (*selection.trained, *selection.statistics)

    @property
    def boxes(self) -> Mapping[str, Box]:
        """The parts of weights that steps change, where that is not all."""
        return self.task.selection.boxes

    def programs(self, request: BuildRequest) -> tuple[BuildRequest, BuildRequest | None]:
        """
        The requests of a micro-batch and of the update after `period` of them.

        None if the program updates in each run. The module of the request is lowered.
        """
        if self.period == 1:
            return request, None
        code = ProgramCode.lowered_from(request.module, request.compilation, request.options)
        micro_batch, update = code.requests(request.backend, request.threads)
        if update is None:
            raise UnsupportedError(
                "the update of this program cannot be separated from its micro-batches",
                "accumulate",
                "export without --accumulate",
            )
        return micro_batch, update

    def executable(self, request: BuildRequest) -> Executable:
        """The program that a trainer runs; the module of the request is lowered."""
        return (AccumulatingRequest.of(request) if self.period > 1 else request).executable()
