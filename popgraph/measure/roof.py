"""The roof over a machine's kernels: how fast it multiplies and adds, and how fast memory is."""

from __future__ import annotations

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
    source, target = np.ones(COPIED, np.uint8), np.empty(COPIED, np.uint8)
    contestants = [
        Contestant("peak", loop),
        Contestant("copy", lambda: np.copyto(target, source)),
    ]
    race(contestants, threads=threads, seconds=0, rounds=ROUNDS)
    fastest, copied = contestants
    return Roof(flops / fastest.best / 1e9, 2 * COPIED / copied.best / 1e9)
