"""Constant weights whose products can be summed in 16 bits, a few words at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from popgraph.support.arrays import Array
from popgraph.support.tuning import Tuning
from popgraph.support.words import IN_PAIRS, SHORTS, WORD, word_of

MOST = IN_PAIRS.ranges[0][1]
"""The largest left factor."""
SPAN = SHORTS[1] - SHORTS[0]
"""The largest difference of two numbers of 16 bits."""


@dataclass(frozen=True)
class PairSums:
    """
    Blocks of words of weights, and what keeps 16-bit sums of their products in range.

    Sums of a block with bytes are between -255 N and 255 P: P is the sum of its positive weights, N
    that of its negative ones. They wrap, but as they differ by less than 2^16, they fit once an
    offset of 255 (N - P) / 2 is added.
    """

    block: int
    """The words of a block."""
    padding: int
    """Words of zeros after the last weights, so that blocks are full."""
    offset: Array
    """Words of both offsets of each block: [blocks, others...]."""
    total: Array
    """The sum of all offsets over the blocks: [others...]."""

    @staticmethod
    def of(weights: Array, tuning: Tuning) -> PairSums | None:
        """
        The cheapest blocks for weights [terms, others...]; None if 32-bit sums are as fast.

        Never if two neighbouring products could exceed 16 bits, which saturate.
        """
        missing = -len(weights) % IN_PAIRS.count
        full = _padded(weights.astype(np.int64), missing)
        pairs = full.reshape(-1, 2, 2, *full.shape[1:])
        high, low = (MOST * part.sum(axis=2) for part in _parts(pairs))
        if high.max() > SHORTS[1] or low.max() > -SHORTS[0]:
            return None
        words = len(high)
        tried = sorted((_cost(words, block), block) for block in range(2, tuning.most_paired + 1))
        for cost, block in tried:
            if cost > tuning.paired_cost:
                return None
            found = _in_blocks(high, low, block)
            if found is not None:
                return found
        return None


def _in_blocks(high: Array, low: Array, block: int) -> PairSums | None:
    """Blocks of some words, given the largest sums of each word; None if 16 bits are too few."""
    missing = -len(high) % block
    above, below = (
        _padded(part, missing).reshape(-1, block, *part.shape[1:]).sum(axis=1)
        for part in (high, low)
    )
    if (above + below).max() > SPAN:
        return None
    offset = (below - above) // 2
    words = word_of(*np.moveaxis(offset, 1, 0))
    # Sums over the blocks and both halves; convolutions also sum over the kernel.
    return PairSums(block, missing, words, offset.sum(axis=(0, 1)).astype(WORD))


def _parts(weights: Array) -> tuple[Array, Array]:
    """The positive weights and the sizes of the negative ones, with zeros in between."""
    return np.maximum(weights, 0), np.maximum(-weights, 0)


def _padded(array: Array, missing: int) -> Array:
    """Zeros after the last row."""
    return np.concatenate([array, np.zeros((missing, *array.shape[1:]), array.dtype)])


def _cost(words: int, block: int) -> float:
    """
    Vector operations per word of weights, as a share of those of 32-bit sums (`u8i7`).

    A word takes a product and an addition, and a block another two. Processors multiply in two of
    four units, so a product counts as two operations.
    """
    padded = -(-words // block) * block
    return 2 * (padded + padded // block) / (4 * words)
