"""The C backend's tools for `measure`, `viewer` and the commands that show or export code."""

from __future__ import annotations

from popgraph.backends.c.cache.measured_schedules import keep_measured
from popgraph.backends.c.emit import emit, sources
from popgraph.backends.c.export.exporting import exporter
from popgraph.backends.c.print.module import print_kernels as kernels
from popgraph.backends.c.run.profile import Profile as profile

__all__ = ["emit", "exporter", "keep_measured", "kernels", "profile", "sources"]
