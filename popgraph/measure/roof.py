"""The roofline of a machine: peak f32 rate and main-memory bandwidth."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from popgraph.measure.peak import peak
from popgraph.measure.timing import Contestant, race

ROUNDS = 5
COPIED = 1 << 26
"""Bytes copied at once, more than caches hold."""


@dataclass(frozen=True)
class Roof:
    """The upper bounds of a kernel's rates."""

    gflops: float
    """Peak f32 rate in GFLOP/s."""
    gigabytes: float
    """Main-memory bandwidth in GB/s, reads plus writes."""


def roof(threads: int) -> Roof:
    """Measures the roofline: the fastest of a few interleaved rounds."""
    loop, flops = peak(threads)
    pairs = [
        (np.empty(COPIED // threads, np.uint8), np.ones(COPIED // threads, np.uint8))
        for _ in range(threads)
    ]
    with ThreadPoolExecutor(threads) as pool:
        # With one thread, the copy runs in the calling thread, whose clock is read.
        each = map if threads == 1 else pool.map
        contestants = [
            Contestant("peak", loop),
            Contestant("copy", lambda: [*each(lambda pair: np.copyto(*pair), pairs)]),
        ]
        race(contestants, threads=threads, seconds=0, rounds=ROUNDS)
    fastest, copied = contestants
    return Roof(flops / fastest.best / 1e9, 2 * COPIED / copied.best / 1e9)
