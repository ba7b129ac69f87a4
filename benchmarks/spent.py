"""The cost of a call: wall-clock time, and processor time here and in the C compiler."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from typing import TypedDict


class Spent(TypedDict):
    """The seconds of a call."""

    wall: float
    own_cpu: float
    """Processor time of this process, all its threads included: imports, passes, printing C."""
    compiler_cpu: float
    """Processor time of its finished subprocesses: the C compiler, its assembler and linker."""


def spent(call: Callable[[], object]) -> Spent:
    """The cost of a call; the process must be idle otherwise."""
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    before, start = [_seconds(each) for each in who], time.perf_counter()
    call()
    wall = time.perf_counter() - start
    own, children = (_seconds(each) - was for each, was in zip(who, before, strict=True))
    return {"wall": wall, "own_cpu": own, "compiler_cpu": children}


def _seconds(who: int) -> float:
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime
