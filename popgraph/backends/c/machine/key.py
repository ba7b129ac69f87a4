"""The key of a machine and target, by which caches separate their content."""

from __future__ import annotations

import functools
import platform
import re
from pathlib import Path

from popgraph.backends.c.machine.targets import target_key
from popgraph.support.cache_files import digest


def machine() -> str:
    """The key of processor and target: machines may share a cache, but not code."""
    return digest(_processor(), target_key())[:16]


@functools.cache
def _processor() -> str:
    """A hash of the processor properties that `-march=native` depends on."""
    facts = [platform.machine(), platform.system()]
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
        facts += [line for line in lines if re.match(r"flags|Features|model|CPU part", line)]
    except OSError:
        facts.append(platform.processor())
    return digest(*facts)
