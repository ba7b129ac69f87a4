"""Threefry: a counter-based random number generator."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from popgraph.support.arrays import Array

ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
PARITY = 0x1BD11BDA
ROUNDS = 20

_LOW = np.uint64(0xFFFFFFFF)
_WORD = np.uint64(32)


def threefry(key: Array, counter: Array) -> Array:
    """
    Threefry-2x32 with 20 rounds: for each key, a pseudorandom permutation of all counters.

    A 64-bit number is a pair of words, the low one first. Salmon, Moraes, Dror, Shaw: "Parallel
    random numbers: as easy as 1, 2, 3", 2011.
    """
    with np.errstate(over="ignore"):
        left, right = _mixed(_words(key), _words(counter))
    return np.asarray(left.astype(np.uint64) | right.astype(np.uint64) << _WORD)


Words = NDArray[np.uint32]


def _words(number: Array) -> tuple[Words, Words]:
    whole = np.asarray(number).astype(np.uint64)
    return (whole & _LOW).astype(np.uint32), (whole >> _WORD).astype(np.uint32)


def _mixed(key: tuple[Words, Words], counter: tuple[Words, Words]) -> tuple[Words, Words]:
    schedule = (*key, key[0] ^ key[1] ^ np.uint32(PARITY))
    left, right = counter[0] + schedule[0], counter[1] + schedule[1]
    for done in range(ROUNDS):
        bits = ROTATIONS[done % len(ROTATIONS)]
        left = left + right
        right = (right << np.uint32(bits) | right >> np.uint32(32 - bits)) ^ left
        if done % 4 == 3:
            number = done // 4 + 1
            left = left + schedule[number % 3]
            right = right + schedule[(number + 1) % 3] + np.uint32(number)
    return left, right
