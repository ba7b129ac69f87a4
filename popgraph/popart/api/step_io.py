"""PopART's `PyStepIO`: reads the inputs of a step, and writes its anchors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from popgraph.builder.opset.arguments import typed
from popgraph.builder.opset.enums import AnchorReturnTypeId
from popgraph.engine.plan import StepPlan
from popgraph.engine.streams import Stream
from popgraph.popart.api.buffers import Ring, one_batch, sink, source
from popgraph.popart.api.dataflow import AnchorReturnType
from popgraph.popart.exceptions import popart_exception, popart_runtime_error
from popgraph.support.arrays import Array


@dataclass(frozen=True)
class Returned:
    """How many values of an anchor a step returns."""

    count: int
    kind: AnchorReturnType

    @property
    def told(self) -> str:
        text = f"The anchor return type is  {self.kind.id().name}"
        if self.kind.id() is AnchorReturnTypeId.EveryN:
            text += f"\nThe return period is {self.kind.rp()}"
        return text


class StepIO(ABC):
    """The source of inputs and the sink of anchors, one batch at a time."""

    @typed
    def enableRuntimeAsserts(self, enabled: bool) -> None:
        """Whether the sizes of the buffers are checked before the first step."""
        self._asserts = enabled

    @property
    def asserts(self) -> bool:
        return getattr(self, "_asserts", True)

    @abstractmethod
    def read(self, stream: Stream) -> Array:
        """The next batch of an input."""

    @abstractmethod
    def write(self, stream: Stream, value: Array) -> None:
        """Takes the next value of an anchor."""

    def check(
        self, inputs: Mapping[Stream, int], outputs: Mapping[Stream, Returned], step: StepPlan
    ) -> None:
        """
        Refuses buffers of wrong size.

        `inputs` says how often a step reads each, `outputs` what it returns of each anchor.
        """
        return

    def offered_outputs(self) -> list[str]:
        """The names of the anchors that the user has room for, likewise."""
        return []

    def offered_inputs(self) -> list[str]:
        """The names of the inputs that the user provided, as far as they are known before."""
        return []

    def holds(self, inputs: Iterable[Stream], outputs: Iterable[Stream]) -> bool:
        """Whether all of this stands in memory in a row, and no input in that of an anchor."""
        return False


IStepIO = StepIO
"""PopART's name."""


