"""The subject of training: a model, a loss and an optimizer, from which a task is built."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute

from popgraph.builder.pgraph import Schedule, add_loss, parse_optimizer, parse_schedule
from popgraph.builder.pgraph.check.loss_table import CLASS_NUMBERS, LOSS_NAMES, Loss, loss_named
from popgraph.compiler import Model, interface_of, load
from popgraph.dialects.onnx import model_of
from popgraph.dialects.onnx.containers import input_types
from popgraph.dialects.onnx.types import dims, tensor_type
from popgraph.dialects.onnx.weight_names import weights_by_name
from popgraph.dialects.program import WeightStore
from popgraph.engine.plan import StepPlan
from popgraph.passes.optimizer_spec import OptimizerSpec
from popgraph.quantization.training import prepare_for_training, with_rounding
from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.support.errors import ModelError
from popgraph.support.files import path_of
from popgraph.support.spelling import setting
from popgraph.training.inference_form import to_inference
from popgraph.training.inference_model import with_prediction, without_loss
from popgraph.training.loss_expressions import (
    ClassWeights,
    checked_loss,
    expression_of,
    weights_of_classes,
)
from popgraph.training.merged_weights import separate_weights
from popgraph.training.roles import Origin, is_float
from popgraph.training.samples import SAMPLE_WEIGHT
from popgraph.training.schedules import LearningRateSchedule
from popgraph.training.selection import WeightPatterns
from popgraph.training.task import Task, document_of, task_of
from popgraph.training.trained_weights import put_weights
from popgraph.training.update_rule import (
    OPTIMIZER_NAMES,
    Rates,
    optimizer_of,
    with_rate,
)

Optimizer: TypeAlias = Any
"""A text such as `Adam(0.001)`, an `OptimizerSpec`, or a PopART optimizer with `spec()`."""


@dataclass(frozen=True)
class TrainingArguments:
    """The user's training arguments besides the model and the data."""

    loss: str | None = None
    """A loss by name, an expression, or a value of the model; None: the text's own loss."""
    optimizer: Optimizer = None
    schedule: str | Schedule | Callable[[int], float] | None = None
    class_weights: ClassWeights | None = None
    patterns: WeightPatterns = field(default_factory=WeightPatterns)
    prediction: str | None = None
    """The output to which a named loss applies, if the model has several."""


