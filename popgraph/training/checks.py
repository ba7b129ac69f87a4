"""Checks one training step, layer by layer: finite gradients, and weights that learn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import isfinite

import numpy as np

from popgraph.backends.base import Executable
from popgraph.dialects.onnx import OnnxOp, model_of, value_name
from popgraph.passes.optimizer_spec import loss_scale_variable
from popgraph.passes.options import GRADIENT
from popgraph.runner import Runner
from popgraph.support.arrays import Array
from popgraph.support.memo import cached_property
from popgraph.support.tables import table
from popgraph.training.diagnosis import describe_first, non_finite
from popgraph.training.programs import BuildSettings
from popgraph.training.roles import name_of_b
from popgraph.training.samples import Batch
from popgraph.training.sized_outputs import sized_by_data
from popgraph.training.task import Task

NEARLY_ONE = 1e-2
"""Tolerance of sums of probabilities; in f16 and int8 models they differ from 1 by as much."""


@dataclass(frozen=True)
class Layer:
    """Magnitudes of a weight and of its gradient."""

    name: str
    shape: tuple[int, ...]
    weight: float
    """Root mean square of the weight."""
    gradient: float
    """Root mean square of the gradient."""

    @property
    def remark(self) -> str:
        if not isfinite(self.gradient):
            return "not finite"
        return "" if self.gradient else "all zero"


@dataclass(frozen=True)
class Check:
    """The result of a check on one batch."""

    loss: float
    layers: tuple[Layer, ...]
    problems: tuple[str, ...]
    """Problems, as sentences; empty if training can continue."""

    def __str__(self) -> str:
        heading = ("weight", "shape", "size", "gradient", "ratio", "")
        rows = [
            (
                one.name,
                "x".join(map(str, one.shape)) or "scalar",
                f"{one.weight:.2e}",
                f"{one.gradient:.2e}",
                f"{one.gradient / one.weight:.1e}" if one.weight else "",
                one.remark,
            )
            for one in self.layers
        ]
        lines = [f"loss {self.loss:.5f}", *(f"problem: {one}" for one in self.problems)]
        return "\n".join([table([heading, *rows]), "", *lines])


@dataclass
class Checker:
    """Runs single training steps that also return gradients."""

    task: Task
    build: BuildSettings

    @cached_property
    def _likelihoods(self) -> dict[str, bool]:
        return dict(likelihoods_of(self.task))

    @cached_property
    def _runner(self) -> Runner:
        """Builds programs that also output gradients, one per batch shape."""
        request = self.build.request(self.task)
        trained = tuple(self.task.selection.trained)
        training = replace(self.task.training, gradients=trained)
        seen = tuple(self._likelihoods)
        options = replace(request.options, training=training, extra_outputs=seen)
        return replace(request, options=options).runner()

    def check(self, variables: Mapping[str, Array], inputs: Batch) -> Check:
        """Runs one step on copies of these variables and reports loss, gradients and problems."""
        program = self._runner.program(inputs)
        for name in program.variables:
            program.write(name, variables[name])
        outputs = program.run({name: inputs[name] for name in program.inputs})
        scale, boxes = self._loss_scale(program), self.task.selection.boxes
        trained = {
            name: one[boxes[name].places] if name in boxes else one
            for name, one in variables.items()
        }
        layers = tuple(
            Layer(name, gradient.shape, _rms(trained[name]), _rms(gradient) / scale)
            for name in self.task.selection.trained
            if name in trained and (gradient := outputs.get(GRADIENT + name)) is not None
        )
        loss = float(outputs[self.task.loss].astype(np.float64).mean())
        problems = [f"input {describe_first(name, inputs[name])}" for name in non_finite(inputs)]
        problems += [
            f"weight {describe_first(name, variables[name])}" for name in non_finite(variables)
        ]
        for name, is_log in self._likelihoods.items():
            problems += likelihood_problems(name, outputs[name], is_log)
        if not isfinite(loss):
            problems.append(f"the loss is {loss}")
        return Check(loss, layers, (*problems, *_gradient_problems(layers)))

    def _loss_scale(self, program: Executable) -> float:
        """The factor by which the program's gradients are scaled."""
        rule = self.task.training.optimizer
        dtype, _ = program.outputs[self.task.loss]
        name = loss_scale_variable(dtype)
        scaled = name in program.variables
        return float(program.read(name)) if scaled else rule.loss_scaling.value


def _gradient_problems(layers: tuple[Layer, ...]) -> Iterator[str]:
    new = {one.name for one in layers if not one.weight}  # B of adapters, without which A is idle
    zero = [one.name for one in layers if not one.gradient and name_of_b(one.name) not in new]
    if zero and len(zero) == len(layers):
        yield "the gradients of all weights are zero: nothing is learned"
    elif zero:
        named = ", ".join(map(repr, zero[:3])) + (", ..." if len(zero) > 3 else "")
        yield f"{len(zero)} of {len(layers)} weights have a zero gradient: {named}"
    for one in layers:
        if not isfinite(one.gradient):
            yield f"the gradient of {one.name!r} is not finite"


def likelihoods_of(task: Task) -> Iterator[tuple[str, bool]]:
    """Inputs of losses that must be probabilities: (name, whether they are log probabilities)."""
    graph = model_of(task.module).graph
    sized = sized_by_data(graph)
    for node in graph.nodes:
        if node.operands and node.operands[0] in sized:
            continue  # A step gives no tensor whose size data decide.
        if node.op_type == "NegativeLogLikelihoodLoss":
            yield _first_input(node), True
        elif node.op_type == "Nll":
            logarithm = node.attribute_values(task.weights).get("inputIsLogProbability", 0)
            yield _first_input(node), bool(logarithm)


def _first_input(node: OnnxOp) -> str:
    value = node.input_values()[0]
    assert value is not None, "a loss has an input"
    return value_name(value)


def likelihood_problems(name: str, found: Array, is_log: bool) -> list[str]:
    """Problems of class likelihoods. The class axis is the last one or axis 1."""
    wide = found.astype(np.float64)
    likely = np.exp(wide) if is_log else wide
    axes = {found.ndim - 1, min(1, found.ndim - 1)}
    sums = [likely.sum(axis) for axis in sorted(axes)]
    if likely.size and likely.min() >= 0 and min(_deviation(one) for one in sums) <= NEARLY_ONE:
        return []
    what = "logarithms of probabilities" if is_log else "probabilities"
    return [
        f"{name!r} holds no {what}: along the classes, they sum to {sums[-1].min():.3g} to "
        f"{sums[-1].max():.3g}; nll expects the output of Softmax, cross_entropy its input"
    ]


def _deviation(sums: Array) -> float:
    return float(np.abs(sums - 1).max())


def _rms(array: Array) -> float:
    return float(np.sqrt(np.mean(np.square(array.astype(np.float64))))) if array.size else 0.0
