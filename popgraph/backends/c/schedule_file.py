"""The former name of `popgraph.backends.c.cache.schedule_file`, kept for one version."""

from __future__ import annotations

import warnings

from popgraph.backends.c.cache.schedule_file import read

__all__ = ["read"]

warnings.warn(
    "popgraph.backends.c.schedule_file is now popgraph.backends.c.cache.schedule_file",
    DeprecationWarning,
    stacklevel=2,
)
