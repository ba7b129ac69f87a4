"""The notice of a deprecated name: a line on stderr, as PopART has it, and Python's own warning."""

from __future__ import annotations

import warnings

from popgraph.support.logs import log_of


def deprecated(notice: str) -> None:
    """Tells whoever called the caller to use another name, in PopART's words."""
    log_of("popart").warning("%s", notice)
    warnings.warn(notice, DeprecationWarning, stacklevel=3)
