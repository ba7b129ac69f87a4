"""PopART's `PyStepIO`: reads the inputs of a step, and writes its anchors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from popgraph.builder.opset.exceptions import popart_exception, popart_runtime_error
from popgraph.support.arrays import Array
from popgraph.support.dtypes import DType, from_numpy
from popgraph.support.shapes import Shape, prod


@dataclass(frozen=True)
class Stream:
    """One batch's worth of a tensor."""

    id: str
    dtype: DType
    shape: Shape

    @property
    def elements(self) -> int:
        return prod(self.shape)


class StepIO(ABC):
    """The source of inputs and the sink of anchors, one batch at a time."""

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

    def check(self, inputs: list[Stream], outputs: dict[Stream, str], batches: int) -> None:
        """Refuses buffers of wrong size; `outputs` maps each anchor to its return type's text."""
        return

    def offered_inputs(self) -> list[str]:
        """The names of the inputs that the user provided, as far as they are known before."""
        return []


class _Ring:
    """An array read or written in order, from the beginning again after its end."""

    def __init__(self, array: Array, id: str) -> None:
        if not array.flags.c_contiguous:
            raise popart_exception(
                f"the array for tensor {id} cannot be used: it is not c-contiguous",
                hint="pass np.ascontiguousarray(array)",
            )
        self.array = array
        self._flat = array.reshape(-1)
        self._offset = 0

    def advance(self, count: int, id: str) -> Array:
        if self._offset + count > self._flat.size:
            raise popart_runtime_error(
                f"The buffer for tensor {id} has {self._flat.size} elements; {count} are needed "
                f"from element {self._offset} on"
            )
        window = self._flat[self._offset : self._offset + count]
        self._offset = (self._offset + count) % max(self._flat.size, 1)
        return window


class PyStepIO(StepIO):
    """
    Inputs and anchors in NumPy arrays: `PyStepIO({"x": x}, session.initAnchorArrays())`.

    Each array holds its batches one after the other. Reading goes on where the last step stopped
    and begins anew at the end, so an array of one step's data serves every step.
    """

    def __init__(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        self._inputs = {id: _Ring(_as_array(array), id) for id, array in inputs.items()}
        self._outputs = {id: _Ring(array, id) for id, array in outputs.items()}

    def offered_inputs(self) -> list[str]:
        return list(self._inputs)

    def read(self, stream: Stream) -> Array:
        ring = self._inputs.get(stream.id)
        if ring is None:
            raise popart_runtime_error(
                f"No tensor {stream.id} provided in PyStepIO's inputs",
                hint=f"given are {', '.join(self._inputs) or 'none'}",
            )
        window = _converted(ring.array, stream)
        batch = ring.advance(stream.elements, stream.id)
        return window(batch).reshape(stream.shape)

    def write(self, stream: Stream, value: Array) -> None:
        ring = self._outputs.get(stream.id)
        if ring is None:
            raise popart_runtime_error(
                f"No tensor {stream.id} provided in PyStepIO's outputs",
                hint="session.initAnchorArrays() makes an array for every anchor",
            )
        if ring.array.dtype != value.dtype:
            raise _type_discrepancy(stream.id, ring.array.dtype, from_numpy(value.dtype))
        ring.advance(value.size, stream.id)[...] = value.reshape(-1)

    def check(self, inputs: list[Stream], outputs: dict[Stream, str], batches: int) -> None:
        for stream in inputs:
            if stream.id in self._inputs:
                expected = stream.elements * batches
                self._check_size(stream.id, "input", self._inputs[stream.id], expected, batches)
        for stream, returned in outputs.items():
            if stream.id in self._outputs:
                found = self._outputs[stream.id]
                self._check_size(stream.id, "output", found, stream.elements, batches, returned)

    def _check_size(
        self, id: str, kind: str, ring: _Ring, expected: int, batches: int, returned: str = ""
    ) -> None:
        if ring.array.size == expected:
            return
        lines = [
            f"Unexpected number of {kind} elements for Tensor {id}. "
            f"Expected {expected}, but received {ring.array.size}.",
            "To disable this check at your own risk, use IStepIO::enableRuntimeAsserts.",
            "This with, ",
            "   replication  factor = 1",
            "   accumulation factor = 1",
            f"   batches per step    = {batches}",
        ]
        if returned:
            lines.append(f"The anchor return type is  {returned}")
        raise popart_runtime_error("\n".join(lines))


def _as_array(value: object) -> Array:
    return value if isinstance(value, np.ndarray) else np.asarray(value)


def _type_discrepancy(id: str, given: object, expected: DType) -> popart_runtime_error:
    try:
        name = from_numpy(given).popart
    except KeyError:
        name = str(given)
    return popart_runtime_error(
        f"Type discrepancy for tensor {id}. User provided : {name} and expected : "
        f"{expected.popart}. Consider a custom copy here (as memcpy cannot be used)"
    )


_NARROWED = {("int64", "int32"), ("uint64", "uint32"), ("int32", "int64"), ("uint32", "uint64")}
"""PopART's devices have no 64-bit integers, so its programs mix the widths of whole numbers."""


def _converted(array: Array, stream: Stream) -> Callable[[Array], Array]:
    """How elements of `array` become elements of the stream."""
    given, expected = array.dtype, stream.dtype.numpy
    if given == expected:
        return lambda batch: batch
    if (given.name, expected.name) in _NARROWED:
        return lambda batch: _whole(batch, expected, stream.id)
    if given == np.uint8 and stream.dtype.popart.startswith("FLOAT8"):
        return lambda batch: batch.view(expected)
    raise _type_discrepancy(stream.id, given, stream.dtype)


def _whole(batch: Array, dtype: np.dtype[np.generic], id: str) -> Array:
    result = batch.astype(dtype)
    if not np.array_equal(result, batch):
        raise popart_runtime_error(
            f"Tensor {id} holds numbers that do not fit {dtype.name}",
            hint=f"the model declares it as {dtype.name}",
        )
    return result


class PyStepIOCallback(StepIO):
    """Inputs and anchors by callback, one array per batch."""

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
        array = self._input(stream.id, False)
        if array is None:
            raise popart_runtime_error(f"The input callback has no data for tensor {stream.id}")
        ring = _Ring(_as_array(array), stream.id)
        if ring.array.size != stream.elements:
            raise popart_runtime_error(
                f"The input callback gave {ring.array.size} elements for tensor {stream.id}; "
                f"one batch has {stream.elements}"
            )
        batch = _converted(ring.array, stream)(ring.advance(stream.elements, stream.id))
        value = batch.reshape(stream.shape).copy()
        self._input_done(stream.id)
        return value

    def write(self, stream: Stream, value: Array) -> None:
        ring = _Ring(self._output(stream.id), stream.id)
        if ring.array.dtype != value.dtype:
            raise _type_discrepancy(stream.id, ring.array.dtype, from_numpy(value.dtype))
        ring.advance(value.size, stream.id)[...] = value.reshape(-1)
        self._output_done(stream.id)


class PyWeightsIO:
    """Arrays for `readWeights` to fill or `writeWeights` to take, by the names of the weights."""

    def __init__(self, weights: Mapping[str, Array]) -> None:
        self.weights = {id: _Ring(array, id).array for id, array in weights.items()}
