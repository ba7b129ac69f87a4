"""Words of 32 bits that hold several small numbers each, and the sums of their products."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

WORD = np.dtype(np.int32)

NIBBLE, NIBBLES, NIBBLES_A_WORD = 4, 0x0F0F0F0F, 8
"""The bits of a nibble, the lower nibble of each byte of a word, and how many a word has."""


@dataclass(frozen=True)
class Words:
    """What the words of both factors of a product hold, the first number in the lowest bits."""

    name: str
    lhs: np.dtype[Any]
    rhs: np.dtype[Any]
    instructions: int
    """How many add the products of two vectors of words to their sums."""
    most: int = 0
    """The largest size of an integer on the right: there, processors saturate beyond it."""
    mirrors: str = ""
    """Those whose instructions do it as well, with the factors exchanged."""

    @property
    def count(self) -> int:
        """How many numbers a word holds."""
        return WORD.itemsize // self.lhs.itemsize

    @property
    def cost(self) -> float:
        """Instructions for each number of a vector."""
        return self.instructions / self.count

    @property
    def total(self) -> np.dtype[Any]:
        """The type of the sums of products."""
        return WORD if self.is_whole else np.dtype(np.float32)

    @property
    def is_whole(self) -> bool:
        """Whether words hold integers."""
        return self.lhs.kind in "iu"

    @property
    def ends(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """The least and the greatest integer that each factor may have."""
        lhs, (least, greatest) = (
            (int(np.iinfo(held).min), int(np.iinfo(held).max)) for held in (self.lhs, self.rhs)
        )
        return lhs, (max(least, -self.most), min(self.most, greatest))

    def hold(self, lhs: tuple[int, int], rhs: tuple[int, int]) -> bool:
        """Whether all integers from the least to the greatest of each factor fit."""
        return self.is_whole and all(
            low <= least and greatest <= high
            for (least, greatest), (low, high) in zip((lhs, rhs), self.ends, strict=True)
        )

    def shift(self, lhs: tuple[int, int]) -> int:
        """What is added to integers between these ends, so that the left factor can hold them."""
        (low, high), (least, greatest) = self.ends[0], lhs
        return low - least if least < low else min(0, high - greatest)

    def hold_shifted(self, lhs: tuple[int, int], rhs: tuple[int, int]) -> bool:
        """The same once the left factor is shifted."""
        by = self.shift(lhs) if self.is_whole else 0
        return self.hold((lhs[0] + by, lhs[1] + by), rhs)

    def dot(self, lhs: Any, rhs: Any, total: Any) -> Any:
        """`total`, to which the products of what two words hold are added; integers wrap."""
        with np.errstate(over="ignore"):
            for place in range(self.count):
                total = total + self.part(lhs, self.lhs, place) * self.part(rhs, self.rhs, place)
        return total

    def part(self, words: Any, held: np.dtype[Any], place: int) -> Any:
        """What stands at one place of all words, in the type of the sums."""
        bits = np.asarray(words, WORD) >> (place * held.itemsize * 8)
        part = bits.astype(f"u{held.itemsize}").view(held).astype(self.total)
        return part if isinstance(words, np.ndarray) else part[()]


WORDS: Mapping[str, Words] = {
    each.name: each
    for each in (
        Words("i16", np.dtype(np.int16), np.dtype(np.int16), 2, most=32767),
        Words("u8i8", np.dtype(np.uint8), np.dtype(np.int8), 1, most=128),
        Words("u8i7", np.dtype(np.uint8), np.dtype(np.int8), 3, most=64),
        Words("i8u8", np.dtype(np.int8), np.dtype(np.uint8), 1, most=255, mirrors="u8i8"),
        Words("i8u7", np.dtype(np.int8), np.dtype(np.uint8), 3, most=127, mirrors="u8i7"),
        Words("i8i8", np.dtype(np.int8), np.dtype(np.int8), 1, most=128),
        Words("bf16", np.dtype(ml_dtypes.bfloat16), np.dtype(ml_dtypes.bfloat16), 1),
    )
}
"""
By name: what processors multiply and add in an instruction or two.

`i16` is PMADDWD, where both factors may not be -32768 at once, and an addition (VNNI has both in
one); `u8i8` is VPDPBUSD of VNNI; `i8i8` is Arm's SDOT; `u8i7` is PMADDUBSW, whose
sums of two products have 16 bits that do not hold those of larger numbers. `i8u8` and `i8u7` have
the sign on the left: weights of few bits have none. `bf16` is VDPBF16PS of AVX512-BF16, which takes
numbers below 2 ** -126 for zeros.
"""
