"""Training tasks: a model with its loss, its weights and its update rule."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

from xdsl.dialects.builtin import ModuleOp

from popgraph.builder.pgraph import Document, load, parse
from popgraph.builder.source import ModelSource
from popgraph.compiler import Model
from popgraph.dialects.program import WeightStore
from popgraph.passes.optimizer_spec import OptimizerSpec
from popgraph.passes.options import Training
from popgraph.support.boxes import written
from popgraph.support.files import path_of
from popgraph.support.memo import cached_property
from popgraph.training.roles import Origin
from popgraph.training.selection import Selection, WeightPatterns, select
from popgraph.training.update_rule import Rates, rule_of


@dataclass(frozen=True)
class Task:
    """Everything that defines a training step, independent of the backend."""

    module: ModuleOp
    """The model with its loss, at the onnx level."""
    weights: WeightStore
    loss: str
    rule: OptimizerSpec | None = None
    """None if a text leaves the choice of the optimizer to the user."""
    schedule: Rates | None = None
    terms: tuple[str, ...] = ()
    """Scalars that the loss is computed from and that are reported with it."""
    patterns: WeightPatterns = field(default_factory=WeightPatterns)
    """The user's choice of weights to train."""
    origin: Origin | None = None
    """The origin of the model before the loss was added, if it was."""
    constants: tuple[str, ...] = ()
    """Weights that a text has frozen."""
    slices: Mapping[str, str] = field(default_factory=dict)
    """Slices of weights that a text trains: `:8` of `w[:8]`."""
    step_options: Mapping[str, object] = field(default_factory=dict)
    """The step options of a text."""

    @cached_property
    def selection(self) -> Selection:
        """The weights that are trained, and why the others are not."""
        found = select(self.module, self.loss, self.patterns, self.origin, self.slices)
        return found.with_constants(self.module, self.constants)

    @property
    def training(self) -> Training:
        """The training options of the passes."""
        assert self.rule is not None, "a program that trains has an update rule"
        found = self.selection
        return Training(self.loss, self.rule, frozen=found.frozen, parts=written(found.boxes))


class TextSource(ModelSource):
    """A model that keeps the training section of the text that it comes from."""

    @abstractmethod
    def text(self) -> Document | None:
        """A copy of the text, which training changes in place; None for another model."""


def document_of(model: Model) -> Document | None:
    """The text of a model, if it is one: a `.pgraph` file or text, or one with adapters."""
    if isinstance(model, TextSource):
        return model.text()
    path = path_of(model)
    if path is None and isinstance(model, str):
        return parse(model)
    return load(path) if path is not None and path.suffix == ".pgraph" else None


def task_of(document: Document) -> Task | None:
    """The training task of a text; None if the text has no `train` section."""
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
        slices=section.slices,
        step_options=section.step_options,
    )
