"""
PopART's `PyStepIO`: reads the inputs of a step from arrays, lists and iterators of users, and
writes its anchors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from popgraph.builder.opset.arguments import typed
from popgraph.builder.opset.enums import AnchorReturnTypeId
from popgraph.engine.plan import StepPlan
from popgraph.engine.streams import Stream
from popgraph.popart.api.dataflow import AnchorReturnType
from popgraph.popart.exceptions import popart_exception, popart_runtime_error
from popgraph.support.arrays import Array
from popgraph.support.dtypes import DType, from_numpy
from popgraph.support.logs import log_of


class _Cursor:
    """A position in a ring buffer."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._offset = 0

    def has(self, count: int) -> bool:
        """Whether `count` elements are left before the end."""
        return self._offset + count <= self.size

    def advance(self, count: int, id: str) -> slice:
        start = self._offset
        end = start + count
        if end > self.size:
            raise popart_runtime_error(
                f"The buffer for tensor {id} has {self.size} elements; {count} are needed "
                f"from element {start} on"
            )
        self._offset = 0 if end == self.size else end
        return slice(start, end)


class RingBuffer:
    """An array that is read or written in order, and again from the start after its end."""

    def __init__(self, array: Array, id: str, *, typed: bool = True, kind: str = "input") -> None:
        """`typed` arrays have an element type chosen by the user; lists have none."""
        if not array.flags.c_contiguous:
            raise popart_exception(
                f"PyStepIO is unable to use the numpy {kind} array for tensor '{id}' as it is not "
                "c-contiguous (a data conversion here could have a significant impact on "
                "performance and hence is not allowed)",
                hint="pass np.ascontiguousarray(array)",
            )
        self.array, self._typed = array, typed
        self._flat = array.reshape(-1)
        self._cursor = _Cursor(array.size)

    @property
    def size(self) -> int:
        return self.array.size

    def has(self, count: int) -> bool:
        """Whether `count` elements are left before the end."""
        return self._cursor.has(count)

    def take(self, stream: Stream) -> Array:
        """The next batch, in the element type of the stream."""
        given, convert = self._flat.dtype, None
        if given != stream.dtype.numpy:
            convert = _conversion(given, stream, typed=self._typed)
        batch = self._flat[self._cursor.advance(stream.elements, stream.id)]
        return (batch if convert is None else convert(batch)).reshape(stream.shape)

    def put(self, value: Array, id: str) -> None:
        """Writes the next value; the buffer may have a wider type."""
        written = _as_buffer_type(value, self.array.dtype, id)
        self._flat[self._cursor.advance(value.size, id)] = written.reshape(-1)


class IteratorInput:
    """An input whose batches come from a Python iterator."""

    size = None
    """The number of batches is unknown."""

    def __init__(self, batches: Iterator[object]) -> None:
        self._batches = batches

    def take(self, stream: Stream) -> Array:
        try:
            given = next(self._batches)
        except StopIteration:
            raise popart_runtime_error(
                f"The iterator for tensor {stream.id} has no more batches",
                hint="it gives one array for each batch; give a new iterator to a new PyStepIO",
            ) from None
        return _one_batch(given, stream, "iterator")


class ListBuffer:
    """An anchor's buffer that is a Python list, or a list of lists, whose numbers are replaced."""

    def __init__(self, numbers: list[object]) -> None:
        self._cells = list(_cells(numbers))
        self._cursor = _Cursor(len(self._cells))

    @property
    def size(self) -> int:
        return len(self._cells)

    def put(self, value: Array, id: str) -> None:
        """Writes the next value as Python numbers."""
        cells = self._cells[self._cursor.advance(value.size, id)]
        for (row, column), number in zip(cells, value.reshape(-1).tolist(), strict=True):
            row[column] = number


def _cells(numbers: list[object]) -> Iterator[tuple[list[object], int]]:
    for at, one in enumerate(numbers):
        if isinstance(one, list):
            yield from _cells(one)
        else:
            yield numbers, at


