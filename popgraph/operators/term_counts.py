"""
TfIdfVectorizer: counts of the n-grams of a vocabulary.

Compiled, n-grams of integers are encoded as one integer, looked up and counted; strings are
counted in Python.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, shape_of
from popgraph.dialects.onnx.host_values import holds_text, texts
from popgraph.dialects.onnx.view import NodeView
from popgraph.operators.arithmetic import cast
from popgraph.operators.lookups import found_by_key
from popgraph.operators.movement import reshaped, sliced
from popgraph.operators.node import Node
from popgraph.operators.record import Lowered, chooses, computes, lowers
from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.support.errors import NeedsHostError, TypeMismatchError
from popgraph.support.shapes import prod

I64, F32 = dtypes.BY_NAME["i64"], dtypes.BY_NAME["f32"]
LARGEST = 1 << 62
"""Bound of encoded n-grams, so that none is negative in i64."""


chooses("TfIdfVectorizer", mode=("TF", "IDF", "TFIDF"))


@lowers("TfIdfVectorizer")
def term_counts(node: Node) -> Lowered:
    """
    Encodes words by their rank in the pool, and an n-gram as a number of n such digits.

    A binary search maps the number to the n-gram's column: O(words * log(pool)) for each n and each
    skip count. One extra column counts n-grams outside the pool.
    """
    if not node.rank:
        raise TypeMismatchError("TfIdfVectorizer requires rows of words, not a scalar")
    columns = node.integers("ngram_indexes")
    count = max(columns, default=-1) + 1
    *lead, length = node.shape
    pool = _Pool(node)
    words = found_by_key(
        node,
        SSAValue.get(cast(reshaped(node[0], (prod(lead), length)), I64)),
        pool.words,
        np.arange(len(pool.words)),
        np.array(len(pool.words)),
    )
    found = [
        found_by_key(node, grams, *pool.columns(size, columns), np.array(count))
        for size in range(node.integer("min_gram_length"), node.integer("max_gram_length") + 1)
        for grams in _grams(node, words, size, len(pool.words) + 1)
    ]
    counted = _counted(node, found, prod(lead), count + 1)
    counts = sliced(counted, {1: (0, count, 1)})
    return reshaped(SSAValue.get(_weighted(node, counts, columns, count)), (*lead, count))


class _Pool:
    """The n-grams to count."""

    def __init__(self, node: Node) -> None:
        self._pool = np.array(node.integers("pool_int64s"), np.int64)
        self._starts = [*node.integers("ngram_counts"), len(self._pool)]
        self.words = np.unique(self._pool)
        """All words of the pool, sorted."""

    def columns(self, size: int, columns: Sequence[int]) -> tuple[Array, Array]:
        """The encoded n-grams of one length and their columns; the last of duplicates wins."""
        before, base = 0, len(self.words) + 1
        for each, (start, end) in enumerate(zip(self._starts, self._starts[1:], strict=False), 1):
            grams = self._pool[start : start + (end - start) // each * each].reshape(-1, each)
            if each == size:
                digits = np.searchsorted(self.words, grams)
                numbers = digits @ (base ** np.arange(size)[::-1])
                there = np.array(columns[before : before + len(grams)], np.int64)
                return numbers[::-1], there[::-1]
            before += len(grams)
        return np.zeros(0, np.int64), np.zeros(0, np.int64)


def _grams(node: Node, words: SSAValue, size: int, base: int) -> list[SSAValue]:
    """The encoded n-grams of one length in each row, for each skip count."""
    if base**size >= LARGEST:
        raise NeedsHostError(
            f"{size}-grams of {base - 1} words do not fit into 64 bits",
            hint="use shorter n-grams, or a smaller pool",
        )
    _, length = shape_of(words)
    skipped = node.integer("max_skip_count") if size > 1 else 0
    found: list[SSAValue] = []
    for step in range(1, skipped + 2):
        count = length - (size - 1) * step
        if count < 1:
            continue
        number: Operand = sliced(words, {1: (0, count, 1)})
        for digit in range(1, size):
            shifted = gc.MulOp(number, node.literal(np.array(base)))
            number = gc.AddOp(shifted, sliced(words, {1: (digit * step, count, 1)}))
        found.append(SSAValue.get(number))
    return found


def _counted(node: Node, found: Sequence[SSAValue], rows: int, columns: int) -> SSAValue:
    """The number of occurrences of each column in each row."""
    zeros = node.literal(np.zeros(rows * columns, np.float32))
    if not found or not rows:
        return SSAValue.get(reshaped(zeros, (rows, columns)))
    joined = SSAValue.get(gc.ConcatOp(found, axis=1) if len(found) > 1 else found[0])
    first = node.literal((np.arange(rows) * columns).reshape(-1, 1))
    places = SSAValue.get(gc.AddOp(joined, first))
    flat = reshaped(places, (prod(shape_of(places)),))
    ones = node.literal(np.ones(shape_of(flat), np.float32))
    counts = gc.ScatterOp(zeros, ones, flat, axis=0, reduction="add")
    return SSAValue.get(reshaped(counts.result, (rows, columns)))


def _weighted(node: Node, counts: Operand, columns: Sequence[int], count: int) -> Operand:
    """Counts weighted according to `mode`; weights are in the order of the pool."""
    mode = node.text("mode")
    if mode == "TF":
        return counts
    if mode == "IDF":
        counts = gc.MinOp(counts, node.literal(np.array(1, np.float32)))
    weights = np.ones(count, np.float32)
    for place, weight in enumerate(node.reals("weights")):
        weights[columns[place]] = weight
    return gc.MulOp(counts, node.literal(weights))


@computes("TfIdfVectorizer")
def compute_term_counts(node: NodeView, x: Array) -> Array:
    """
    Counts each n-gram of the pool in each row, and weights the counts according to `mode`.

    An n-gram is n adjacent words, or every (s + 1)-th word for all s up to `max_skip_count`.
    Weights are in the order of the pool, as in onnxruntime; ONNX's reference orders them by column.
    """
    columns, pool = node.listed("ngram_indexes"), dict(_host_pool(node))
    counts = np.zeros((*x.shape[:-1], max(columns, default=-1) + 1), np.float32)
    words = texts(x) if holds_text(x) else x
    for row, counted in zip(
        np.reshape(words, (-1, x.shape[-1])).tolist(),
        counts.reshape(-1, counts.shape[-1]),
        strict=True,
    ):
        for gram in _host_grams(node, row):
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


def _host_pool(node: NodeView) -> Iterator[tuple[tuple[object, ...], int]]:
    """The n-grams of the pool, each with its index."""
    _, pool = node.first_listed("pool_strings", "pool_int64s")
    starts, number = node.listed("ngram_counts"), 0
    for size, (start, end) in enumerate(zip(starts, [*starts[1:], len(pool)], strict=True), 1):
        for place in range(start, end - size + 1, size):
            yield tuple(pool[place : place + size]), number
            number += 1


def _host_grams(node: NodeView, row: list[object]) -> Iterator[tuple[object, ...]]:
    """All n-grams of a row; skip counts do not apply to single words."""
    for size in range(node.attribute("min_gram_length"), node.attribute("max_gram_length") + 1):
        for step in range(1, 2 + (node.attribute("max_skip_count") if size > 1 else 0)):
            for start in range(len(row) - (size - 1) * step):
                yield tuple(row[start : start + size * step : step])
