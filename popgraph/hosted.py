"""Models of which Python computes some nodes: compiled segments and host steps, run in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, SSAValue

from popgraph.backends.base import Executable, as_array
from popgraph.backends.reference.onnx_level import Interpreter
from popgraph.dialects.onnx import OnnxOp, model_of
from popgraph.dialects.onnx.types import tensor_type
from popgraph.dialects.program import WeightStore
from popgraph.passes.onnx.partition import HostStep, Segment, alone, partition
from popgraph.runner import Runner
from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.support.errors import RunError

Start = Callable[[ModuleOp, int], Runner]
"""Makes a segment, which has a number, ready to run."""

Values = dict[SSAValue, Any]
"""Arrays, lists for sequences, None for an absent optional."""


class HostedModel:
    """The steps of a model, planned once; each segment is compiled when it first runs."""

    def __init__(self, module: ModuleOp, store: WeightStore, start: Start) -> None:
        self.steps = partition(module, store)
        self._model = model_of(module)
        self._graph = self._model.graph
        self._interpreter = Interpreter(self._model, store, self._drawn)
        self._start = start
        self._runners: dict[int, Runner] = {}
        self._drawing: dict[tuple[OnnxOp, tuple[Attribute, ...]], Segment] = {}
        """Nodes inside host steps that draw, each a segment of its own for these inputs."""
        self._literals: Values = {}
        self._interpreter.literals(self._graph, self._literals)

    def program(self, inputs: Mapping[str, Any]) -> Executable:
        """The steps as something to run; every call may bring other shapes."""
        return HostedExecutable(self, inputs)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs for these inputs: arrays, lists for sequences, None for what is absent."""
        values = self._literals | self._interpreter.given(inputs)
        for number, step in enumerate(self.steps):
            if isinstance(step, HostStep):
                self._interpreter.node(step.op, values)
            else:
                values |= self._segment(number, step, values)
        yielded = zip(self._graph.output_names, self._graph.yielded, strict=True)
        return {name: as_output(values[value]) for name, value in yielded}

    def _segment(self, number: int, segment: Segment, values: Values) -> Values:
        if number not in self._runners:
            self._runners[number] = self._start(segment.module, number)
        given = {name: as_array(name, values[value]) for name, value in segment.inputs.items()}
        made = self._runners[number](given)
        return {value: made[name] for name, value in segment.outputs.items()}

    def _drawn(self, op: OnnxOp, values: Values) -> list[Any]:
        """
        What a node inside a host step draws.

        It is compiled like others that draw, with streams of its own: every turn is a step.
        """
        types = _types(op, values)
        key = op, tuple(types.values())
        if key not in self._drawing:
            self._drawing[key] = alone(self._model, op, types)
        number = len(self.steps) + list(self._drawing).index(key)
        made = self._segment(number, self._drawing[key], values)
        return [None if value is None else made.get(value) for value in op.output_values()]


def _types(op: OnnxOp, values: Values) -> dict[SSAValue, Attribute]:
    """What is known of a node's inputs: their elements and ranks, but no sizes."""
    arrays = {value: as_array("", values[value]) for value in op.operands}
    return {
        value: tensor_type(dtypes.from_numpy(array.dtype), [None] * array.ndim)
        for value, array in arrays.items()
    }


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