def _source(value: object, id: str) -> RingBuffer | IteratorInput:
    """The source of an input."""
    if isinstance(value, Iterator):
        return IteratorInput(value)
    return RingBuffer(_as_array(value), id, typed=not _is_untyped(value))


def _sink(value: object, id: str) -> RingBuffer | ListBuffer:
    """The sink of an anchor: memory of the user, never a copy."""
    if isinstance(value, list):
        return ListBuffer(value)
    if isinstance(value, np.ndarray):
        return RingBuffer(value, id, kind="output")
    try:
        return RingBuffer(np.asarray(memoryview(value)), id, kind="output")  # type: ignore[arg-type]
    except TypeError:
        raise popart_exception(
            f"the buffer for tensor {id} is {type(value).__name__}, "
            "which nothing can be written to",
            hint="pass a NumPy array; session.initAnchorArrays() makes one for every anchor",
        ) from None


def _one_batch(given: object, stream: Stream, kind: str) -> Array:
    """The batch from an iterator or a callback, which must have the right size."""
    ring = RingBuffer(_as_array(given), stream.id, typed=not _is_untyped(given))
    if ring.size != stream.elements:
        raise popart_runtime_error(
            f"The input {kind} gave {ring.size} elements for tensor {stream.id}; "
            f"one batch has {stream.elements}"
        )
    return ring.take(stream).copy()


def _is_untyped(value: object) -> bool:
    """Whether a value is of Python numbers, which take the element type of the model."""
    return isinstance(value, list | tuple | int | float)


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
"""PopART's devices have no 64-bit integers, so its programs mix integer widths."""


def _conversion(
    given: np.dtype[np.generic], stream: Stream, *, typed: bool
) -> Callable[[Array], Array]:
    """The conversion of buffer elements to stream elements."""
    expected = stream.dtype.numpy
    if (given.name, expected.name) in _NARROWED:
        if (given.name, expected.name) == ("int64", "int32"):
            _warn_of_narrowing(stream.id)
        return lambda batch: _cast_exactly(batch, expected, stream.id)
    if given == np.uint8 and stream.dtype.popart.startswith("FLOAT8"):
        return lambda batch: batch.view(expected)
    if not typed and stream.dtype.is_float and given.kind in "iuf":
        return lambda batch: batch.astype(expected)
    if not typed and stream.dtype.is_integer and given.kind in "iu":
        return lambda batch: _cast_exactly(batch, expected, stream.id)
    raise _type_discrepancy(stream.id, given, stream.dtype)


def _warn_of_narrowing(id: str) -> None:
    """Warns for the first tensor of the process only, as PopART does."""
    if not _NARROWED_FIRST:
        _NARROWED_FIRST.append(id)
        log_of("devicex").warning(
            "Copying (host) tensor %s from INT64 to INT32. Will only warn once", id
        )


_NARROWED_FIRST: list[str] = []


def _as_buffer_type(value: Array, wanted: np.dtype[np.generic], id: str) -> Array:
    """An anchor's value in the type of its buffer, which must represent it exactly."""
    given = value.dtype
    if given == wanted:
        return value
    if (given.name, wanted.name) in _NARROWED:
        return _cast_exactly(value, wanted, id)
    if given.kind == wanted.kind and np.can_cast(given, wanted, "safe"):
        return value.astype(wanted)
    raise _type_discrepancy(id, wanted, from_numpy(given))


def _cast_exactly(batch: Array, dtype: np.dtype[np.generic], id: str) -> Array:
    result = batch.astype(dtype)
    if not np.array_equal(result, batch):
        raise popart_runtime_error(
            f"Tensor {id} holds numbers that do not fit {dtype.name}",
            hint=f"the model declares it as {dtype.name}",
        )
    return result


@dataclass(frozen=True)
class ReturnedCount:
    """The number of values of an anchor that a step returns."""

    count: int
    kind: AnchorReturnType

    @property
    def description(self) -> str:
        text = f"The anchor return type is  {self.kind.id().name}"
        if self.kind.id() is AnchorReturnTypeId.EveryN:
            text += f"\nThe return period is {self.kind.rp()}"
        return text


