"""Packed words: 32-bit words of several small numbers each, and their dot products."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

WORD = np.dtype(np.int32)

NIBBLE, NIBBLES, NIBBLES_A_WORD = 4, 0x0F0F0F0F, 8
"""Bits of a nibble, mask of the low nibble of each byte, and nibbles per word."""


SHORTS = int(np.iinfo(np.int16).min), int(np.iinfo(np.int16).max)
"""The range of 16 bits."""


def word_of(low: Any, high: Any) -> Any:
    """Words of the low 16 bits of two numbers."""
    bits = (np.asarray(low) & 0xFFFF) | (np.asarray(high) & 0xFFFF) << 16
    return bits.astype(np.uint32).view(WORD)[()]


def pair_of(words: Any) -> tuple[Any, Any]:
    """Both 16-bit numbers of words, the low ones first."""
    bits = np.asarray(words, WORD)
    return bits.astype(np.int16).astype(WORD), bits >> 16


def add_pairs(first: Any, second: Any) -> Any:
    """Adds 16-bit numbers of two words, which wrap."""
    both = zip(pair_of(first), pair_of(second), strict=True)
    return word_of(*(one + other for one, other in both))


def sum_pairs(first: Any, second: Any) -> Any:
    """Adds 16-bit numbers of two words, which wrap, and then both results."""
    low, high = pair_of(add_pairs(first, second))
    return (low + high)[()]


@dataclass(frozen=True)
class WordFormat:
    """The packed types of both factors of a dot product, the first number in the lowest bits."""

    name: str
    lhs: np.dtype[Any]
    rhs: np.dtype[Any]
    instructions: int
    """Instructions that accumulate the dot products of two vectors of words."""
    max_rhs: int = 0
    """The largest magnitude of an integer on the right, above which processors saturate."""
    mirror: str = ""
    """The name of the words whose instructions compute the same with swapped factors."""
    in_pairs: bool = False
    """
    Whether totals are words, too: pairs of 16-bit sums that wrap, each of two of four products.

    Processors saturate the sum of two products.
    """

    @property
    def count(self) -> int:
        """Numbers per word."""
        return WORD.itemsize // self.lhs.itemsize

    @property
    def cost(self) -> float:
        """Instructions per number of a vector."""
        return self.instructions / self.count

    @property
    def total(self) -> np.dtype[Any]:
        """The accumulator type."""
        return WORD if self.is_integer else np.dtype(np.float32)

    @property
    def is_integer(self) -> bool:
        """Whether words hold integers."""
        return self.lhs.kind in "iu"

    @property
    def ranges(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """The (minimum, maximum) of each factor."""
        lhs, (least, greatest) = (
            (int(np.iinfo(held).min), int(np.iinfo(held).max)) for held in (self.lhs, self.rhs)
        )
        return lhs, (max(least, -self.max_rhs), min(self.max_rhs, greatest))

    def fit(self, lhs: tuple[int, int], rhs: tuple[int, int]) -> bool:
        """Whether the ranges of both factors fit."""
        return self.is_integer and all(
            low <= least and greatest <= high
            for (least, greatest), (low, high) in zip((lhs, rhs), self.ranges, strict=True)
        )

    def shift(self, lhs: tuple[int, int]) -> int:
        """The offset to add to integers in this range so that the left factor fits."""
        (low, high), (least, greatest) = self.ranges[0], lhs
        return low - least if least < low else min(0, high - greatest)

    def fit_shifted(self, lhs: tuple[int, int], rhs: tuple[int, int]) -> bool:
        """Whether the ranges fit once the left factor is shifted."""
        by = self.shift(lhs) if self.is_integer else 0
        return self.fit((lhs[0] + by, lhs[1] + by), rhs)

    def dot(self, lhs: Any, rhs: Any, total: Any) -> Any:
        """Adds the dot product of two words to `total`; integers wrap."""
        if self.in_pairs:
            return add_pairs(total, self._pairs(lhs, rhs))
        with np.errstate(over="ignore"):
            for index in range(self.count):
                total = total + self.unpacked(lhs, self.lhs, index) * self.unpacked(
                    rhs, self.rhs, index
                )
        return total

    def _pairs(self, lhs: Any, rhs: Any) -> Any:
        """Words of the saturated sums of two neighbouring products."""
        products = [
            self.unpacked(lhs, self.lhs, index) * self.unpacked(rhs, self.rhs, index)
            for index in range(self.count)
        ]
        low, high = (np.clip(products[at] + products[at + 1], *SHORTS) for at in (0, 2))
        return word_of(low, high)

    def unpacked(self, words: Any, held: np.dtype[Any], index: int) -> Any:
        """The numbers at one position of all words, in the accumulator type."""
        bits = np.asarray(words, WORD) >> (index * held.itemsize * 8)
        unpacked = bits.astype(f"u{held.itemsize}").view(held).astype(self.total)
        return unpacked if isinstance(words, np.ndarray) else unpacked[()]


WORDS: Mapping[str, WordFormat] = {
    each.name: each
    for each in (
        WordFormat("i16", np.dtype(np.int16), np.dtype(np.int16), 2, max_rhs=32767),
        WordFormat("u8i8", np.dtype(np.uint8), np.dtype(np.int8), 1, max_rhs=128),
        WordFormat("u8i7", np.dtype(np.uint8), np.dtype(np.int8), 3, max_rhs=64),
        WordFormat(
            "u8i8_i16", np.dtype(np.uint8), np.dtype(np.int8), 2, max_rhs=128, in_pairs=True
        ),
        WordFormat("i8u8", np.dtype(np.int8), np.dtype(np.uint8), 1, max_rhs=255, mirror="u8i8"),
        WordFormat("i8u7", np.dtype(np.int8), np.dtype(np.uint8), 3, max_rhs=127, mirror="u8i7"),
        WordFormat("i8i8", np.dtype(np.int8), np.dtype(np.int8), 1, max_rhs=128),
        WordFormat("i8i8_127", np.dtype(np.int8), np.dtype(np.int8), 4, max_rhs=127),
        WordFormat("bf16", np.dtype(ml_dtypes.bfloat16), np.dtype(ml_dtypes.bfloat16), 1),
    )
}
"""
{name: words} with one or two instructions per multiply-accumulate.

`i16` is PMADDWD, where both factors may not be -32768 at once, and an addition (VNNI has both in
one); `u8i8` is VPDPBUSD of VNNI; `i8i8` is Arm's SDOT; `u8i7` is PMADDUBSW, whose 16-bit sums of
two products would overflow for larger numbers. `u8i8_i16` is PMADDUBSW and an addition of 16 bits,
for a few words of weights that are known not to overflow; their totals are widened together.
`i8u8` and `i8u7` have the sign on the left, for sub-byte weights without one. `i8i8_127` is PSIGNB,
which moves the sign of the left factor to the right one, and PMADDUBSW: two products of 128 and 127
fit 16 bits. It takes as long as `i16`, and half of the bytes. `bf16` is VDPBF16PS of AVX512-BF16,
which flushes numbers below 2 ** -126 to zero.
"""

IN_PAIRS = WORDS["u8i8_i16"]
"""The words whose totals have 16 bits."""
