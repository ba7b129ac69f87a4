"""What is this package made of? A program that it compiled belongs to that very state of it."""

from __future__ import annotations

import functools
import hashlib
import time
from importlib.metadata import version
from pathlib import Path

from popgraph.support.caches import digest

PACKAGE = Path(__file__).parents[2]
LOADING = 2.0
"""Seconds that importing this package may have taken before this file was reached."""

_STARTED = time.time()


@functools.cache
def sources() -> str | None:
    """
    The content of this package and the versions of those that it stands on.

    None when its files were changed since it was imported.
    """
    made = hashlib.sha256()
    for file in sorted(PACKAGE.rglob("*")):
        if file.suffix in (".py", ".h", ".json"):
            if file.stat().st_mtime > _STARTED - LOADING:
                return None
            made.update(str(file.relative_to(PACKAGE)).encode())
            made.update(file.read_bytes())
    versions = [version(name) for name in ("xdsl", "onnx", "numpy", "ml_dtypes")]
    return digest(made.hexdigest(), *versions)