class StepIO(ABC):
    """The source of inputs and the sink of anchors, one batch at a time."""

    @typed
    def enableRuntimeAsserts(self, enabled: bool) -> None:
        """Sets whether buffer sizes are checked before the first step."""
        self._asserts = enabled

    @property
    def asserts(self) -> bool:
        return getattr(self, "_asserts", True)

    @abstractmethod
    def read(self, stream: Stream) -> Array:
        """The next batch of an input."""

    @abstractmethod
    def write(self, stream: Stream, value: Array) -> None:
        """Writes the next value of an anchor."""

    def check(
        self, inputs: Mapping[Stream, int], outputs: Mapping[Stream, ReturnedCount], step: StepPlan
    ) -> None:
        """
        Rejects buffers of wrong size.

        `inputs` has the number of reads of each input per step, `outputs` the values of each
        anchor.
        """
        return

    def offered_outputs(self) -> list[str]:
        """The anchors that the user has buffers for, as far as known in advance."""
        return []

    def offered_inputs(self) -> list[str]:
        """The inputs that the user provides, as far as known in advance."""
        return []

    def are_contiguous(self, inputs: Iterable[Stream], outputs: Iterable[Stream]) -> bool:
        """Whether all arrays are contiguous, and no input overlaps an anchor."""
        return False


IStepIO = StepIO
"""PopART's name."""


class PyStepIO(StepIO):
    """
    Inputs and anchors in NumPy arrays: `PyStepIO({"x": x}, session.initAnchorArrays())`.

    Each array holds its batches in sequence. Reading continues where the last step stopped and
    wraps around at the end, so an array with the data of one step serves every step. An input may
    also be a list, or an iterator of batches. An anchor may be a list, whose numbers are replaced,
    or an array of a wider type (float64 for the losses of a float32 model).
    """

    @typed
    def __init__(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        self._inputs = {id: _source(value, id) for id, value in inputs.items()}
        self._outputs = {id: _sink(value, id) for id, value in outputs.items()}

    def offered_inputs(self) -> list[str]:
        return list(self._inputs)

    def offered_outputs(self) -> list[str]:
        return list(self._outputs)

    def are_contiguous(self, inputs: Iterable[Stream], outputs: Iterable[Stream]) -> bool:
        read = [(self._inputs.get(one.id), one.elements) for one in inputs]
        written = [(self._outputs.get(one.id), one.elements) for one in outputs]
        if not all(isinstance(one, RingBuffer) and one.has(count) for one, count in read + written):
            return False
        return not any(
            np.may_share_memory(one.array, other.array)
            for one, _ in read
            for other, _ in written
            if isinstance(one, RingBuffer) and isinstance(other, RingBuffer)
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
        self, inputs: Mapping[Stream, int], outputs: Mapping[Stream, ReturnedCount], step: StepPlan
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
                    raise _wrong_size("output", stream, expected, given, step, returned.description)


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

    An input is first requested as a prefetch, as on an IPU: `input_callback(id, True)`. If the
    callback returns None, it is called again: `input_callback(id, False)`.
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
        value = _one_batch(array, stream, "callback")
        self._input_done(stream.id)
        return value

    def write(self, stream: Stream, value: Array) -> None:
        array = _extended_view(self._output(stream.id), stream.elements)
        RingBuffer(array, stream.id, kind="output").put(value, stream.id)
        self._output_done(stream.id)


def _extended_view(array: Array, count: int) -> Array:
    """
    Extends an array to `count` elements of the array that it is a view of, if possible.

    PopART only uses the start address of an array.
    """
    whole = array.base
    if not isinstance(whole, np.ndarray) or array.size >= count or whole.dtype != array.dtype:
        return array
    first = (array.ctypes.data - whole.ctypes.data) // whole.itemsize
    if not whole.flags.c_contiguous or first + count > whole.size:
        return array
    return whole.reshape(-1)[first : first + count]


class PyWeightsIO:
    """Arrays for `readWeights` to fill or `writeWeights` to read, by weight name."""

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
"""PopART's name of the interface."""
