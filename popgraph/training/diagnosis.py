"""Finds the first value that is not finite when the loss becomes NaN or infinite."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, islice

import numpy as np
from xdsl.dialects.builtin import AnyFloat, TensorType

from popgraph.dialects.onnx import model_of, value_name
from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.training.programs import BuildSettings, TrainingSteps
from popgraph.training.samples import Batch, Order, Samples, Source
from popgraph.training.sized_outputs import sized_by_data
from popgraph.training.task import Task

EVERY = 100
"""Steps between two snapshots of the variables; copying takes at most 1 % of the time."""
MOST_BYTES = 1 << 28
"""Larger variables are not copied."""


def non_finite(arrays: Mapping[str, Array]) -> Iterator[str]:
    """Names of the arrays that hold infinities or NaN."""
    for name, array in arrays.items():
        if dtypes.from_numpy(array.dtype).is_float and not np.isfinite(array).all():
            yield name


def describe_first(name: str, array: Array) -> str:
    """Describes the first element that is not finite: `'x' holds nan at [3, 0]`."""
    at = tuple(int(index) for index in np.argwhere(~np.isfinite(array))[0])
    return f"{name!r} holds {array[at]} at {list(at)}"


def describe_bad_data(source: Source, order: Order, epoch: int, batch: int, given: Batch) -> str:
    """
    Describes the first non-finite input of the batch before `batch`, or returns "".

    The sample is given by its index in the data, or in the batch if the data are a stream.
    """
    for name in non_finite(given):
        row, *rest = (int(index) for index in np.argwhere(~np.isfinite(given[name]))[0])
        number, home = given[name][(row, *rest)], "of the batch"
        if isinstance(source, Samples):
            row, home = source.number(order, epoch, (batch - 1) * order.size + row), "of the data"
        return f"input {name!r} holds {number} in sample {row} {home}"
    return ""


@dataclass
class StepSnapshot:
    """
    A snapshot of training from some steps ago.

    The step that failed can be rerun from here, because the order of samples is known.
    """

    task: Task
    build: BuildSettings
    _step: int = 0
    _batch: int = 0
    _variables: dict[str, Array] = field(default_factory=dict)

    def take(self, steps: TrainingSteps, batch: int) -> None:
        """Takes a snapshot before a step if one is due; the step runs on batch number `batch`."""
        at = steps.driver.steps
        if batch and at % EVERY:
            return
        self._variables = steps.read() if self.is_affordable(steps) else {}
        self._step, self._batch = at, batch

    def is_affordable(self, steps: TrainingSteps) -> bool:
        """Whether the variables are small enough to keep a second copy."""
        signatures = steps.executable.variables.values()
        size = sum(dtype.numpy.itemsize * int(np.prod(shape)) for dtype, shape in signatures)
        return size <= MOST_BYTES

    def first_not_finite(
        self, steps: TrainingSteps, source: Source, order: Order, epoch: int, batch: int
    ) -> str:
        """The first non-finite value in the step of the batch before `batch`; "" if unknown."""
        if not self._variables or not isinstance(source, Samples):
            return ""
        steps.write(self._variables)
        steps.driver.steps = self._step
        *before, last = islice(source.epoch(order, epoch, self._batch), batch - self._batch)
        for one in before:
            steps.run(one)
        variables = steps.read()
        found = (self._non_finite_values(part.inputs, variables) for part in steps.split(last))
        return next(chain.from_iterable(found), "")

    def _non_finite_values(
        self, inputs: Mapping[str, Array], variables: Mapping[str, Array]
    ) -> Iterator[str]:
        """Names of all non-finite values of a step, in order of computation."""
        yield from non_finite(inputs)
        yield from non_finite(variables)
        graph = model_of(self.task.module).graph
        sized = sized_by_data(graph)
        names = [
            name
            for node in graph.nodes
            for value in node.results
            if value not in sized
            and isinstance(value.type, TensorType)
            and isinstance(value.type.element_type, AnyFloat)
            and (name := value_name(value))
        ]
        request = replace(self.build, backend="reference", threads=1).request(self.task)
        instrumented = replace(
            request, options=replace(request.options, extra_outputs=tuple(names))
        )
        program = instrumented.runner().program(inputs)
        for name in program.variables:
            program.write(name, variables[name])
        outputs = program.run({name: inputs[name] for name in program.inputs})
        yield from non_finite({name: outputs[name] for name in names if name in outputs})
