"""Constant weights whose products can be summed in 16 bits, a few words at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from popgraph.support.arrays import Array
from popgraph.support.tuning import Tuning
from popgraph.support.words import IN_PAIRS, SHORTS, WORD, word_of

MOST = IN_PAIRS.ranges[0][1]
"""The largest left factor."""
LOW, HIGH = (abs(end) // MOST for end in SHORTS)
"""The largest sums of the sizes of negative and of positive weights whose products fit 16 bits."""
LIMITS = np.array([[HIGH], [LOW]], np.int16)
"""The same, in the order of `_Lanes._sizes`."""
SPAN = (SHORTS[1] - SHORTS[0]) // MOST
"""The largest sum of the sizes of weights whose products fit 16 bits, with an offset."""


class Way(NamedTuple):
    """The means by which sums may fit 16 bits."""

    offsets: bool = False
    """Sums of a block start at offsets."""
    moves: bool = False
    """Terms are exchanged."""


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
    offset: Array | None
    """Words of both offsets of each block: [blocks, others...]; None: the sums fit without."""
    total: Array
    """The sum of all offsets over the blocks: [others...]."""
    order: Array | None = None
    """An order of the terms in which the sums fit; None: they fit as they are."""

    @staticmethod
    def of(weights: Array, tuning: Tuning, ways: Sequence[Way]) -> PairSums | None:
        """
        The cheapest blocks for weights [terms, others...]; None if 32-bit sums are as fast.

        Never if two neighbouring products could exceed 16 bits, which saturate.
        """
        words = -(-len(weights) // IN_PAIRS.count)
        tried = sorted((_cost(words, block), block) for block in range(2, tuning.most_paired + 1))
        for cost, block in tried:
            if cost > tuning.paired_cost:
                return None
            lanes = _Lanes(weights, block)
            found = next(filter(None, map(lanes.sums, ways)), None)
            if found is not None:
                return found
        return None


class _Lanes:
    """
    The weights whose products are added to one 16-bit sum: [lanes, pairs, 2, others].

    Two lanes share the words of a block: the first has the first pair of each word.
    """

    def __init__(self, weights: Array, block: int) -> None:
        self._terms, self._block, self._others = len(weights), block, weights.shape[1:]
        size = IN_PAIRS.count * block
        places = np.arange(-(-self._terms // size) * size)
        self._places = places.reshape(-1, block, 2, 2).swapaxes(1, 2).reshape(-1, block, 2)
        """The term at each place of a lane; zeros follow the last term."""
        flat = weights.reshape(self._terms, -1).astype(np.int16)
        self._sizes = _parts(_padded(flat, places.size - self._terms))
        """The sizes of positive weights, and of negative ones."""

    def sums(self, way: Way) -> PairSums | None:
        """The blocks, if all sums fit in this way."""
        places = self._places.copy()
        wrong = np.array([self._excess(lane, way) for lane in places])
        if np.any(wrong) and not (way.moves and self._exchange(places, wrong, way)):
            return None
        high, low = self._sizes[:, places].sum(axis=(2, 3))
        offset = (MOST * (low - high).astype(np.int64) // 2).reshape(-1, 2, *self._others)
        words = word_of(*np.moveaxis(offset, 1, 0)) if way.offsets else None
        filled = -(-self._terms // IN_PAIRS.count)
        order = None
        if not np.array_equal(places, self._places):
            order = places.reshape(-1, 2, self._block, 2).swapaxes(1, 2).reshape(-1)[: self._terms]
        # Sums over the blocks and both halves; convolutions also sum over the kernel.
        total = offset.sum(axis=(0, 1)).astype(WORD)
        return PairSums(self._block, -filled % self._block, words, total, order)

    def _exchange(self, places: Array, wrong: Array, way: Way) -> bool:
        """
        Exchanges terms of lanes whose sums do not fit; False if no exchange improves the worst one.
        """
        terms, at, failed = np.argwhere(places < self._terms), 0, 0
        while np.any(wrong) and not np.all(wrong) and failed < self._terms:
            if not failed:
                lane = int(wrong.argmax())
                place = lane, *self._worst(places[lane])
            other = tuple(terms[at % self._terms])
            at, failed, both = at + 1, failed + 1, [lane, other[0]]
            if other[0] == lane or places[place] >= self._terms:
                continue
            places[place], places[other] = places[other], places[place]
            before, after = wrong[both].sum(), [self._excess(places[lane], way)]
            # Most exchanges fail in the first lane already.
            if after[0] < before:
                after.append(self._excess(places[other[0]], way))
            if len(after) == 2 and sum(after) < before:
                wrong[both], failed = after, 0
            else:
                places[place], places[other] = places[other], places[place]
        return not np.any(wrong)

    def _pairs(self, lane: Array) -> Array:
        """The sums of the sizes of each pair: [signs, pairs, others]."""
        pairs: Array = self._sizes[:, lane[:, 0]] + self._sizes[:, lane[:, 1]]
        return pairs

    def _excess(self, lane: Array, way: Way) -> int:
        """The amount by which sums of neighbours saturate, and the sum exceeds 16 bits."""
        pairs = self._pairs(lane)
        sums = pairs.sum(axis=1, dtype=np.int16)
        sums = sums[0] + sums[1] - SPAN if way.offsets else sums - LIMITS
        over = pairs - LIMITS[:, None]
        return sum(int(part[part > 0].sum(dtype=np.int64)) for part in (over, sums))

    def _worst(self, lane: Array) -> tuple[int, int]:
        """The place of the largest weight where the sum of a pair, or of all, is largest."""
        pairs = self._pairs(lane)
        sums = pairs.sum(axis=1)
        if pairs.max() > HIGH:
            sums = pairs.max(axis=1)
            sign = int(sums[0].max() <= HIGH)
        else:
            sign = int(sums.max(axis=1).argmax())
        sizes = self._sizes[sign, lane, sums[sign].argmax()]
        pair, half = np.unravel_index(int(sizes.argmax()), sizes.shape)
        return int(pair), int(half)


def _parts(weights: Array) -> Array:
    """The positive weights and the sizes of the negative ones, with zeros in between."""
    parts: Array = np.maximum(np.stack([weights, -weights]), 0)
    return parts


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
