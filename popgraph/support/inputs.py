"""Input arrays from callers: one rule for names and element types at every entry point."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np

from popgraph.support.arrays import Array
from popgraph.support.casts import cast
from popgraph.support.dtypes import DType, from_numpy
from popgraph.support.errors import RunError
from popgraph.support.names import closest

NARROW = 8
"""
Types with at most this many bits hold quantized numbers: no float is rounded to them implicitly.
"""


def as_array(name: str, value: object) -> Array:
    """Converts an input, such as a list of numbers, to an array."""
    if type(value) is np.ndarray:
        return value
    try:
        return np.asarray(value)
    except ValueError as error:
        raise RunError(
            f"input {name!r} has rows of different shapes",
            hint="pad them to one shape",
        ) from error


def check_names(
    given: Collection[str],
    inputs: Collection[str],
    where: str = "",
    *,
    overridable: Collection[str] = (),
    complete: bool = True,
) -> None:
    """
    RunError unless every name is an input, and every input is given.

    `overridable` are initializers that may also be given; without `complete`, inputs may be
    missing.
    """
    listed = f"the model's inputs are {', '.join(map(repr, inputs)) or 'none'}"
    known = (*inputs, *overridable)
    if unknown := [name for name in given if name not in known]:
        close = [found for name in unknown if (found := closest(str(name), known))]
        meant = f"; did you mean {', '.join(map(repr, close))}?" if close else ""
        what = f"the model has no input {', '.join(map(repr, unknown))}"
        raise RunError(what, where, f"{listed}{meant}")
    if complete and (missing := [name for name in inputs if name not in given]):
        raise RunError(f"input {', '.join(map(repr, missing))} is missing", where, listed)


def check_outputs(wanted: Iterable[str], outputs: Collection[str]) -> None:
    """RunError unless every name is an output."""
    if unknown := [name for name in wanted if name not in outputs]:
        listed, close = ", ".join(map(repr, outputs)) or "none", closest(unknown[0], outputs)
        raise RunError(
            f"the model has no output {unknown[0]!r}",
            hint=f"its outputs are {listed}" + (f"; did you mean {close!r}?" if close else ""),
        )


def fitted(name: str, value: object, dtype: DType, where: str = "") -> Array:
    """
    Converts an input to the element type of the model; RunError if values would change.

    Floats round to floats of another width, unless a finite number would become infinite. Integers
    and bools become any type that represents them exactly. A float never becomes an integer, and
    nothing becomes a bool.
    """
    array = as_array(name, value)
    if array.dtype == dtype.numpy:
        return array
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    if not array.size or native.dtype == dtype.numpy:
        return native.astype(dtype.numpy)
    if not _admits(dtype, native):
        kind = array.dtype if array.dtype != object else type(array.reshape(-1)[0]).__name__
        raise RunError(
            f"input {name!r} holds {kind}, the model requires {dtype.numpy}",
            where,
            f"pass np.asarray({name}, {_home(dtype)}.{dtype.numpy.type.__name__})",
        )
    made: Array = cast(native, dtype.numpy)
    changed = np.flatnonzero(_changed(native, made, dtype))
    if len(changed):
        first = native.reshape(-1)[changed[0]]
        at = ", ".join(str(index) for index in np.unravel_index(changed[0], native.shape))
        raise RunError(
            f"input {name!r} holds {first!s}, which {dtype.numpy} cannot represent",
            ", ".join(filter(None, [where, f"{name}[{at}]" if at else ""])),
            f"scale or clip it, or pass an array of {dtype.numpy}",
        )
    return made


def _home(dtype: DType) -> str:
    """The module of an element type, as spelled in programs."""
    module = dtype.numpy.type.__module__
    return "np" if module == np.__name__ else module


def _admits(dtype: DType, array: Array) -> bool:
    """Whether the conversion is widening: bool < integer < float < complex."""
    try:
        return dtype.name != "bool" and _kind(from_numpy(array.dtype)) <= _kind(dtype)
    except KeyError:  # strings, dates, records
        return False


def _kind(dtype: DType) -> int:
    if dtype.name == "bool":
        return 0
    return 1 if dtype.is_integer else 2 if dtype.is_float else 3


def _changed(given: Array, made: Array, dtype: DType) -> Array:
    """A mask of elements that lose information."""
    with np.errstate(all="ignore"):
        if not from_numpy(given.dtype).is_float and given.dtype.kind != "c":
            wrapped: Array = ((made < 0) != (given < 0)) | (cast(made, given.dtype) != given)
            return wrapped
        if dtype.bits <= NARROW:
            same = cast(made, given.dtype) == given
            lost: Array = ~(same | np.isnan(given) & np.isnan(made))
            return lost
        overflown: Array = np.isfinite(given) & ~np.isfinite(made)
        return overflown
