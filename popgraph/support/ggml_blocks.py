"""Decodes GGML's block formats to small integers, scales and minima."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np

from popgraph.support.arrays import Array

UNEVEN = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
"""The 16 values of GGML's non-linear 4-bit formats (IQ4)."""


@dataclass(frozen=True)
class Blocks:
    """
    A matrix in blocks along its last axis: `codes * scales - minima`.

    `codes` are i4, u4 or i8, of the matrix's shape. `scales` and `minima` are f32, with one
    element for each block. Formats without minima are symmetric.
    """

    codes: Array
    scales: Array
    minima: Array | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.codes.shape

    @property
    def size(self) -> int:
        """The number of elements of a block."""
        return self.codes.shape[-1] // self.scales.shape[-1]

    def floats(self) -> Array:
        """The matrix in f32, with the roundings of GGML's reference."""
        parts = self.codes.astype(np.float32).reshape(*self.scales.shape, self.size)
        made = parts * self.scales[..., None]
        if self.minima is not None:
            made = made - self.minima[..., None]
        return made.reshape(self.shape)

    def rows(self, order: Array) -> Blocks:
        """The rows in another order."""
        minima = None if self.minima is None else self.minima[order]
        return replace(self, codes=self.codes[order], scales=self.scales[order], minima=minima)


@dataclass(frozen=True)
class Format:
    """A block format: its name, elements and bytes of a block, and its decoder."""

    name: str
    elements: int
    bytes: int
    decode: Callable[[Array], Blocks]
    """[blocks, bytes] in u8  ->  blocks of shape [blocks, elements]."""

    def decoded(self, data: Array, shape: tuple[int, ...]) -> Blocks:
        """The blocks of a matrix, from its bytes."""
        found = self.decode(data.reshape(-1, self.bytes))
        minima = None if found.minima is None else found.minima.reshape(*shape[:-1], -1)
        return Blocks(found.codes.reshape(shape), found.scales.reshape(*shape[:-1], -1), minima)