class TrainingProblem:
    """A model to be trained, before its data are known."""

    def __init__(self, model: Model, arguments: TrainingArguments) -> None:
        self.arguments = arguments
        path = path_of(model)
        self.where = str(path or "")
        self._text_task: Task | None = None
        document = document_of(model)
        if document is not None:
            self._text_task = task_of(document)
            self.module, self.weights = document.module, document.weights
            self._is_text = True
        else:
            self.module, compilation = load(model)
            self.weights, self._is_text = compilation.weights, False
            separate_weights(self.module, self.weights)
        self.rule, self._schedule = self._update_rule()
        self.quantizes = False
        """Whether tasks round weights and activations in place."""
        self.weighs_samples = False
        """Whether the loss has an input `SAMPLE_WEIGHT`; known with the first task."""
        if arguments.loss is not None:
            checked_loss(arguments.loss, _values(self.module), self.where)
        elif self._text_task is None:
            given = setting("loss", "cross_entropy(y, labels)")
            hint = f"{given}, or a name alone; {LOSS_NAMES.listed}"
            raise ModelError("no loss is given", self.where, hint)

    def quantize(self) -> None:
        """Rounds weights and activations in place in all tasks from now on."""
        self.quantizes = True
        text = self._text_task
        if self._uses_text_loss and text is not None:
            module, weights = prepare_for_training(text.module, self.weights)
            self._text_task = replace(text, module=module, weights=weights)
        self.module, self.weights = prepare_for_training(self.module, self.weights)

    def rounded(self, module: ModuleOp) -> ModuleOp:
        """The module with rounding in place if this training quantizes."""
        if not self.quantizes:
            return module
        plain = module.clone()
        to_inference(plain)
        return with_rounding(module, plain, self.weights)

    @property
    def initial_weights(self) -> dict[str, Array]:
        """The weights of the model before the first step."""
        found = weights_by_name(model_of(self.module).graph)
        return {name: one.array(self.weights) for name, one in found.items() if is_float(one)}

    def set_weights(self, weights: Mapping[str, Array]) -> None:
        """Replaces initial weights by name."""
        put_weights(self.module, weights, self.weights)
        if self._text_task is not None:
            put_weights(self._text_task.module, weights, self.weights)

    @property
    def step_options(self) -> Mapping[str, object]:
        """The step options of the text."""
        return {} if self._text_task is None else self._text_task.step_options

    @property
    def model_with_loss(self) -> ModuleOp:
        """The model, with the loss of its text unless the user overrides it."""
        return self._text_task.module if self._uses_text_loss and self._text_task else self.module

    @property
    def inputs(self) -> tuple[str, ...]:
        """The inputs of a step, in the order of unnamed data."""
        names = tuple(input_types(self.model_with_loss))
        named = self._named_loss
        return (*names, named.target_name) if named and named.takes_target else names

    @property
    def can_weigh_samples(self) -> bool:
        """Whether the loss takes weights of samples: a named loss with a target does."""
        named = self._named_loss
        return named is not None and bool(named.elements)

    @property
    def has_schedule(self) -> bool:
        return self._schedule is not None

    @property
    def is_adjustable(self) -> bool:
        """Whether a program of this problem reads its learning rate from the host."""
        return not self.rule.learning_rate.constant

    def set_rate(self, rate: float) -> None:
        """Sets the learning rate; programs that are built from now on read it from the host."""
        scalar = replace(self.rule.learning_rate, value=rate, constant=False)
        self.rule = replace(self.rule, learning_rate=scalar)

    @property
    def named_loss(self) -> Loss | None:
        """The named loss, unless the model has a value of this name."""
        return self._named_loss

    @property
    def _named_loss(self) -> Loss | None:
        """The named loss, unless the model has a value of this name."""
        loss = self.arguments.loss
        return None if loss is None or self._is_model_value(loss) else loss_named(loss)

    def _is_model_value(self, loss: str) -> bool:
        return loss in _values(self.module)

    @property
    def _uses_text_loss(self) -> bool:
        return self.arguments.loss is None

    def task(self, samples: Mapping[str, Array], plan: StepPlan) -> Task:
        """The task for samples of these shapes; their first dimension is the batch."""
        if self._uses_text_loss:
            found = self._text_task
            assert found is not None, "the text defines the loss"
            if self.arguments.class_weights is not None:
                raise ModelError(
                    "class weights require a named loss", self.where, "loss='nll', for example"
                )
        else:
            found = self._with_loss(samples)
        rule, found = plan.for_loss(self.rule), replace(found, module=self.rounded(found.module))
        return replace(found, rule=rule, schedule=self._schedule, patterns=self.arguments.patterns)

    def without_loss(self) -> ModuleOp:
        """The model without its loss."""
        loss = self.arguments.loss
        if loss is None or not self._is_model_value(loss):
            return self.module.clone()
        return without_loss(self.module, loss)

    def _with_loss(self, samples: Mapping[str, Array]) -> Task:
        loss = self.arguments.loss
        assert loss is not None
        new = new_inputs(self.module, samples)
        named = self._named_loss
        if self._is_model_value(loss):
            loss = f"`{loss}`"
        elif named is not None:
            loss = self._apply(named, new)
        module, name = add_loss(self.module, self.weights, loss, new)
        module = with_prediction(module, name)
        return Task(
            module, self.weights, name, origin=Origin.of(self.module, is_text=self._is_text)
        )

    def _apply(self, loss: Loss, new: dict[str, Attribute]) -> str:
        """Applies the named loss to the output and the target, as an expression."""
        output = self._loss_output()
        self.weighs_samples = SAMPLE_WEIGHT in new and self.can_weigh_samples
        of_samples = SAMPLE_WEIGHT if self.weighs_samples else ""
        targets = {name: type_ for name, type_ in new.items() if name != of_samples}
        target = self._target(targets) if loss.takes_target else ""
        like = self._output_types().get(output)
        if target and loss.target != CLASS_NUMBERS and like is not None:
            new[target] = _with_element_type(new[target], like)
        given = self.arguments.class_weights
        weights = None if given is None else weights_of_classes(loss, given, like, new[target])
        return expression_of(loss, output, target, weights, of_samples)

    def _loss_output(self) -> str:
        names = model_of(self.module).graph.output_names
        if self.arguments.prediction in names:
            return self.arguments.prediction
        if len(names) != 1:
            last = names[-1] if names else "y"
            raise ModelError(
                f"a named loss applies to one output, but the model has {len(names)}",
                f"loss {self.arguments.loss!r}",
                f"select it by {setting('prediction', last)}, or write an expression, "
                f"{setting('loss', f'nll({last}, labels)')}",
            )
        return names[0]

    def _target(self, new: Mapping[str, Attribute]) -> str:
        if len(new) != 1:
            found = ", ".join(map(repr, new)) or "none"
            raise ModelError(
                "a named loss compares the output with one array that is not an input; "
                f"the data have {len(new)}: {found}",
                f"loss {self.arguments.loss!r}",
                f"name the arrays: {', '.join(map(repr, input_types(self.module)))} for inputs, "
                "and one more for the labels",
            )
        return next(iter(new))

    def _output_types(self) -> dict[str, Attribute]:
        graph = model_of(self.module).graph
        return {
            name: value.type for name, value in zip(graph.output_names, graph.yielded, strict=True)
        }

    def _update_rule(self) -> tuple[OptimizerSpec, Rates | None]:
        schedule = _schedule_of(self.arguments.schedule)
        given = self.arguments.optimizer
        if given is not None:
            rule = _rule_of(given)
        elif self._text_task is not None and self._text_task.rule is not None:
            rule = self._text_task.rule
            schedule = schedule or self._text_task.schedule
        else:
            raise ModelError(
                "no optimizer is given",
                self.where,
                f"{setting('optimizer', 'Adam(0.001)')}, or 'SGD(0.1, momentum=0.9)'; "
                f"{OPTIMIZER_NAMES.listed}",
            )
        if schedule is None:
            return rule, None
        if isinstance(schedule, _Absolute):
            rate = replace(rule.learning_rate, value=schedule.base)
            rule = replace(rule, learning_rate=rate)
        return with_rate(rule, 1.0), schedule


