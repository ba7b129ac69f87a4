"""Words of 32 bits that hold several small integers each, and the sums of their products."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

WORD = np.dtype(np.int32)

NIBBLE, NIBBLES, NIBBLES_A_WORD = 4, 0x0F0F0F0F, 8
"""The bits of a nibble, the lower nibble of each byte of a word, and how many a word has."""


@dataclass(frozen=True)
class Words:
    """What the words of both factors of a product hold, the first integer in the lowest bits."""

    name: str
    lhs: np.dtype[Any]
    rhs: np.dtype[Any]
    most: int
    """The largest size of a number on the right: there, processors saturate beyond it."""
    instructions: int
    """How many add the products of two vectors of words to their sums."""
    mirrors: str = ""
    """Those whose instructions do it as well, with the factors exchanged."""

    @property
    def count(self) -> int:
        """How many integers a word holds."""
        return WORD.itemsize // self.lhs.itemsize

    @property
    def ends(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """The least and the greatest number that each factor may have."""
        (low, high), (least, greatest) = (
            (int(np.iinfo(held).min), int(np.iinfo(held).max)) for held in (self.lhs, self.rhs)
        )
        both_signed = low < 0 and least < 0
        lhs = (max(low, -high) if both_signed else low), high
        return lhs, (max(least, -self.most), min(self.most, greatest))

    def hold(self, lhs: tuple[int, int], rhs: tuple[int, int]) -> bool:
        """Whether all numbers from the least to the greatest of each factor fit."""
        return all(
            low <= least and greatest <= high
            for (least, greatest), (low, high) in zip((lhs, rhs), self.ends, strict=True)
        )

    def dot(self, lhs: Any, rhs: Any, total: Any) -> Any:
        """`total`, to which the products of what two words hold are added; sums wrap."""
        with np.errstate(over="ignore"):
            for place in range(self.count):
                total = total + self.part(lhs, self.lhs, place) * self.part(rhs, self.rhs, place)
        return total

    def part(self, words: Any, held: np.dtype[Any], place: int) -> Any:
        """What stands at one place of all words, as integers of a word's size."""
        bits = np.asarray(words, WORD) >> (place * held.itemsize * 8)
        part = bits.astype(held).astype(WORD)
        return part if isinstance(words, np.ndarray) else part[()]


WORDS: Mapping[str, Words] = {
    each.name: each
    for each in (
        Words("i16", np.dtype(np.int16), np.dtype(np.int16), 32767, 2),
        Words("u8i8", np.dtype(np.uint8), np.dtype(np.int8), 128, 1),
        Words("u8i7", np.dtype(np.uint8), np.dtype(np.int8), 64, 3),
        Words("i8u8", np.dtype(np.int8), np.dtype(np.uint8), 255, 1, mirrors="u8i8"),
        Words("i8u7", np.dtype(np.int8), np.dtype(np.uint8), 127, 3, mirrors="u8i7"),
    )
}
"""
By name: what processors multiply and add in an instruction or two.

`i16` is PMADDWD, where both factors may not be -32768 at once, and an addition (VNNI has both in
one); `u8i8` is VPDPBUSD of VNNI; `u8i7` is PMADDUBSW, whose sums of two products have 16 bits that
do not hold those of larger numbers. `i8u8` and `i8u7` have the sign on the left: weights of few
bits have none.
"""
