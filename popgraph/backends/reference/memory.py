"""NumPy counterparts of IR types, literals and layouts; unwritten memory is poisoned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseIntOrFPElementsAttr,
    FloatAttr,
    IndexType,
    IntegerAttr,
    MemRefType,
    TensorType,
    VectorType,
)
from xdsl.ir import Attribute

from popgraph.dialects import element_types
from popgraph.dialects.tile.attributes import layout_of, physical_shape
from popgraph.support.arrays import Array
from popgraph.support.poison import POISON
from popgraph.support.shapes import Shape, prod

Bytes: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.uint8]]
INDEX = np.dtype(np.int64)


def numpy_dtype(type_: Attribute) -> np.dtype[np.generic]:
    """The dtype of a scalar type, or of a container's elements."""
    if isinstance(type_, TensorType | MemRefType | VectorType):
        type_ = type_.element_type
    return INDEX if isinstance(type_, IndexType) else element_types.from_ir(type_).numpy


def literal_value(attribute: Attribute, type_: Attribute) -> Any:
    """The value of a literal: a Python int for an index, else a NumPy scalar of its type."""
    if isinstance(attribute, DenseIntOrFPElementsAttr):
        assert isinstance(type_, VectorType), "dense literals are vectors"
        return np.array(attribute.get_values(), numpy_dtype(type_)).reshape(type_.get_shape())
    if isinstance(attribute, ArrayAttr):
        real, imaginary = (part.value.data for part in attribute)
        return numpy_dtype(type_).type(complex(real, imaginary))
    assert isinstance(attribute, IntegerAttr | FloatAttr)
    number = attribute.value.data
    if isinstance(type_, IndexType):
        return number
    dtype = numpy_dtype(type_)
    if dtype == np.bool_:
        return np.bool_(number != 0)
    if isinstance(number, int):  # signless literals may be written with or without sign
        return np.array(number % 2**64, np.uint64).astype(dtype)[()]
    return dtype.type(number)


def unwritten_bytes(size: int) -> Bytes:
    """New memory, poisoned so that reading it is noticed."""
    return np.full(size, POISON, np.uint8)


def unwritten(shape: Sequence[int], dtype: np.dtype[np.generic]) -> Array:
    """New poisoned memory for an array."""
    return typed(unwritten_bytes(prod(shape) * dtype.itemsize), 0, shape, dtype)


def typed(memory: Bytes, offset: int, shape: Sequence[int], dtype: np.dtype[np.generic]) -> Array:
    """A typed window into bytes."""
    size = prod(shape) * dtype.itemsize
    assert offset >= 0 and offset + size <= memory.size, (
        f"bytes {offset} to {offset + size} are outside a memory of {memory.size}"
    )
    return np.ndarray(tuple(shape), dtype, memory.data, offset)


def allocate(type_: TensorType[Attribute]) -> Array:
    """Unwritten memory for a tensor, in its layout."""
    return unwritten(physical_shape(type_), numpy_dtype(type_))


def grid(shape: Sequence[int]) -> tuple[Array, ...]:
    """The index along each dimension, as arrays that broadcast to `shape`."""
    return tuple(np.ogrid[tuple(slice(size) for size in shape)])


def physical_places(type_: TensorType[Attribute]) -> tuple[Array, ...]:
    """For every logical index, its index in memory along each physical dimension."""
    layout = layout_of(type_)
    assert layout is not None
    shape = type_.get_shape()
    places = layout.map.data.eval(grid(shape), ())  # type: ignore[arg-type]
    return tuple(np.broadcast_to(place, shape) for place in places)


def to_logical(memory: Array, type_: TensorType[Attribute]) -> Array:
    """The elements of a tensor in logical order, from its memory."""
    return memory if layout_of(type_) is None else memory[physical_places(type_)]


def to_physical(elements: Array, type_: TensorType[Attribute]) -> Array:
    """The memory of a tensor with these elements; padding of the layout is zero."""
    layout = layout_of(type_)
    if layout is None:
        return elements
    memory = np.zeros(layout.physical.data, elements.dtype)
    memory[physical_places(type_)] = elements
    return memory


def check_shape(memory: Array, type_: TensorType[Attribute]) -> None:
    """Asserts that a value has the dtype and physical shape of its type."""
    expected: Shape = physical_shape(type_)
    assert memory.shape == expected and memory.dtype == numpy_dtype(type_), (
        f"a value of {type_} is {memory.dtype} of shape {memory.shape}"
    )
