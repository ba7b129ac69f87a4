"""The roof over a machine's kernels: how fast it multiplies and adds, and how fast memory is."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from popgraph.measure.peak import peak
from popgraph.measure.timing import Contestant, race

ROUNDS = 5
COPIED = 1 << 26
"""Bytes that are copied at once: no cache holds them."""


@dataclass(frozen=True)
class Roof:
    """What a kernel could reach at most."""

    gflops: float
    """Thousand millions of floating-point operations (f32) a second."""
    gigabytes: float
    """Thousand millions of bytes a second, read and written, of main memory."""


def roof(threads: int) -> Roof:
    """Measures it: the fastest of a few rounds, in turn."""
    loop, flops = peak(threads)
    pairs = [
        (np.empty(COPIED // threads, np.uint8), np.ones(COPIED // threads, np.uint8))
        for _ in range(threads)
    ]
    with ThreadPoolExecutor(threads) as pool:
        # One thread copies itself: its own clock is looked at.
        each = map if threads == 1 else pool.map
        contestants = [
            Contestant("peak", loop),
            Contestant("copy", lambda: [*each(lambda pair: np.copyto(*pair), pairs)]),
        ]
        race(contestants, threads=threads, seconds=0, rounds=ROUNDS)
    fastest, copied = contestants
    return Roof(flops / fastest.best / 1e9, 2 * COPIED / copied.best / 1e9)
