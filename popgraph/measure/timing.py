"""Times several contestants in interleaved rounds, and creates random inputs for them."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from popgraph.support.arrays import Array
from popgraph.support.dtypes import DType
from popgraph.support.shapes import Shape

SHORTEST = 2e-4
"""Seconds: shorter calls are repeated within a sample."""

SETTLED = 1e-2
"""Seconds that a multithreaded contestant runs before its sample."""


@dataclass
class Contestant:
    """A function to be timed, and its samples in seconds per call."""

    name: str
    call: Callable[[], object]
    many: bool = False
    """Whether it computes in threads of its own even when limited to one."""
    repeats: int = 1
    samples: list[float] = field(default_factory=list)

    @property
    def best(self) -> float:
        return min(self.samples)

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    def sample(self, clock: Callable[[], float]) -> float:
        call, repeats = self.call, self.repeats
        start = clock()
        for _ in range(repeats):
            call()
        return (clock() - start) / repeats

    def settle(self) -> None:
        """Runs for `SETTLED` seconds, at least once."""
        for _ in at_least(1, SETTLED):
            self.call()

    def prepare(self, clock: Callable[[], float]) -> None:
        """Warms up, and finds the number of calls that makes a sample long enough for the clock."""
        self.sample(clock)
        while self.repeats < 4096 and self.sample(clock) * self.repeats < SHORTEST:
            self.repeats *= 2


def at_least(rounds: int, seconds: float) -> Iterator[int]:
    """Yields 0, 1, ... at least `rounds` times and until `seconds` have passed."""
    end, done = time.perf_counter() + seconds, 0
    while done < rounds or time.perf_counter() < end:
        yield done
        done += 1


def race(contestants: Sequence[Contestant], *, threads: int, seconds: float, rounds: int) -> None:
    """
    Samples all contestants in interleaved rounds: at least `rounds`, and until `seconds` have
    passed.

    With one thread, time is that of the calling thread (of the process for contestants with threads
    of their own), which mostly excludes other programs. With more threads it is wall time, and each
    contestant runs for a while before its sample: threads of the previous one keep spinning and
    would take its cores.
    """
    clocks = [clock_of(each, threads) for each in contestants]
    for each, clock in zip(contestants, clocks, strict=True):
        each.prepare(clock)
    for _ in at_least(rounds, seconds):
        for each, clock in zip(contestants, clocks, strict=True):
            if threads > 1:
                each.settle()
            each.samples.append(each.sample(clock))


def clock_of(contestant: Contestant, threads: int) -> Callable[[], float]:
    if threads > 1:
        return time.perf_counter
    return time.process_time if contestant.many else time.thread_time


def pin(threads: int) -> None:
    """Pins this process, and threads it starts later, to the first `threads` allowed cores."""
    if hasattr(os, "sched_setaffinity"):
        allowed = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, allowed[:threads])


def random_model_inputs(
    types: Mapping[str, tuple[DType, Shape]], seed: int = 0
) -> dict[str, Array]:
    """Random inputs: normal floats; integers 0 or 1, which are valid indices of most tensors."""
    generator = np.random.default_rng(seed)
    return {name: _random(generator, *type_) for name, type_ in types.items()}


def _random(generator: np.random.Generator, dtype: DType, shape: Shape) -> Array:
    if dtype.is_float:
        return generator.standard_normal(shape).astype(dtype.numpy)
    return generator.integers(0, 2, shape).astype(dtype.numpy)