def _half(blocks: Array, at: int) -> Array:
    """The f16 at an offset of each block, as f32 [blocks, 1]."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)


def _bits(data: Array, count: int) -> Array:
    """[blocks, groups, bytes]  ->  [blocks, groups * 8 / count, bytes], lowest bits first."""
    shifts = np.arange(0, 8, count, dtype=np.uint8).reshape(1, 1, -1, 1)
    found = data[:, :, None, :] >> shifts & np.uint8((1 << count) - 1)
    return found.reshape(len(data), -1, data.shape[-1])


def _nibbles(blocks: Array, start: int, end: int, width: int) -> Array:
    """Lower halves of `width` bytes, then their higher halves, and so on."""
    return _bits(blocks[:, start:end].reshape(len(blocks), -1, width), 4).reshape(len(blocks), -1)


def _fifth(blocks: Array, start: int) -> Array:
    """The 32 bits from an offset on."""
    return np.unpackbits(blocks[:, start : start + 4], axis=-1, bitorder="little")


def _signed(codes: Array, middle: int) -> Array:
    return codes.astype(np.int8) - np.int8(middle)


def _i4(codes: Array) -> Array:
    return codes.astype(ml_dtypes.int4)


def _u4(codes: Array) -> Array:
    return codes.astype(ml_dtypes.uint4)


def _q4_0(blocks: Array) -> Blocks:
    return Blocks(_i4(_signed(_nibbles(blocks, 2, 18, 16), 8)), _half(blocks, 0))


def _q4_1(blocks: Array) -> Blocks:
    return Blocks(_u4(_nibbles(blocks, 4, 20, 16)), _half(blocks, 0), -_half(blocks, 2))


def _q5_0(blocks: Array) -> Blocks:
    codes = _nibbles(blocks, 6, 22, 16) | _fifth(blocks, 2) << 4
    return Blocks(_signed(codes, 16), _half(blocks, 0))


def _q5_1(blocks: Array) -> Blocks:
    codes = _nibbles(blocks, 8, 24, 16) | _fifth(blocks, 4) << 4
    return Blocks(_signed(codes, 0), _half(blocks, 0), -_half(blocks, 2))


def _q8_0(blocks: Array) -> Blocks:
    return Blocks(blocks[:, 2:].view(np.int8), _half(blocks, 0))


def _q2_k(blocks: Array) -> Blocks:
    """Sixteen groups, each with a 4-bit scale and a 4-bit minimum."""
    codes = _bits(blocks[:, 16:80].reshape(len(blocks), 2, 32), 2)
    scales, minima = blocks[:, :16] & 15, blocks[:, :16] >> 4
    return Blocks(
        _u4(codes.reshape(len(blocks), 256)),
        _half(blocks, 80) * scales.astype(np.float32),
        _half(blocks, 82) * minima.astype(np.float32),
    )


def _q3_k(blocks: Array) -> Blocks:
    """Sixteen groups, each with a 6-bit scale."""
    count = len(blocks)
    low = _bits(blocks[:, 32:96].reshape(count, 2, 32), 2).reshape(count, 256)
    high = _bits(blocks[:, :32].reshape(count, 1, 32), 1).reshape(count, 256)
    first = _bits(blocks[:, 96:104].reshape(count, 1, 8), 4).reshape(count, 16)
    last = _bits(blocks[:, 104:108].reshape(count, 1, 4), 2).reshape(count, 16)
    scales = _signed(first | last << 4, 32).astype(np.float32)
    return Blocks(_i4(_signed(low | high << 2, 4)), _half(blocks, 108) * scales)


def _group_scales(blocks: Array) -> tuple[Array, Array]:
    """The 6-bit scales and minima of eight groups, from the twelve bytes at offset 4."""
    first, second, third = (blocks[:, at : at + 4] for at in (4, 8, 12))
    scales = np.concatenate([first & 63, third & 15 | first >> 6 << 4], axis=-1)
    minima = np.concatenate([second & 63, third >> 4 | second >> 6 << 4], axis=-1)
    return (
        _half(blocks, 0) * scales.astype(np.float32),
        _half(blocks, 2) * minima.astype(np.float32),
    )


def _q4_k(blocks: Array) -> Blocks:
    """Eight groups, each with a 6-bit scale and a 6-bit minimum."""
    return Blocks(_u4(_nibbles(blocks, 16, 144, 32)), *_group_scales(blocks))


def _q5_k(blocks: Array) -> Blocks:
    """Eight groups, each with a 6-bit scale and a 6-bit minimum."""
    fifth = _bits(blocks[:, 16:48].reshape(len(blocks), 1, 32), 1).reshape(len(blocks), 256)
    codes = _nibbles(blocks, 48, 176, 32) | fifth << 4
    return Blocks(_signed(codes, 0), *_group_scales(blocks))


def _q6_k(blocks: Array) -> Blocks:
    """Sixteen groups, each with an 8-bit scale."""
    count = len(blocks)
    low = _nibbles(blocks, 0, 128, 64)
    high = _bits(blocks[:, 128:192].reshape(count, 2, 32), 2).reshape(count, 256)
    scales = blocks[:, 192:208].view(np.int8).astype(np.float32)
    return Blocks(_signed(low | high << 4, 32), _half(blocks, 208) * scales)


def _iq4_nl(blocks: Array) -> Blocks:
    return Blocks(_uneven(_nibbles(blocks, 2, 18, 16)), _half(blocks, 0))


def _iq4_xs(blocks: Array) -> Blocks:
    """Eight groups, each with a 6-bit scale."""
    count = len(blocks)
    low = _bits(blocks[:, 4:8].reshape(count, 4, 1), 4).reshape(count, 8)
    high = _bits(blocks[:, 2:4].reshape(count, 2, 1), 2).reshape(count, 8)
    scales = _signed(low | high << 4, 32).astype(np.float32)
    return Blocks(_uneven(_nibbles(blocks, 8, 136, 16)), _half(blocks, 0) * scales)


def _uneven(codes: Array) -> Array:
    return np.array(UNEVEN, np.int8)[codes]


FORMATS: Mapping[int, Format] = {
    2: Format("q4_0", 32, 18, _q4_0),
    3: Format("q4_1", 32, 20, _q4_1),
    6: Format("q5_0", 32, 22, _q5_0),
    7: Format("q5_1", 32, 24, _q5_1),
    8: Format("q8_0", 32, 34, _q8_0),
    10: Format("q2_K", 256, 84, _q2_k),
    11: Format("q3_K", 256, 110, _q3_k),
    12: Format("q4_K", 256, 144, _q4_k),
    13: Format("q5_K", 256, 176, _q5_k),
    14: Format("q6_K", 256, 210, _q6_k),
    20: Format("iq4_nl", 32, 18, _iq4_nl),
    23: Format("iq4_xs", 256, 136, _iq4_xs),
}
"""Block formats by GGML's numbers; formats with codebooks of whole groups are missing."""
