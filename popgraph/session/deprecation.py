"""The notice of a deprecated name: a line on stderr, as PopART has it, and Python's own warning."""

from __future__ import annotations

import warnings

from popgraph.support.logs import log_of


def deprecated(old: str, new: str) -> None:
    """Tells whoever called the caller to use another name."""
    log_of("session").warning("%s has been deprecated, use %s instead", old, new)
    warnings.warn(f"{old} has been deprecated, use {new}", DeprecationWarning, stacklevel=3)
