"""Training tasks: a model with its loss, its weights and the update rule that improves them."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp

from popgraph.builder.pgraph import Document, Schedule
from popgraph.dialects.program import WeightStore
from popgraph.passes.graphcore.training.optimizer_spec import OptimizerSpec
from popgraph.training.update_rule import rule_of


@dataclass(frozen=True)
class Task:
    """What is trained, and how."""

    module: ModuleOp
    """The model with its loss, at the onnx level."""
    weights: WeightStore
    loss: str
    rule: OptimizerSpec | None = None
    """None where a text leaves the optimizer to whoever trains it."""
    schedule: Schedule | None = None
    terms: tuple[str, ...] = ()
    """Numbers that the loss is computed from, which are reported with it."""


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
    )
