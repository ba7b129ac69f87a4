"""The former home of `popgraph.read_schedules`, kept for one version."""

from __future__ import annotations

import warnings

from popgraph.dialects.tile.structured.schedule_file import read_schedules as read

__all__ = ["read"]

warnings.warn(
    "popgraph.backends.c.cache.schedule_file.read is now popgraph.read_schedules",
    DeprecationWarning,
    stacklevel=2,
)
