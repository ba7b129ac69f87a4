"""Evaluates TfIdfVectorizer: counts the terms of a vocabulary."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from popgraph.dialects.onnx.host_values import holds_text, texts
from popgraph.dialects.onnx.view import NodeView
from popgraph.operators.record import computes
from popgraph.support.arrays import Array


@computes("TfIdfVectorizer")
def term_counts(node: NodeView, x: Array) -> Array:
    """
    Counts each n-gram of the pool in each row, and weights the counts as the mode says.

    An n-gram is n adjacent words, or every (s + 1)-th word for all s up to `max_skip_count`.
    Weights follow the order of the pool, as in onnxruntime; ONNX's reference takes them by column.
    """
    columns, pool = node.listed("ngram_indexes"), dict(_pool(node))
    counts = np.zeros((*x.shape[:-1], max(columns, default=-1) + 1), np.float32)
    words = texts(x) if holds_text(x) else x
    for row, counted in zip(
        np.reshape(words, (-1, x.shape[-1])).tolist(),
        counts.reshape(-1, counts.shape[-1]),
        strict=True,
    ):
        for gram in _grams(node, row):
            if gram in pool:
                counted[columns[pool[gram]]] += 1
    if node.attribute("mode") == "TF":
        return counts
    if node.attribute("mode") == "IDF":
        counts = np.minimum(counts, 1)
    weights = np.ones(counts.shape[-1], np.float32)
    for place, weight in enumerate(node.listed("weights")):
        weights[columns[place]] = weight
    return counts * weights


def _pool(node: NodeView) -> Iterator[tuple[tuple[object, ...], int]]:
    """The n-grams, each with its number."""
    _, pool = node.first_listed("pool_strings", "pool_int64s")
    starts, number = node.listed("ngram_counts"), 0
    for size, (start, end) in enumerate(zip(starts, [*starts[1:], len(pool)], strict=True), 1):
        for place in range(start, end - size + 1, size):
            yield tuple(pool[place : place + size]), number
            number += 1


def _grams(node: NodeView, row: list[object]) -> Iterator[tuple[object, ...]]:
    """All n-grams of a row; a single word skips nothing."""
    for size in range(node.attribute("min_gram_length"), node.attribute("max_gram_length") + 1):
        for step in range(1, 2 + (node.attribute("max_skip_count") if size > 1 else 0)):
            for start in range(len(row) - (size - 1) * step):
                yield tuple(row[start : start + size * step : step])
