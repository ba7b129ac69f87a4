"""Tests values that a thread computes while passes run."""

from __future__ import annotations

import os
from threading import Event, get_ident
from zlib import crc32

import numpy as np
import pytest

from popgraph.builder.pgraph import parse
from popgraph.dialects.onnx import model_of
from popgraph.dialects.program import WeightStore
from popgraph.dialects.program.attributes import BlobAttr
from popgraph.dialects.program.weights import HASHED_BYTES
from popgraph.support.arrays import Array
from popgraph.support.computed import Computed
from popgraph.support.forked import Child, can_fork
from popgraph.support.locks import Lock

SHAPE = (300, 300)


def test_a_thread_computes_a_value_once() -> None:
    threads, done = list[int](), Event()

    def make() -> int:
        threads.append(get_ident())
        done.set()
        return 5

    value = Computed(make)
    assert done.wait(60)
    assert (value(), value()) == (5, 5)
    assert len(threads) == 1 and threads[0] != get_ident()


def test_a_reader_computes_a_value_that_no_thread_has_begun() -> None:
    def compute() -> int:
        begun.set()
        blocked.wait(60)
        return 0

    blocked, begun = Event(), Event()
    busy = [Computed(compute) for _ in range(os.cpu_count() or 1)]
    assert begun.wait(60)
    assert Computed(get_ident)() == get_ident()
    blocked.set()
    assert [one() for one in busy] == [0] * len(busy)


def test_the_reader_sees_an_error() -> None:
    def make() -> None:
        raise ValueError("no value")

    failing = Computed(make)
    for _ in range(2):
        with pytest.raises(ValueError, match="no value"):
            failing()


@pytest.mark.skipif(not can_fork(), reason="this system cannot fork")
def test_a_forked_child_computes_values_itself() -> None:
    blocked, begun = Event(), Event()

    def make() -> int:
        begun.set()
        return 1 if os.getpid() != parent else blocked.wait(60)

    def work() -> None:
        assert (value(), Computed(lambda: 2)()) == (1, 2)

    parent = os.getpid()
    value = Computed(make)
    assert begun.wait(60)
    assert Child(work, Lock()).outcome() == ""
    blocked.set()
    assert value() == 1


def test_equal_origins_share_an_array() -> None:
    store, made = WeightStore(), list[int]()

    def make() -> Array:
        made.append(1)
        return np.ones(SHAPE, np.float32)

    one, other = (store.later("ones", SHAPE, np.dtype(np.float32), make) for _ in range(2))
    assert isinstance(one, BlobAttr) and one == other
    assert store.array(one) is store.array(other) and made == [1]
    assert store.later("ones", SHAPE, np.dtype(np.float64), make) != one
    assert store.later("twos", SHAPE, np.dtype(np.float32), make) != one


def test_content_keys_cover_every_byte_and_the_order_of_parts() -> None:
    def key() -> str:
        return WeightStore().keep(array).key.text

    array = np.random.default_rng(0).integers(0, 256, 2 * HASHED_BYTES + 5, np.uint8)
    keys = {key()}
    assert key() in keys
    for place in (0, HASHED_BYTES, array.size - 1):
        array[place] ^= 1
        keys.add(key())
    first, second, rest = np.split(array, [HASHED_BYTES, 2 * HASHED_BYTES])
    array = np.concatenate([second, first, rest])
    keys.add(key())
    assert len(keys) == 5


def test_drawn_weights_are_the_numbers_of_their_seeds() -> None:
    document = parse(
        "graph g(x: f32[2]) -> (y: f32[2]) {\n weight w: f32[300, 300] = normal(std=2)\n y = x }"
    )
    (found,) = model_of(document.module).graph.all_initializers
    expected = np.random.default_rng(crc32(b"w")).normal(0, 2, SHAPE).astype(np.float32)
    np.testing.assert_array_equal(found.array(document.weights), expected)
