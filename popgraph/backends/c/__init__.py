"""The C backend: a planned program becomes C, a library, and an executable."""

from __future__ import annotations

from popgraph.backends.c.executable import CExecutable, build
from popgraph.backends.c.target import Target, host_target

__all__ = ["CExecutable", "Target", "build", "host_target"]
