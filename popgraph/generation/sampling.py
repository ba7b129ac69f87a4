"""Sampling: draws the next token from its logits, and ends a text at stop sequences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from popgraph.support.arrays import Array
from popgraph.support.errors import RunError


@dataclass(frozen=True)
class Sampling:
    """
    The distribution that tokens are drawn from, by the names of transformers' `generate`.

    Temperature 0 is greedy: the token with the largest logit, of equal ones the first.
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        _check("temperature", self.temperature, self.temperature >= 0, "a number from 0 on")
        k, p = self.top_k, self.top_p
        _check("top_k", k, k is None or k >= 1, "an integer from 1 on, or None for all tokens")
        _check("top_p", p, p is None or 0 < p <= 1, "above 0 and at most 1")
        penalty = self.repetition_penalty
        _check("repetition_penalty", penalty, 0 < penalty < np.inf, "a number above 0")

    def token(self, logits: Array, seen: Sequence[int], generator: np.random.Generator) -> int:
        """The next token; `seen` are those so far, to which the penalty applies."""
        scores = np.asarray(logits, np.float64)
        highest = scores.max()
        if not np.isfinite(highest):
            raise RunError(
                f"the largest logit is {highest}: no token can be chosen",
                hint="look for overflow in the model, such as f16 activations",
            )
        if self.repetition_penalty != 1:
            scores = penalized(scores, seen, self.repetition_penalty)
        if self.temperature == 0:
            return int(scores.argmax())
        sums = np.cumsum(self.probabilities(scores))
        return int(np.searchsorted(sums, generator.random() * sums[-1], side="right"))

    def probabilities(self, scores: Array) -> Array:
        """The distribution to draw from: softmax(scores / temperature) of the tokens kept."""
        with np.errstate(over="ignore"):  # A tiny temperature: -inf is probability 0.
            found: Array = np.exp((scores - scores.max()) / self.temperature)
        found /= found.sum()
        if self.top_k is not None:
            found = only(found, ranked(found)[: self.top_k])
        if self.top_p is not None and self.top_p < 1:
            order = ranked(found)
            # Rounded sums may stay below p, then all are kept.
            before = np.cumsum(found[order]) - found[order]
            found = only(found, order[before < self.top_p])
        return found


def ranked(probabilities: Array) -> Array:
    """Tokens from the most to the least likely; equal ones in the order of their numbers."""
    return np.argsort(-probabilities, kind="stable")


def only(probabilities: Array, tokens: Array) -> Array:
    """The distribution of some tokens, which sums to 1 again."""
    kept = np.zeros_like(probabilities)
    kept[tokens] = probabilities[tokens]
    kept /= kept.sum()
    return kept


def penalized(scores: Array, seen: Sequence[int], penalty: float) -> Array:
    """Scores of tokens seen are divided by the penalty, negative ones multiplied (CTRL, 2019)."""
    found: Array = scores.copy()
    tokens = np.unique(np.asarray(seen, np.int64))
    chosen = found[tokens]
    found[tokens] = np.where(chosen < 0, chosen * penalty, chosen / penalty)
    return found


def _check(name: str, value: object, fits: bool, expected: str) -> None:
    if not fits:
        raise RunError(f"{name} is {value}", "generate", f"it must be {expected}")


@dataclass(frozen=True)
class Stops:
    """Sequences of tokens after which a text ends; they are its last tokens."""

    sequences: tuple[tuple[int, ...], ...] = ()

    @staticmethod
    def of(stop: Any) -> Stops:
        """A token, or a list whose items are tokens and sequences of tokens."""
        items = stop if isinstance(stop, Sequence | np.ndarray) else [] if stop is None else [stop]
        arrays = [np.asarray(item) for item in items]
        for item, array in zip(items, arrays, strict=True):
            if array.dtype.kind not in "iu" or not array.size or array.ndim > 1:
                raise RunError(
                    f"{item!r} is neither a token nor a sequence of tokens",
                    "stop",
                    "stop=2, or a list such as stop=[2, [13, 13]]",
                )
        return Stops(tuple(tuple(map(int, array.reshape(-1))) for array in arrays))

    def has_ended(self, tokens: Sequence[int]) -> bool:
        """Whether new tokens end with one of the sequences."""
        return any(tuple(tokens[-len(one) :]) == one for one in self.sequences)
