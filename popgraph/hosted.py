"""Models of which Python computes some nodes: compiled segments and host steps, run in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from popgraph.backends.base import Executable, as_array
from popgraph.backends.reference.onnx_level import Interpreter
from popgraph.dialects.onnx import model_of
from popgraph.dialects.onnx.containers import value_name
from popgraph.dialects.onnx.types import describe
from popgraph.dialects.program import WeightStore
from popgraph.passes.onnx.partition import (
    HostStep,
    Segment,
    Step,
    partition,
    read_by,
    why_hosted,
)
from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.support.errors import RunError

Run = Callable[[Mapping[str, Array]], Mapping[str, Array]]
"""Computes a segment."""

Start = Callable[[ModuleOp, int], Run]
"""Makes a segment, which has a number, ready to run."""

Values = dict[SSAValue, Any]
"""Arrays, lists for sequences, None for an absent optional."""


class HostedModel:
    """The steps of a model, planned once; each segment is compiled when it first runs."""

    def __init__(self, module: ModuleOp, store: WeightStore, start: Start) -> None:
        self.steps = partition(module, store)
        self._graph = model_of(module).graph
        self._interpreter = Interpreter(model_of(module), store)
        self._start = start
        self._runners: dict[int, Run] = {}
        self._literals: Values = {}
        self._interpreter.literals(self._graph, self._literals)

    def program(self, inputs: Mapping[str, Any]) -> Executable:
        """The steps as something to run; every call may bring other shapes."""
        return HostedExecutable(self, inputs)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs for these inputs: arrays, lists for sequences, None for what is absent."""
        values = self.begin(inputs)
        for number in range(len(self.steps)):
            self.step(number, values)
        yielded = zip(self._graph.output_names, self._graph.yielded, strict=True)
        return {name: as_output(values[value]) for name, value in yielded}

    def begin(self, inputs: Mapping[str, Any]) -> Values:
        """The values that are known before the first step."""
        return self._literals | self._interpreter.given(inputs)

    def step(self, number: int, values: Values) -> None:
        """Adds the results of a step to the values before it."""
        step = self.steps[number]
        if isinstance(step, HostStep):
            self._interpreter.node(step.op, values)
        else:
            values |= self._segment(number, step, values)

    def _segment(self, number: int, segment: Segment, values: Values) -> Values:
        if number not in self._runners:
            self._runners[number] = self._start(segment.module, number)
        given = {name: as_array(name, values[value]) for name, value in segment.inputs.items()}
        made = self._runners[number](given)
        return {value: made[name] for name, value in segment.outputs.items()}


def step_line(number: int, step: Step) -> str:
    """What a step is, and what it takes and gives, in one line."""
    if isinstance(step, HostStep):
        does = f"in Python: {step.op.op_type} ({why_hosted(step.op)})"
        given: list[SSAValue] = list(read_by(step.op))
        made: list[SSAValue] = list(step.op.results)
    else:
        names = list(dict.fromkeys(op.op_type for op in step.nodes()))
        does = ", ".join([*names[:OPERATORS], *(["..."] if names[OPERATORS:] else [])])
        does = f"compiled: {does}"
        given, made = list(step.inputs.values()), list(step.outputs.values())
    return f"step {number + 1}, {does}; {_described(given)} -> {_described(made)}"


OPERATORS = 6
"""So many operators of a segment are named in a line."""


def _described(values: Iterable[SSAValue]) -> str:
    texts = [f"{value_name(value)}: {describe(value.type)}" for value in dict.fromkeys(values)]
    return ", ".join(texts) or "nothing"


def as_output(value: Any) -> Any:
    """Strings leave as NumPy's, whatever the host held them in."""
    if isinstance(value, list):
        return [as_output(one) for one in value]
    if isinstance(value, np.ndarray) and value.dtype == object and _are_strings(value):
        return value.astype(np.str_)
    return value


def _are_strings(array: Array) -> bool:
    return all(isinstance(one, str) for one in array.reshape(-1))


class HostedExecutable(Executable):
    """A model with host steps, for the inputs of one call."""

    def __init__(self, model: HostedModel, inputs: Mapping[str, Any]) -> None:
        self._model = model
        arrays = {name: value for name, value in inputs.items() if is_numbers(value)}
        self.inputs = {
            name: (dtypes.from_numpy(array.dtype), array.shape) for name, array in arrays.items()
        }
        self.outputs = {}
        self.variables = {}

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        return self._model.run(inputs)

    def read(self, variable: str) -> Array:
        raise _no_variable(variable)

    def write(self, variable: str, value: Array) -> None:
        raise _no_variable(variable)


def is_numbers(value: object) -> bool:
    """Whether a value is an array of numbers."""
    return isinstance(value, np.ndarray) and value.dtype.kind not in "OUS"


def _no_variable(name: str) -> RunError:
    return RunError(
        f"the model has no variable {name!r}",
        hint="a model of which Python computes a part has none",
    )
