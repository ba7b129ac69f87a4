"""Donated inputs: arrays of the caller that outputs overwrite."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from popgraph.backends.c.memory.pages import address
from popgraph.backends.c.memory.zero_copy import Pointers
from popgraph.support.arrays import Array
from popgraph.support.dtypes import DType
from popgraph.support.errors import RunError
from popgraph.support.inputs import as_array
from popgraph.support.shapes import Shape


def donated(
    inputs: Mapping[str, Array],
    donate: Collection[str],
    donations: Mapping[str, str],
    types: Mapping[str, tuple[DType, Shape]],
) -> dict[str, Array]:
    """
    The arrays of the donated inputs; RunError for one that no output can overwrite.

    `inputs` fit the program's `types`; `donations` maps inputs that can be donated to outputs.
    """
    if isinstance(donate, str):
        raise RunError(f"donate is {donate!r}, not a list of names", hint=f"donate=[{donate!r}]")
    found = dict[str, Array]()
    for name in dict.fromkeys(donate):
        _check_name(name, inputs, donations)
        found[name] = _memory_of(name, inputs[name], types[name][0])
    for name in found:
        for other, array in inputs.items():
            if other != name and np.may_share_memory(found[name], as_array(other, array)):
                raise RunError(
                    f"input {name!r} cannot be donated: it shares memory with input {other!r}",
                    hint=f"pass a copy of one of them, or leave {name!r} out of donate",
                )
    outputs = [donations[name] for name in found]
    for name, output in zip(found, outputs, strict=True):
        if outputs.count(output) > 1:
            rivals = ", ".join(repr(one) for one in found if donations[one] == output)
            raise RunError(
                f"output {output!r} can overwrite only one donated input",
                f"input {name!r}",
                f"donate one of {rivals}",
            )
    return found


def _check_name(name: str, inputs: Mapping[str, Array], donations: Mapping[str, str]) -> None:
    if name not in inputs:
        known = ", ".join(map(repr, inputs)) or "none"
        raise RunError(f"the model has no input {name!r} to donate", hint=f"its inputs are {known}")
    if name not in donations:
        others = ", ".join(f"{one!r} (becomes {donations[one]!r})" for one in donations) or "none"
        raise RunError(
            f"input {name!r} cannot be donated: no output overwrites it",
            hint="an output of the same type must update it (ScatterND, ScatterElements, "
            f"elementwise operators) after all its other uses; inputs that can be: {others}",
        )


def _memory_of(name: str, value: object, dtype: DType) -> Array:
    """An array that may be overwritten in place."""
    why = ""
    if not isinstance(value, np.ndarray):
        why = f"a {type(value).__name__} is not a NumPy array"
    elif value.dtype != dtype.numpy:
        why = f"it holds {value.dtype}, the model requires {dtype.numpy}"
    elif not value.flags.writeable:
        why = "the array is read-only"
    elif not (value.flags.c_contiguous and value.flags.aligned):
        why = "the array is not contiguous"
    if why:
        raise RunError(
            f"input {name!r} cannot be donated: {why}",
            hint=f"donate a copy: np.array({name}, np.dtype('{dtype.numpy}'), order='C')",
        )
    return np.asarray(value)


@contextmanager
def in_memory_of(array: Array, pointers: Pointers, numbers: Collection[int]) -> Iterator[None]:
    """A context in which these entries of the table point to an array."""
    before = [(number, pointers[number]) for number in numbers]
    for number in numbers:
        pointers[number] = address(array)
    try:
        yield
    finally:
        for number, pointer in before:
            pointers[number] = pointer
