"""Training data: arrays, datasets or streams, as batches in a reproducible order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from popgraph.support.array_files import read_npy
from popgraph.support.arrays import Array
from popgraph.support.errors import RunError
from popgraph.support.reading import Unreadable

Data: TypeAlias = Any
"""
Arrays: a mapping, or a tuple in the order of the inputs; .npy files by name.

A dataset with `column_names` or of rows. Batches: an iterable, or a function that returns one per
epoch.
"""
Batch: TypeAlias = dict[str, Array]


@dataclass(frozen=True)
class Order:
    """The order of samples, and their division into batches."""

    size: int
    """Samples per batch."""
    shuffled: bool = True
    """Whether each epoch has an order of its own."""
    seed: int = 0
    drop_last: bool = False
    """Whether the incomplete batch at the end of an epoch is dropped."""

    def of_epoch(self, samples: int, epoch: int) -> Array:
        """The order of samples in an epoch; depends only on `seed` and `epoch`."""
        if not self.shuffled:
            return np.arange(samples)
        return np.random.default_rng([self.seed, epoch]).permutation(samples)

    def steps(self, samples: int) -> int:
        """Batches per epoch."""
        return samples // self.size if self.drop_last else -(-samples // self.size)


class Source(ABC):
    """A source of batches."""

    count: int | None = None
    """Number of samples, if known."""

    @property
    def is_single_pass(self) -> bool:
        """Whether the batches can be iterated only once."""
        return False

    @abstractmethod
    def first(self, size: int) -> Batch:
        """The first batch, or its beginning, without consuming it."""

    @abstractmethod
    def epoch(self, order: Order, number: int, start: int) -> Iterator[Batch]:
        """The batches of an epoch, from number `start`."""

    @abstractmethod
    def steps(self, order: Order) -> int | None:
        """Batches per epoch; None if unknown in advance."""


class Samples(Source):
    """Samples with random access."""

    def __init__(self, count: int, take: Callable[[Array], Batch], chosen: Array | None = None):
        self._take, self._chosen = take, chosen
        self.count: int = count

    def take(self, numbers: Array) -> Batch:
        return self._take(numbers if self._chosen is None else self._chosen[numbers])

    def first(self, size: int) -> Batch:
        return self.take(np.arange(min(size, self.count)))

    def epoch(self, order: Order, number: int, start: int) -> Iterator[Batch]:
        numbers = order.of_epoch(self.count, number)
        for step in range(start, order.steps(self.count)):
            yield self.take(numbers[step * order.size : (step + 1) * order.size])

    def number(self, order: Order, epoch: int, at: int) -> int:
        """The index in the user's data of the sample at this position of an epoch."""
        number = order.of_epoch(self.count, epoch)[at]
        return int(number if self._chosen is None else self._chosen[number])

    def steps(self, order: Order) -> int | None:
        return order.steps(self.count)

    def split(self, share: float, seed: int) -> tuple[Samples, Samples]:
        """Splits off a random fraction `share` of the samples for validation."""
        held_out = round(self.count * share)
        if not 0 < held_out < self.count:
            raise RunError(
                f"of {self.count} samples, a share of {share} is {held_out} for validation",
                "validation",
                "a fraction between 0 and 1, or separate data",
            )
        numbers = np.random.default_rng([seed, self.count]).permutation(self.count)
        if self._chosen is not None:
            numbers = self._chosen[numbers]
        parts = (np.sort(numbers[held_out:]), np.sort(numbers[:held_out]))
        first, second = (Samples(len(part), self._take, part) for part in parts)
        return first, second


class Stream(Source):
    """Batches in the order of an iterable."""

    def __init__(self, data: Data, names: Sequence[str]) -> None:
        self._data, self._names = data, names
        self._once = iter(data) if isinstance(data, Iterator) else None

    @property
    def is_single_pass(self) -> bool:
        return self._once is not None

    def first(self, size: int) -> Batch:
        batches = self._batches()
        found = next(batches, None)
        if found is None:
            raise RunError("no data to train on", hint="the iterable yields no batch")
        if self._once is not None:
            self._once = chain([found], self._once)
        return by_input_name(found, self._names)

    def epoch(self, order: Order, number: int, start: int) -> Iterator[Batch]:
        for batch in islice(self._batches(), start, None):
            yield by_input_name(batch, self._names)

    def steps(self, order: Order) -> int | None:
        if self._once is not None or not hasattr(self._data, "__len__"):
            return None
        return len(self._data)

    def _batches(self) -> Iterator[Any]:
        if self._once is not None:
            return self._once
        return iter(self._data() if callable(self._data) else self._data)


def source_of(data: Data, names: Sequence[str]) -> Source:
    """Wraps a user's data; `names` are the inputs of the model in order."""
    if isinstance(data, Source):
        return data
    if isinstance(data, Mapping):
        return _of_arrays(data)
    if isinstance(data, tuple | list) and data and _are_arrays(data, names):
        return _of_arrays(dict(zip(names, _check_count(data, names), strict=False)))
    if _is_array(data):
        return _of_arrays({names[0]: data})
    if hasattr(data, "column_names") and hasattr(data, "__getitem__"):
        return Samples(len(data), lambda numbers: _columns(data[numbers.tolist()]))
    if hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, list):
        return Samples(len(data), lambda numbers: _rows(data, numbers, names))
    if callable(data) or isinstance(data, Iterable):
        return Stream(data, names)
    raise RunError(
        f"{type(data).__name__} is not data to train on",
        hint='{"x": array, "labels": array}, a tuple of arrays, or an iterable of batches',
    )


