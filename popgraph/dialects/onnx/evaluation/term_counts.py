"""Evaluates TfIdfVectorizer: counts the terms of a vocabulary."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from popgraph.dialects.onnx.evaluation.given import Given, holds_text, texts
from popgraph.dialects.onnx.evaluation.registry import computes
from popgraph.support.arrays import Array


@computes("TfIdfVectorizer")
def term_counts(given: Given, x: Array) -> Array:
    """
    Counts each n-gram of the pool in each row, and weights the counts as the mode says.

    An n-gram is n adjacent words, or every (s + 1)-th word for all s up to `max_skip_count`.
    Weights follow the order of the pool, as in onnxruntime; ONNX's reference takes them by column.
    """
    columns, pool = given.many("ngram_indexes"), dict(_pool(given))
    counts = np.zeros((*x.shape[:-1], max(columns, default=-1) + 1), np.float32)
    words = texts(x) if holds_text(x) else x
    for row, counted in zip(
        np.reshape(words, (-1, x.shape[-1])).tolist(),
        counts.reshape(-1, counts.shape[-1]),
        strict=True,
    ):
        for gram in _grams(given, row):
            if gram in pool:
                counted[columns[pool[gram]]] += 1
    if given["mode"] == "TF":
        return counts
    if given["mode"] == "IDF":
        counts = np.minimum(counts, 1)
    weights = np.ones(counts.shape[-1], np.float32)
    for place, weight in enumerate(given.many("weights")):
        weights[columns[place]] = weight
    return counts * weights


def _pool(given: Given) -> Iterator[tuple[tuple[object, ...], int]]:
    """The n-grams, each with its number."""
    _, pool = given.first("pool_strings", "pool_int64s")
    starts, number = given.many("ngram_counts"), 0
    for size, (start, end) in enumerate(zip(starts, [*starts[1:], len(pool)], strict=True), 1):
        for place in range(start, end - size + 1, size):
            yield tuple(pool[place : place + size]), number
            number += 1


def _grams(given: Given, row: list[object]) -> Iterator[tuple[object, ...]]:
    """All n-grams of a row; a single word skips nothing."""
    for size in range(given["min_gram_length"], given["max_gram_length"] + 1):
        for step in range(1, 2 + (given["max_skip_count"] if size > 1 else 0)):
            for start in range(len(row) - (size - 1) * step):
                yield tuple(row[start : start + size * step : step])
