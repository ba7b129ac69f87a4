"""Property-based tests of sampling and of stop sequences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from popgraph.generation.sampling import Sampling, Stops, penalized

LOGITS = st.lists(
    st.one_of(st.floats(-30, 30), st.integers(-2, 2).map(float)), min_size=1, max_size=12
).map(np.array)
"""Integers make ties frequent."""
TEMPERATURES = st.floats(0.05, 5)


@given(LOGITS, TEMPERATURES, st.floats(0.01, 1))
def test_top_p_keeps_the_smallest_set_whose_mass_reaches_p(
    logits: np.ndarray, temperature: float, p: float
) -> None:
    whole = Sampling(temperature).probabilities(logits)
    found = Sampling(temperature, top_p=p).probabilities(logits)
    kept = found > 0
    assert np.isclose(found.sum(), 1)
    largest = np.cumsum(np.sort(whole)[::-1])
    count = kept.sum()
    assume(np.abs(largest - p).min() > 1e-9)  # Otherwise rounding decides.
    assert largest[count - 1] >= p or count == (whole > 0).sum()
    assert count == 1 or largest[count - 2] < p
    assert whole[kept].min() >= whole[~kept].max(initial=0)
    assert np.allclose(found[kept], whole[kept] / whole[kept].sum())


@given(LOGITS, TEMPERATURES, st.integers(1, 20))
def test_top_k_keeps_the_k_most_likely(logits: np.ndarray, temperature: float, k: int) -> None:
    whole = Sampling(temperature).probabilities(logits)
    kept = Sampling(temperature, top_k=k).probabilities(logits) > 0
    assert kept.sum() == min(k, (whole > 0).sum())
    assert whole[kept].min() >= whole[~kept].max(initial=0)


@given(LOGITS, TEMPERATURES, st.integers(0, 99))
def test_a_single_candidate_is_the_greedy_token(
    logits: np.ndarray, temperature: float, seed: int
) -> None:
    greedy = Sampling().token(logits, [], np.random.default_rng(seed))
    assert greedy == logits.argmax()
    for sampling in (Sampling(temperature, top_k=1), Sampling(temperature, top_p=1e-9)):
        assert sampling.token(logits, [], np.random.default_rng(seed)) == greedy


@given(LOGITS, st.integers(0, 99))
def test_a_small_temperature_is_greedy(logits: np.ndarray, seed: int) -> None:
    found = Sampling(1e-300).token(logits, [], np.random.default_rng(seed))
    assert logits[found] == logits.max()


@given(LOGITS, TEMPERATURES, st.integers(0, 99))
def test_only_tokens_with_a_probability_are_drawn(
    logits: np.ndarray, temperature: float, seed: int
) -> None:
    logits = np.concatenate([[-np.inf], logits, [-np.inf]])
    found = Sampling(temperature).token(logits, [], np.random.default_rng(seed))
    assert 0 < found < len(logits) - 1


def test_token_frequencies_follow_probabilities() -> None:
    probabilities = np.array([0.5, 0.3, 0.2])
    random = np.random.default_rng(0)
    drawn = [Sampling(1.0).token(np.log(probabilities), [], random) for _ in range(5000)]
    assert np.allclose(np.bincount(drawn) / 5000, probabilities, atol=0.03)


@given(LOGITS, st.floats(1, 3), st.data())
def test_a_penalty_lowers_the_tokens_seen(
    logits: np.ndarray, penalty: float, data: st.DataObject
) -> None:
    seen = data.draw(st.lists(st.integers(0, len(logits) - 1)))
    found = penalized(logits, seen, penalty)
    for token, (before, after) in enumerate(zip(logits, found, strict=True)):
        assert after <= before if token in seen else after == before


TOKENS = st.lists(st.integers(0, 2), max_size=12)


@given(TOKENS, st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=3), max_size=3))
def test_a_text_ends_with_the_first_stop_sequence(tokens: list[int], stop: list) -> None:  # type: ignore[type-arg]
    stops = Stops.of(stop)
    ends = [at for at in range(1, len(tokens) + 1) if stops.has_ended(tokens[:at])]
    text = "".join(map(str, tokens))
    places = [text.find("".join(map(str, one))) + len(one) for one in stop]
    found = [end for end, one in zip(places, stop, strict=True) if end >= len(one)]
    assert ends[:1] == ([min(found)] if found else [])


@pytest.mark.parametrize("how", [{}, {"top_k": 3}, {"top_p": 0.7}, {"top_k": 4, "top_p": 0.9}])
def test_token_frequencies_are_those_of_transformers(how: dict[str, Any]) -> None:
    """
    The oracle warps logits as transformers does: temperature, then top-k, then top-p on the rest.
    """
    logits, temperature, count = np.array([2.0, 1.0, 0.5, 0.0, -1.0, -3.0]), 0.8, 20_000
    scores = logits / temperature
    order = np.argsort(-scores)
    if "top_k" in how:
        scores[order[how["top_k"] :]] = -np.inf
    wanted = np.exp(scores) / np.exp(scores).sum()
    if "top_p" in how:
        cut = np.cumsum(wanted[order]) - wanted[order] >= how["top_p"]
        wanted[order[cut]] = 0
        wanted /= wanted.sum()
    random = np.random.default_rng(7)
    drawn = [Sampling(temperature, **how).token(logits, [], random) for _ in range(count)]
    counts = np.bincount(drawn, minlength=len(logits))
    deviation = np.sqrt(count * wanted * (1 - wanted))
    assert (np.abs(counts - count * wanted) <= 5 * deviation).all()
