"""The memory of a step's inputs and anchors: arrays, lists and iterators of users."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from popgraph.engine.streams import Stream
from popgraph.popart.exceptions import popart_exception, popart_runtime_error
from popgraph.support.arrays import Array
from popgraph.support.dtypes import DType, from_numpy
from popgraph.support.logs import log_of


class _Place:
    """Where reading or writing goes on: from the beginning again after the end."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._offset = 0

    def has(self, count: int) -> bool:
        """Whether so many elements are left up to the end."""
        return self._offset + count <= self.size

    def advance(self, count: int, id: str) -> slice:
        start, end = self._offset, self._offset + count
        if end > self.size:
            raise popart_runtime_error(
                f"The buffer for tensor {id} has {self.size} elements; {count} are needed "
                f"from element {start} on"
            )
        self._offset = end % max(self.size, 1)
        return slice(start, end)


class Ring:
    """An array read or written in order, from the beginning again after its end."""

    def __init__(self, array: Array, id: str, *, typed: bool = True, kind: str = "input") -> None:
        """`typed` arrays have the element type that the user chose; lists have none."""
        if not array.flags.c_contiguous:
            raise popart_exception(
                f"PyStepIO is unable to use the numpy {kind} array for tensor '{id}' as it is not "
                "c-contiguous (a data conversion here could have a significant impact on "
                "performance and hence is not allowed)",
                hint="pass np.ascontiguousarray(array)",
            )
        self.array, self._typed = array, typed
        self._flat = array.reshape(-1)
        self._place = _Place(array.size)

    @property
    def size(self) -> int:
        return self.array.size

    def has(self, count: int) -> bool:
        """Whether so many elements are left up to the end."""
        return self._place.has(count)

    def take(self, stream: Stream) -> Array:
        """The next batch, in the element type of the stream."""
        convert = _converted(self.array.dtype, stream, typed=self._typed)
        batch = self._flat[self._place.advance(stream.elements, stream.id)]
        return convert(batch).reshape(stream.shape)

    def put(self, value: Array, id: str) -> None:
        """Takes the next value; a buffer of a wider type holds what PopART's own would."""
        written = _fitting(value, self.array.dtype, id)
        self._flat[self._place.advance(value.size, id)] = written.reshape(-1)


class Drawn:
    """An input whose batches a Python iterator gives, one after the other."""

    size = None
    """Nobody knows how much will come."""

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
        return one_batch(given, stream, "iterator")


class Cells:
    """An anchor's buffer that is a Python list, or a list of lists; their numbers are replaced."""

    def __init__(self, numbers: list[object]) -> None:
        self._cells = list(_cells(numbers))
        self._place = _Place(len(self._cells))

    @property
    def size(self) -> int:
        return len(self._cells)

    def put(self, value: Array, id: str) -> None:
        """Takes the next value, as Python's numbers."""
        cells = self._cells[self._place.advance(value.size, id)]
        for (row, column), number in zip(cells, value.reshape(-1).tolist(), strict=True):
            row[column] = number


def _cells(numbers: list[object]) -> Iterator[tuple[list[object], int]]:
    for at, one in enumerate(numbers):
        if isinstance(one, list):
            yield from _cells(one)
        else:
            yield numbers, at


def source(value: object, id: str) -> Ring | Drawn:
    """What an input is read from."""
    if isinstance(value, Iterator):
        return Drawn(value)
    return Ring(_as_array(value), id, typed=not _is_untyped(value))


def sink(value: object, id: str) -> Ring | Cells:
    """What an anchor is written to: memory of the user, never a copy of it."""
    if isinstance(value, list):
        return Cells(value)
    if isinstance(value, np.ndarray):
        return Ring(value, id, kind="output")
    try:
        return Ring(np.asarray(memoryview(value)), id, kind="output")  # type: ignore[arg-type]
    except TypeError:
        raise popart_exception(
            f"the buffer for tensor {id} is {type(value).__name__}, "
            "which nothing can be written to",
            hint="pass a NumPy array; session.initAnchorArrays() makes one for every anchor",
        ) from None


def one_batch(given: object, stream: Stream, kind: str) -> Array:
    """What an iterator or a callback gave, which must be one batch."""
    ring = Ring(_as_array(given), stream.id, typed=not _is_untyped(given))
    if ring.size != stream.elements:
        raise popart_runtime_error(
            f"The input {kind} gave {ring.size} elements for tensor {stream.id}; "
            f"one batch has {stream.elements}"
        )
    return ring.take(stream).copy()


def _is_untyped(value: object) -> bool:
    """Python's numbers have no element type of their own: they are in that of the model."""
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
"""PopART's devices have no 64-bit integers, so its programs mix the widths of whole numbers."""


def _converted(
    given: np.dtype[np.generic], stream: Stream, *, typed: bool
) -> Callable[[Array], Array]:
    """How elements of a buffer become elements of the stream."""
    expected = stream.dtype.numpy
    if given == expected:
        return lambda batch: batch
    if (given.name, expected.name) in _NARROWED:
        if (given.name, expected.name) == ("int64", "int32"):
            _tell_of_narrowing(stream.id)
        return lambda batch: _whole(batch, expected, stream.id)
    if given == np.uint8 and stream.dtype.popart.startswith("FLOAT8"):
        return lambda batch: batch.view(expected)
    if not typed and stream.dtype.is_float and given.kind in "iuf":
        return lambda batch: batch.astype(expected)
    if not typed and stream.dtype.is_integer and given.kind in "iu":
        return lambda batch: _whole(batch, expected, stream.id)
    raise _type_discrepancy(stream.id, given, stream.dtype)


def _tell_of_narrowing(id: str) -> None:
    """Warns as PopART does: of the first tensor of the process alone."""
    if not _NARROWED_FIRST:
        _NARROWED_FIRST.append(id)
        log_of("devicex").warning(
            "Copying (host) tensor %s from INT64 to INT32. Will only warn once", id
        )


_NARROWED_FIRST: list[str] = []


def _fitting(value: Array, wanted: np.dtype[np.generic], id: str) -> Array:
    """An anchor's value in the type of its buffer, which holds every number of it exactly."""
    given = value.dtype
    if given == wanted:
        return value
    if (given.name, wanted.name) in _NARROWED:
        return _whole(value, wanted, id)
    if given.kind == wanted.kind and np.can_cast(given, wanted, "safe"):
        return value.astype(wanted)
    raise _type_discrepancy(id, wanted, from_numpy(given))


def _whole(batch: Array, dtype: np.dtype[np.generic], id: str) -> Array:
    result = batch.astype(dtype)
    if not np.array_equal(result, batch):
        raise popart_runtime_error(
            f"Tensor {id} holds numbers that do not fit {dtype.name}",
            hint=f"the model declares it as {dtype.name}",
        )
    return result