def count_rows(batch: Mapping[str, Array]) -> int:
    """The number of samples in a batch."""
    return len(next(iter(batch.values())))


def first_rows(batch: Batch, rows: int) -> Batch:
    """The first samples of a batch."""
    return {name: array[:rows] for name, array in batch.items()}


def combine_data(data: Data, more: Sequence[Data]) -> Data:
    """`fit(x, y)`  ->  `fit((x, y))`."""
    for one in more:
        if isinstance(one, int | float | str | bool):
            raise RunError(
                f"{one!r} is not data to train on", "the data", f"options have names: batch={one!r}"
            )
    return (data, *more) if more else data


def _is_array(data: object) -> bool:
    is_file = isinstance(data, str | Path)
    return is_file or (hasattr(data, "shape") and hasattr(data, "dtype"))


def _are_arrays(data: Sequence[object], names: Sequence[str]) -> bool:
    """
    Whether the elements are arrays, one per input, and not rows.

    In a tuple with one element per input, lists are arrays, too.
    """
    lists = isinstance(data, tuple) and len(data) == len(names)
    return all(_is_array(one) or (lists and isinstance(one, list)) for one in data)


def _columns(found: Mapping[str, Any]) -> Batch:
    return {name: np.asarray(column) for name, column in found.items()}


def _rows(data: Any, numbers: Array, names: Sequence[str]) -> Batch:
    """Stacks rows of a dataset into arrays."""
    rows = [data[number] for number in numbers.tolist()]
    if isinstance(rows[0], Mapping):
        return {name: _stacked([row[name] for row in rows], name) for name in rows[0]}
    if not isinstance(rows[0], tuple | list):
        rows = [(row,) for row in rows]
    columns = zip(*(_check_count(row, names) for row in rows), strict=True)
    return {name: _stacked(column, name) for name, column in zip(names, columns, strict=True)}


def _stacked(samples: Sequence[Any], name: str) -> Array:
    arrays = [np.asarray(one) for one in samples]
    shapes = sorted({one.shape for one in arrays})
    if len(shapes) > 1:
        raise RunError(
            f"samples have different shapes: {shapes[0]} and {shapes[-1]}",
            f"input {name!r}",
            "a dict of arrays by input name, or batches, if the tuples are not samples",
        )
    return np.stack(arrays)


def by_input_name(batch: Any, names: Sequence[str]) -> Batch:
    """The arrays of a batch by input name."""
    if isinstance(batch, Mapping):
        return {name: np.asarray(array) for name, array in batch.items()}
    if isinstance(batch, tuple | list):
        return dict(zip(names, map(np.asarray, _check_count(batch, names)), strict=False))
    return {names[0]: np.asarray(batch)}


def _check_count(given: Sequence[Any], names: Sequence[str]) -> Sequence[Any]:
    if len(given) != len(names):
        raise RunError(
            f"the data are {len(given)} arrays, and the model takes {len(names)}",
            f"inputs {', '.join(map(repr, names))}",
            "arrays by their names: {" + ", ".join(f'"{name}": ...' for name in names) + "}",
        )
    return given


def _of_arrays(given: Mapping[str, Any]) -> Samples:
    arrays = {name: _array(one) for name, one in given.items()}
    return Samples(
        count_samples(arrays),
        lambda numbers: {name: np.asarray(array[numbers]) for name, array in arrays.items()},
    )


def _array(given: Any) -> Array:
    """Converts to an array; an .npy file is memory-mapped, so only the rows taken are read."""
    if not isinstance(given, str | Path):
        try:
            return np.asarray(given)
        except ValueError as error:
            raise RunError(f"a list is not an array: {error}", "the data") from error
    try:
        return read_npy(Path(given), mapped=True)
    except Unreadable as error:
        raise RunError(f"the array cannot be read: {error}", str(given)) from error


def count_samples(arrays: Mapping[str, Array]) -> int:
    """The number of samples; RunError unless all arrays agree."""
    if not arrays:
        raise RunError("no data to train on", hint="give an array for each input, labels included")
    for name, array in arrays.items():
        if not array.ndim:
            raise RunError(
                f"input {name!r} is one value of type {type(array[()]).__name__}, not samples",
                "the data",
                "samples are the rows of an array, along its first axis",
            )
    counts = {name: array.shape[0] for name, array in arrays.items()}
    if not any(counts.values()):
        raise RunError("the data have no samples", f"inputs {', '.join(map(repr, counts))}")
    if len(set(counts.values())) != 1:
        listed = ", ".join(f"{name}: {count}" for name, count in counts.items())
        raise RunError(f"the arrays have different numbers of samples ({listed})")
    return next(iter(counts.values()))
