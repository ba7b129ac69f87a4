"""Training tasks: a model with its loss, its weights and the update rule that improves them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from xdsl.dialects.builtin import ModuleOp

from popgraph.builder.pgraph import Document
from popgraph.dialects.program import WeightStore
from popgraph.passes.optimizer_spec import OptimizerSpec
from popgraph.passes.options import Training
from popgraph.training.roles import Origin
from popgraph.training.selection import Choice, Selection, select
from popgraph.training.update_rule import Rates, rule_of


@dataclass(frozen=True)
class Task:
    """What is trained, and how."""

    module: ModuleOp
    """The model with its loss, at the onnx level."""
    weights: WeightStore
    loss: str
    rule: OptimizerSpec | None = None
    """None where a text leaves the optimizer to whoever trains it."""
    schedule: Rates | None = None
    terms: tuple[str, ...] = ()
    """Numbers that the loss is computed from, which are reported with it."""
    choice: Choice = field(default_factory=Choice)
    """What the user wants to be trained."""
    origin: Origin | None = None
    """That of the model to which the loss was added, if it was."""
    constants: tuple[str, ...] = ()
    """Weights that a text has frozen."""
    step_options: Mapping[str, object] = field(default_factory=dict)
    """What a text says of how a step runs."""

    @cached_property
    def selection(self) -> Selection:
        """What is trained, and why the rest is not."""
        found = select(self.module, self.loss, self.choice, self.origin)
        return found.with_constants(self.module, self.constants)

    @property
    def training(self) -> Training:
        """What passes are told."""
        assert self.rule is not None, "a program that trains has an update rule"
        return Training(self.loss, self.rule, frozen=self.selection.frozen)


def task_of(document: Document) -> Task | None:
    """How a text says that its first graph is trained, if it does."""
    section = document.training
    if section is None:
        return None
    call, schedule = section.optimizer, section.schedule
    return Task(
        section.module,
        document.weights,
        section.loss,
        None if call is None else rule_of(call, schedule),
        schedule,
        section.terms,
        origin=Origin(is_text=True),
        constants=section.frozen,
        step_options=section.step_options,
    )
