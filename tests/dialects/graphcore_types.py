"""Samples of graphcore operations in every element type that they admit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.random import default_rng
from xdsl.ir import Attribute

from popgraph.dialects import element_types
from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import FLOATS, INTEGERS, Array
from popgraph.support import dtypes
from popgraph.support.casts import cast
from popgraph.support.errors import TypeMismatchError
from tests.dialects.graphcore_run import Sample, build

TYPED = ("to", "dtype")
"""Properties that hold an element type."""
TYPES = [row for row in dtypes.DTYPES if row.name not in FLOATS.names]
"""Element types that no other table covers."""


def random_elements(dtype: dtypes.DType, shape: Sequence[int]) -> Array:
    """Random bit patterns; half of the integers are small."""
    random, count = default_rng(7), int(np.prod(shape, dtype=np.int64))
    if dtype.name == "bool":
        return random.integers(0, 2, shape).astype(bool)
    if dtype.name in ("c64", "c128"):
        parts = random.standard_normal((*shape, 2)).astype(f"f{dtype.numpy.itemsize // 2}")
        return parts.view(dtype.numpy)[..., 0]
    array = np.frombuffer(random.bytes(count * dtype.numpy.itemsize), dtype.numpy).reshape(shape)
    if dtype.is_float:
        # clear unused bits of types below one byte
        return cast(cast(array, np.dtype(np.float32)), dtype.numpy)
    small = cast(random.integers(-3, 4, shape), dtype.numpy)
    return np.asarray(np.where(random.integers(0, 2, shape) == 0, array, small))


def indices(low: int, last: int, dtype: dtypes.DType, shape: Sequence[int]) -> Array:
    """Random indices including both bounds, clipped to the range of the type."""
    drawn = default_rng(7).integers(low, last, shape, endpoint=True)
    drawn.flat[0], drawn.flat[-1] = low, last
    signed = dtype.name not in INTEGERS.names or np.iinfo(dtype.numpy).min < 0
    return cast(drawn if signed else np.maximum(drawn, 0), dtype.numpy)


def with_type(sample: Sample, first: np.dtype[Any], dtype: dtypes.DType) -> Sample:
    """The sample with operands of element type `first` replaced by others of `dtype`."""
    truth = np.dtype(np.bool_)
    main = next((array.dtype for array in sample.arrays if array.dtype != truth), truth)

    def other(operand: Any) -> Any:
        if operand is None or isinstance(operand, list):
            return operand and [other(each) for each in operand]
        if operand.dtype != first:
            return operand
        if sample.op is gc.CheckIndicesOp:
            (low,), (last,) = sample.properties["low"], sample.properties["last"]
            return indices(low, last, dtype, operand.shape)
        if first == main:
            return random_elements(dtype, operand.shape)
        # as indices and as labels, 0 and 1 fit every type
        places = np.asarray(np.clip(operand, 0, 1))
        return cast(places, dtype.numpy)

    return replace(sample, operands=[other(operand) for operand in sample.operands], smooth=False)


def spread(sample: Sample) -> Iterator[Sample]:
    """The sample in all element types, admitted or not."""
    for first in dict.fromkeys(array.dtype for array in sample.arrays):
        for dtype in TYPES:
            yield with_type(sample, first, dtype)
    for name in TYPED:
        for type_ in element_types.BY_NAME.values() if name in sample.properties else ():
            yield replace(sample, properties={**sample.properties, name: type_}, smooth=False)


def is_admitted(sample: Sample) -> bool:
    try:
        build(sample)
    except TypeMismatchError:
        return False
    return True


def each_type(samples: Sequence[Sample]) -> list[Sample]:
    """One sample per operation, operand and admitted element type."""
    plain: dict[Any, Sample] = {}
    for sample in samples:
        kinds = (sample.op, *(array.dtype == bool for array in sample.arrays))
        if sample.op is not gc.CastOp and all(array.size for array in sample.arrays):
            plain.setdefault(kinds if sample.op is gc.WhereOp else sample.op, sample)
    return [made for sample in plain.values() for made in spread(sample) if is_admitted(made)]


REAL: dict[str, Attribute] = {
    name: type_ for name, type_ in element_types.BY_NAME.items() if name not in ("c64", "c128")
}
"""Element types that casts take and give."""


def ends_of(dtype: dtypes.DType) -> Array:
    """All elements of a one-byte type; of others, where casts round, saturate or wrap."""
    random = default_rng(3)
    if dtype.name == "bool":
        return np.array([False, True])
    if dtype.numpy.itemsize == 1:
        return np.arange(256, dtype=np.uint8).view(dtype.numpy)
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        edges = [info.min, info.min + 1, 0, 1, 2, info.max - 1, info.max]
        within = random.integers(info.min, info.max, 60, dtype.numpy, endpoint=True)
        return np.concatenate([np.array(edges, dtype.numpy), within])
    powers = 2.0 ** np.array([-150, -127, -126, -17, -10, -1, 0, 1, 7, 15, 31, 32, 63, 64, 100])
    plain = np.array([0, 0.75, 1.5, 2.5, 5, 7, 448, 464, 480, 57344, 61440, 65520, 3e9, 3e38])
    wild = random.standard_normal(60) * np.exp(random.uniform(-20, 20, 60))
    some = np.concatenate([powers, powers * 1.5, powers * (1 - 2.0**-20), plain, wild, [np.inf]])
    return cast(np.concatenate([some, -some, [np.nan]]), dtype.numpy)


def casts() -> Iterator[Sample]:
    """Casts from every element type to every other."""
    for name in REAL:
        for to in REAL.values():
            yield Sample(gc.CastOp, [ends_of(dtypes.BY_NAME[name])], {"to": to}, smooth=False)