def _values(module: ModuleOp) -> set[str]:
    """The names of all values of a model's graph."""
    graph = model_of(module).graph
    return {*graph.input_names, *(name for op in graph.nodes for name in op.output_names)}


def _rule_of(given: Optimizer) -> OptimizerSpec:
    if isinstance(given, OptimizerSpec):
        return given
    if isinstance(given, str):
        return optimizer_of(parse_optimizer(given))
    made = given.spec() if hasattr(given, "spec") else None
    if not isinstance(made, OptimizerSpec):
        raise ModelError(
            f"an optimizer is a text or an object of PopGraph, not {type(given).__name__}",
            "optimizer",
            f"'Adam(0.001)'; {OPTIMIZER_NAMES.listed}",
        )
    return made


def _schedule_of(given: str | Schedule | Callable[[int], float] | None) -> Rates | None:
    if isinstance(given, str):
        return parse_schedule(given)
    if given is None or isinstance(given, Schedule):
        return given
    if not callable(given):
        raise ModelError(f"{given!r} is not a schedule", "schedule", "'cosine(steps=1000)'")
    if isinstance(given, LearningRateSchedule):
        return _Absolute(given)
    return _ComputedSchedule(given)


@dataclass(frozen=True)
class _ComputedSchedule:
    """A schedule computed by a user's function."""

    function: Callable[[int], float]

    def factor(self, at: int) -> float:
        return float(self.function(at))


@dataclass(frozen=True)
class _Absolute:
    """A schedule of learning rates, as factors of its first rate."""

    schedule: LearningRateSchedule

    @property
    def base(self) -> float:
        """The rate of the first step; 1 if that is 0, as at the start of a warmup."""
        return float(self.schedule(0)) or 1.0

    def factor(self, at: int) -> float:
        return float(self.schedule(at)) / self.base


def _with_element_type(type_: Attribute, like: Attribute) -> Attribute:
    """The type with the element type of another one."""
    return tensor_type(like.element_type, dims(type_))  # type: ignore[attr-defined]


def new_inputs(module: ModuleOp, samples: Mapping[str, Array]) -> dict[str, Attribute]:
    """The types of arrays that are not inputs of the model, with an open batch dimension."""
    known = input_types(module)
    firsts = [sizes[0] for type_ in known.values() if (sizes := dims(type_))]
    batch = firsts[0] if firsts else None
    return {
        name: tensor_type(dtypes.from_numpy(array.dtype), [batch, *np.shape(array)[1:]])
        for name, array in samples.items()
        if name not in known
    }


def check_values(task: Task, values: Mapping[str, Array], samples: Mapping[str, Array]) -> None:
    """ModelError unless every structural input has one fixed value for all steps."""
    interface = interface_of(task.module, WeightStore(task.weights))
    structural = () if interface is None else interface.structural
    types = input_types(task.module)
    for name in (*(one for one in values if one in samples), *structural):
        if name in samples:
            raise ModelError(
                f"input {name!r} has samples and "
                + ("a value" if name in values else "decides the structure of the model"),
                hint=f"give one value for all steps, --value {name}=..., and no data",
            )
        if name not in values:
            example = "2,3" if dims(types[name]) != () else "2"
            raise ModelError(
                f"input {name!r} decides the structure of the model, and its value is not known",
                hint=f"--value {name}={example} (in Python, values={{{name!r}: ...}})",
            )