class PyStepIO(StepIO):
    """
    Inputs and anchors in NumPy arrays: `PyStepIO({"x": x}, session.initAnchorArrays())`.

    Each array holds its batches one after the other. Reading goes on where the last step stopped
    and begins anew at the end, so an array of one step's data serves every step. An input may be
    a list as well, or an iterator that gives a batch at a time; an anchor may be a list, whose
    numbers are replaced, or an array of a wider type (float64 for the losses of a float32 model).
    """

    @typed
    def __init__(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        self._inputs = {id: source(value, id) for id, value in inputs.items()}
        self._outputs = {id: sink(value, id) for id, value in outputs.items()}

    def offered_inputs(self) -> list[str]:
        return list(self._inputs)

    def offered_outputs(self) -> list[str]:
        return list(self._outputs)

    def holds(self, inputs: Iterable[Stream], outputs: Iterable[Stream]) -> bool:
        read = [(self._inputs.get(one.id), one.elements) for one in inputs]
        written = [(self._outputs.get(one.id), one.elements) for one in outputs]
        if not all(isinstance(one, Ring) and one.has(count) for one, count in read + written):
            return False
        return not any(
            np.may_share_memory(one.array, other.array)
            for one, _ in read
            for other, _ in written
            if isinstance(one, Ring) and isinstance(other, Ring)
        )

    def read(self, stream: Stream) -> Array:
        ring = self._inputs.get(stream.id)
        if ring is None:
            raise popart_runtime_error(
                f"No tensor {stream.id} provided in PyStepIO's inputs",
                hint=f"given are {', '.join(self._inputs) or 'none'}",
            )
        return ring.take(stream)

    def write(self, stream: Stream, value: Array) -> None:
        ring = self._outputs.get(stream.id)
        if ring is None:
            raise popart_runtime_error(
                f"No tensor {stream.id} provided in PyStepIO's outputs",
                hint="session.initAnchorArrays() makes an array for every anchor",
            )
        ring.put(value, stream.id)

    def check(
        self, inputs: Mapping[Stream, int], outputs: Mapping[Stream, Returned], step: StepPlan
    ) -> None:
        for stream, reads in inputs.items():
            if stream.id in self._inputs:
                given, expected = self._inputs[stream.id].size, stream.elements * reads
                if given not in (expected, None):
                    raise _wrong_size("input", stream, expected, given, step)
        for stream, returned in outputs.items():
            if stream.id in self._outputs:
                given, expected = self._outputs[stream.id].size, stream.elements * returned.count
                if given != expected:
                    raise _wrong_size("output", stream, expected, given, step, returned.told)


def _wrong_size(
    kind: str, stream: Stream, expected: int, given: object, step: StepPlan, returned: str = ""
) -> popart_runtime_error:
    lines = [
        f"Unexpected number of {kind} elements for Tensor {stream.id}. "
        f"Expected {expected}, but received {given}.",
        "To disable this check at your own risk, use IStepIO::enableRuntimeAsserts.",
        "This with, ",
        f"   replication  factor = {step.replicas}",
        f"   accumulation factor = {step.accumulate}",
        f"   batches per step    = {step.batches}",
        f"   Tensor nelms        = {stream.elements}",
    ]
    return popart_runtime_error("\n".join([*lines, returned] if returned else lines))


class PyStepIOCallback(StepIO):
    """
    Inputs and anchors by callback, one array per batch.

    An input is asked for ahead of time first, as an IPU fetches it: `input_callback(id, True)`. A
    callback that has nothing then (None) is asked again, `input_callback(id, False)`.
    """

    @typed
    def __init__(
        self,
        input_callback: Callable[[str, bool], Array | None],
        input_complete_callback: Callable[[str], None],
        output_callback: Callable[[str], Array],
        output_complete_callback: Callable[[str], None],
    ) -> None:
        self._input, self._input_done = input_callback, input_complete_callback
        self._output, self._output_done = output_callback, output_complete_callback

    def read(self, stream: Stream) -> Array:
        array = self._input(stream.id, True)
        if array is None:
            array = self._input(stream.id, False)
        if array is None:
            raise popart_runtime_error(f"The input callback has no data for tensor {stream.id}")
        value = one_batch(array, stream, "callback")
        self._input_done(stream.id)
        return value

    def write(self, stream: Stream, value: Array) -> None:
        array = _with_what_follows(self._output(stream.id), stream.elements)
        Ring(array, stream.id, kind="output").put(value, stream.id)
        self._output_done(stream.id)


def _with_what_follows(array: Array, count: int) -> Array:
    """
    The array, or so many elements from its first one on where the array that it is a part of has
    them: PopART looks only at where an array begins.
    """
    whole = array.base
    if not isinstance(whole, np.ndarray) or array.size >= count or whole.dtype != array.dtype:
        return array
    first = (array.ctypes.data - whole.ctypes.data) // whole.itemsize
    if not whole.flags.c_contiguous or first + count > whole.size:
        return array
    return whole.reshape(-1)[first : first + count]


class PyWeightsIO:
    """Arrays for `readWeights` to fill or `writeWeights` to take, by the names of the weights."""

    @typed
    def __init__(self, weights: Mapping[str, Array]) -> None:
        for id, array in weights.items():
            if not array.flags.c_contiguous:
                raise popart_exception(
                    "PyWeightsIO is unable to use the provided numpy output array for tensor "
                    f"'{id}' as it is not c-contiguous. Please use a function like "
                    "`numpy.ascontiguousarray()` to make contiguous before passing to PyWeightsIO"
                )
        self.weights = dict(weights)


IWeightsIO = PyWeightsIO
"""PopART's name for what all of them are; there is one kind here."""
