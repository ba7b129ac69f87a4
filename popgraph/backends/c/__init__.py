"""The C backend: a planned program becomes C, a library, and an executable."""

from __future__ import annotations

from popgraph.backends.c.executable import CExecutable, build, build_again
from popgraph.backends.c.program_cache import ProgramKey, program_key
from popgraph.backends.c.target import Target, host_target

__all__ = [
    "CExecutable",
    "ProgramKey",
    "Target",
    "build",
    "build_again",
    "host_target",
    "program_key",
]
