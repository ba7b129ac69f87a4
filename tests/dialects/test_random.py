"""Tests random numbers: the published generator, and independent sequences."""

from __future__ import annotations

import itertools
import math
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdsl.dialects.builtin import f32, f64
from xdsl.ir import Attribute

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.random import uniform
from popgraph.support.arrays import Array
from popgraph.support.threefry import threefry
from tests.dialects.graphcore_run import Sample, build

MASK = 2**32 - 1
Pair: TypeAlias = tuple[int, int]
PUBLISHED = (
    ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
    ((MASK, MASK), (MASK, MASK), (0x1CB996FC, 0xBB002BE7)),
    ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
)
"""Key, counter and result of threefry2x32 with 20 rounds, as its authors publish them."""

COUNT = 4096
KOLMOGOROV = 3.5
"""Bound on the Kolmogorov-Smirnov distance, in units of 1 / sqrt(n): exceeded once in 10^10."""
DEVIATIONS = 7.0
"""Bound in standard deviations: exceeded once in 10^11, because a long fuzz draws millions."""
LARGE = st.integers(0, 2**64 - 1)
SMALL = st.integers(0, 3) | st.integers(0, 2**62)


def sequence(
    seed: int, step: int, stream: int, dtype: Attribute = f64, count: int = COUNT
) -> Array:
    state = np.array([seed, step], np.uint64).astype(np.int64)
    return uniform(state, stream, (count,), dtype)


def distance(numbers: Array) -> float:
    """The Kolmogorov-Smirnov distance from the uniform distribution on [0, 1), times sqrt(n)."""
    ordered, ranks = np.sort(numbers), np.arange(len(numbers) + 1) / len(numbers)
    apart = np.maximum(ranks[1:] - ordered, ordered - ranks[:-1]).max()
    return float(apart * math.sqrt(len(numbers)))


def correlation(one: Array, other: Array) -> float:
    """The correlation, in standard deviations of that of independent numbers."""
    return float(np.corrcoef(one, other)[0, 1] * math.sqrt(len(one)))


def number(low: int, high: int) -> Array:
    return np.array(low | high << 32, np.uint64)


@pytest.mark.parametrize(("key", "counter", "expected"), PUBLISHED)
def test_threefry_is_the_published_generator(key: Pair, counter: Pair, expected: Pair) -> None:
    assert threefry(number(*key), number(*counter)) == number(*expected)


@given(LARGE, LARGE, st.integers(0, 2**62))
def test_uniform_numbers_are_the_leading_bits_of_words(seed: int, step: int, stream: int) -> None:
    key = threefry(threefry(np.array(seed), np.array(step)), np.array(stream))
    words = [int(threefry(key, np.array(place))) for place in range(3)]
    leading = [(word & MASK) << 32 | word >> 32 for word in words]
    singles = sequence(seed, step, stream, f32, 3)
    assert singles.tolist() == [(word >> 40) / 2**24 for word in leading]
    doubles = sequence(seed, step, stream, f64, 3)
    assert doubles.tolist() == [(word >> 11) / 2**53 for word in leading]


@given(LARGE, SMALL, SMALL)
def test_fuzz_numbers_are_uniform(seed: int, step: int, stream: int) -> None:
    for dtype in (f32, f64):
        numbers = sequence(seed, step, stream, dtype).astype(np.float64)
        assert numbers.min() >= 0 and numbers.max() < 1
        assert distance(numbers) < KOLMOGOROV
        for power in (1, 2, 3, 4):  # E[x^p] = 1 / (p + 1), E[x^2p] = 1 / (2p + 1)
            spread = math.sqrt((1 / (2 * power + 1) - 1 / (power + 1) ** 2) / COUNT)
            assert abs((numbers**power).mean() - 1 / (power + 1)) < DEVIATIONS * spread
        for lag in (1, 2, 4, 7, 64):
            assert abs(correlation(numbers[lag:], numbers[:-lag])) < DEVIATIONS
        bits = (numbers * 2**24).astype(np.int64)[:, None] >> np.arange(24) & 1
        assert np.abs(bits.mean(0) - 0.5).max() < DEVIATIONS * 0.5 / math.sqrt(COUNT)


@given(SMALL, SMALL, SMALL)
def test_fuzz_sequences_are_independent(seed: int, step: int, stream: int) -> None:
    """Sequences of adjacent seeds, steps and streams, also with equal sums of two of them."""
    moves = [*itertools.product((0, 1), repeat=3), (1, -1, 0), (0, 1, -1)]
    places = {(max(seed + a, 0), max(step + b, 0), max(stream + c, 0)) for a, b, c in moves}
    sequences = [sequence(*place) for place in sorted(places)]
    for one, other in itertools.combinations(sequences, 2):
        assert len(np.intersect1d(one, other)) == 0
        for lag in (0, 1, 2):
            moved = other[: len(other) - lag]
            assert abs(correlation(one[lag:], moved)) < DEVIATIONS
            assert distance((one[lag:] - moved) % 1) < KOLMOGOROV


def test_no_sequence_begins_with_0() -> None:
    """Not even for seed, step and stream 0."""
    firsts = [
        sequence(seed, step, stream, f32, 1)[0]
        for seed, step, stream in itertools.product((0, 1, 2), repeat=3)
    ]
    assert min(firsts) > 0 and len(set(firsts)) == 27


@given(SMALL, SMALL)
def test_an_element_does_not_depend_on_the_shape(seed: int, step: int) -> None:
    state = np.array([seed, step], np.uint64).astype(np.int64)
    flat = sequence(seed, step, 3, f32, 24)
    np.testing.assert_array_equal(uniform(state, 3, (2, 3, 4), f32).ravel(), flat)
    np.testing.assert_array_equal(uniform(state, 3, (5,), f32), flat[:5])


def test_dropout_masks_of_seeds_steps_and_streams_are_independent() -> None:
    masks = []
    for seed, step, stream in itertools.product((0, 1), (0, 1), (0, 1)):
        x = np.ones(COUNT, np.float32)
        properties = {"ratio": 0.5, "stream": stream}
        built = build(Sample(gc.DropoutOp, [x, np.array([seed, step])], properties))
        masks.append(built.op.evaluate(*built.arrays)[1].astype(np.float64))
    for one, other in itertools.combinations(masks, 2):
        assert abs(correlation(one, other)) < DEVIATIONS
