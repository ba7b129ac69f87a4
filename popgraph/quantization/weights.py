"""Rounds constant operands: per channel, in blocks, and biases in the scale of the sums."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects.onnx.containers import value_name
from popgraph.quantization.editing import Editor
from popgraph.quantization.grids import Grid
from popgraph.quantization.sites import BIAS, Site
from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.support.casts import cast
from popgraph.support.errors import ModelError

I32_MOST = float(np.iinfo(np.int32).max)


@dataclass(frozen=True)
class Rounded:
    """A weight in integers: (whole - zero) * scale, where scale and zero broadcast."""

    plain: Array
    whole: Array
    scale: Array
    zero: Array
    grid: Grid
    block: tuple[int, int] | None = None
    """The axis and the size of blocks: each has one element of `scale` and `zero`."""

    @property
    def restored(self) -> Array:
        scale, zero = self.scale, self.zero
        if self.block is not None:
            scale, zero = (_spread(one, self.whole, *self.block) for one in (scale, zero))
        return self.grid.restored(self.whole, scale, zero)

    @property
    def numbers(self) -> Array:
        """The integers in their type."""
        return stored(self.whole, self.grid)

    @property
    def bytes(self) -> int:
        """The size in a file; 4-bit numbers share a byte."""
        bits = dtypes.BY_NAME[self.grid.dtype].bits
        has_zeros = self.block is None or not self.grid.symmetric
        count = self.whole.size + (self.zero.size if has_zeros else 0)
        return -(-count * bits // 8) + self.scale.nbytes


def stored(whole: Array, grid: Grid) -> Array:
    """Integers in the type of a grid."""
    found: Array = cast(whole, grid.numpy)
    return found


def rounded(
    array: Array, axis: int | None, grid: Grid, least_scale: Array | None = None
) -> Rounded:
    """A weight on grids: one per element of the axis, or a single one."""
    others = tuple(one for one in range(array.ndim) if axis is None or one != axis)
    empty = not array.size
    low = np.zeros(()) if empty else array.min(axis=others, keepdims=axis is not None)
    high = np.zeros(()) if empty else array.max(axis=others, keepdims=axis is not None)
    scale, zero = grid.fitted(low, high)
    if least_scale is not None and grid.symmetric:
        least = np.broadcast_to(least_scale.astype(np.float32).reshape(-1), scale.size)
        scale = np.maximum(scale, least.reshape(scale.shape))
    return Rounded(array, grid.rounded(array, scale, zero), scale, zero, grid)


def in_blocks(array: Array, axis: int, size: int, grid: Grid) -> Rounded:
    """A matrix on grids, one per block of `size` elements along the axis; the last may be short."""
    length = array.shape[axis]
    starts = np.arange(0, length, size)
    low, high = (of.reduceat(array, starts, axis=axis) for of in (np.minimum, np.maximum))
    if grid.symmetric:
        scale, zero = _signed(grid, low, high)
    else:
        scale, zero = grid.fitted(low, high)
    wide = [_spread(one, array, axis, size) for one in (scale, zero)]
    return Rounded(array, grid.rounded(array, *wide), scale, zero, grid, (axis, size))


def _signed(grid: Grid, low: Array, high: Array) -> tuple[Array, Array]:
    """
    Scales, perhaps negative, with which the largest number of a block is the smallest integer.

    The lowest integer has no positive counterpart: with it, blocks use all 16 integers.
    """
    largest = np.where(-low > high, low, high).astype(np.float64)
    scale = (largest / (grid.low - grid.middle)).astype(np.float32)
    scale = np.where(np.abs(scale) < np.finfo(np.float32).tiny, np.float32(1), scale)
    return scale, np.full(scale.shape, grid.middle)


def _spread(numbers: Array, array: Array, axis: int, size: int) -> Array:
    """One number per element of an array, from one per block."""
    return np.repeat(numbers, size, axis).take(np.arange(array.shape[axis]), axis)


def finite(array: Array, name: str) -> Array:
    """The array; ModelError if it contains NaN or infinity."""
    if not np.isfinite(array).all():
        raise ModelError(
            f"weight {name!r} contains NaN or infinity", hint="train or export the model again"
        )
    return array


Key: TypeAlias = tuple[SSAValue, int | None]
"""A constant, and the axis along which each element has a scale of its own, if any."""


def key_of(site: Site, *, per_channel: bool) -> Key:
    return site.value, site.axis if per_channel else None


@dataclass
class Weights:
    """The rounded weights of a model, each one once per axis."""

    editor: Editor
    grid: Grid
    per_channel: bool
    made: dict[Key, Rounded] = field(default_factory=dict)
    values: dict[Key, SSAValue] = field(default_factory=dict)
    """The dequantized values in the model."""

    def array(self, value: SSAValue) -> Array:
        return finite(self.editor.array(value), value_name(value))

    def key(self, site: Site) -> Key:
        return key_of(site, per_channel=self.per_channel)

    def of(self, site: Site, least_scale: Array | None = None, grid: Grid | None = None) -> Rounded:
        """
        The rounded weight of a site.

        `least_scale` is a lower bound per channel, and `grid` replaces the grid of all weights.
        """
        key = self.key(site)
        if key not in self.made:
            array = self.array(site.value)
            self.made[key] = rounded(array, key[1], grid or self.grid, least_scale)
        return self.made[key]

    def dequantized(self, site: Site, made: Rounded) -> SSAValue:
        """The weight as DequantizeLinear of integers."""
        key = self.key(site)
        if key not in self.values:
            name = value_name(site.value)
            scale = self.editor.constant(f"{name}_scale", _flat(made.scale, key[1]))
            zero = self.editor.constant(
                f"{name}_zero_point", stored(_flat(made.zero, key[1]), made.grid)
            )
            self.values[key] = self.editor.dequantized(name, made.numbers, scale, zero, axis=key[1])
        return self.values[key]

    def bias(self, site: Site, input_scale: Array, weight: Rounded) -> SSAValue | None:
        """
        A bias as DequantizeLinear of i32, in the scale of the sums of products.

        None if the weights have zero points, or if i32 cannot hold the bias.
        """
        assert site.kind == BIAS
        if not weight.grid.symmetric:
            return None
        name, array = value_name(site.value), self.array(site.value)
        scale = (input_scale.astype(np.float32) * weight.scale.reshape(-1)).astype(np.float32)
        axis = 0 if scale.size > 1 else None
        whole = np.rint(array.astype(np.float64) / scale)
        if np.any(np.abs(whole) > I32_MOST):
            return None
        flat = scale if axis == 0 else scale.reshape(())
        given = self.editor.constant(f"{name}_scale", flat)
        return self.editor.dequantized(name, whole.astype(np.int32), given, None, axis=axis)


def _flat(array: Array, axis: int | None) -> Array:
    return array.reshape(()) if axis is None else array.reshape(-1)


def scale_for_bias(bias: Array, input_scale: Array) -> Array:
    """The smallest scale of weights with which i32 holds a bias in the scale of the sums."""
    most = I32_MOST * 0.99
    return np.abs(bias.astype(np.float64)) / (float(input_scale) * most)
