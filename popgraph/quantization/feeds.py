"""Calibration data: arrays, batches, or readers in the manner of onnxruntime, as inputs of runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from popgraph.support.arrays import Array
from popgraph.support.description import TensorSpec
from popgraph.support.errors import RunError

Data: TypeAlias = Any
"""
Arrays of many samples: a mapping by input, or one array for the only input.

Batches: an iterable of mappings, arrays, or tuples in the order of the inputs. Readers: `get_next`
returns a mapping, and None at the end.
"""
Feed: TypeAlias = dict[str, Array]

ROWS = 32
"""Samples per run if the data are whole arrays, and the model leaves the size of a batch open."""
WHERE = "calibration data"


def feeds(data: Data, inputs: Mapping[str, TensorSpec]) -> Iterator[Feed]:
    """The inputs of each run."""
    names = [*inputs]
    if isinstance(data, str | bytes):
        raise RunError(f"{data!r} is not data", WHERE, "load the file first: numpy.load('x.npy')")
    if hasattr(data, "get_next"):
        yield from _read(data.get_next)
    elif isinstance(data, Mapping):
        yield from _split({name: np.asarray(data[name]) for name in data}, inputs)
    elif hasattr(data, "__array__"):
        yield from _split(_by_name(np.asarray(data), names), inputs)
    elif isinstance(data, Iterable):
        for batch in data:
            yield _by_name(batch, names)
    else:
        raise RunError(
            f"{type(data).__name__} is not calibration data",
            WHERE,
            "pass an array, a dict of arrays, an iterable of batches, or an object with get_next()",
        )


def _read(get_next: Any) -> Iterator[Feed]:
    """The batches of a reader: its `get_next` returns None at the end."""
    while (batch := get_next()) is not None:
        yield _by_name(batch, [*batch])


def _by_name(batch: Any, names: Sequence[str]) -> Feed:
    """A batch by input; the elements of a tuple after the inputs, such as labels, are not used."""
    if isinstance(batch, Mapping):
        return {name: np.asarray(batch[name]) for name in batch}
    given = batch if _is_several(batch, len(names)) else (batch,)
    if len(given) < len(names):
        raise RunError(
            f"a batch has {len(given)} arrays for the inputs {', '.join(names)}",
            WHERE,
            f"pass dicts: {{{names[0]!r}: array, ...}}",
        )
    return {name: np.asarray(array) for name, array in zip(names, given, strict=False)}


def _is_several(batch: Any, inputs: int) -> bool:
    """Whether a batch lists arrays, rather than being one array or nested lists of numbers."""
    if not isinstance(batch, tuple | list):
        return False
    return inputs > 1 or isinstance(batch, tuple) or all(hasattr(one, "__array__") for one in batch)


def _split(arrays: Feed, inputs: Mapping[str, TensorSpec]) -> Iterator[Feed]:
    """
    Whole arrays as batches of the model's size.

    The last batch of a fixed size is completed with the first samples.
    """
    sized = {name: one for name, one in arrays.items() if _rank(inputs, name) == one.ndim > 0}
    counts = {len(one) for one in sized.values()}
    if len(counts) > 1:
        listed = ", ".join(f"{name} has {len(one)}" for name, one in sized.items())
        raise RunError(f"the arrays have different numbers of samples: {listed}", WHERE)
    if not sized:
        yield arrays
        return
    (count,) = counts
    size, is_fixed = _batch(inputs, sized)
    for start in range(0, count, size):
        rows: Array = np.arange(start, start + size if is_fixed else min(start + size, count))
        yield {name: one[rows % count] if name in sized else one for name, one in arrays.items()}


def _rank(inputs: Mapping[str, TensorSpec], name: str) -> int | None:
    shape = inputs[name].shape if name in inputs else None
    return None if shape is None else len(shape)


def _batch(inputs: Mapping[str, TensorSpec], names: Iterable[str]) -> tuple[int, bool]:
    """The number of samples per run, and whether the model fixes it."""
    for name in names:
        first = (inputs[name].shape or (None,))[0]
        if isinstance(first, int):
            return max(first, 1), True
    return ROWS, False


def checked(feed: Feed, number: int) -> Feed:
    """RunError for NaN or infinity in the inputs of a run."""
    for name, array in feed.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            kind = "NaN" if np.isnan(array).any() else "infinity"
            raise RunError(
                f"input {name!r} of batch {number} contains {kind}",
                WHERE,
                "a scale is computed from the range of the data: remove such samples",
            )
    return feed
