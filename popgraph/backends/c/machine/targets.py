"""The targets that code can be made for, and which one is asked for."""

from __future__ import annotations

import os
from collections.abc import Mapping

from popgraph.support.errors import BackendError

NATIVE = "native"


TARGETS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    NATIVE: ("__STDC__", ("-march=native", "")),
    "avx512": ("__AVX512F__", ("-march=x86-64-v4", "-march=x86_64_v4")),
    "avx2": ("__AVX2__", ("-march=x86-64-v3", "-march=x86_64_v3")),
    "sse2": ("__SSE2__", ("-march=x86-64", "-march=x86_64")),
    "neon": ("__ARM_NEON", ("",)),
}
"""
What code can be made for: a macro that the compiler then has, and the flag that asks for it, as
GCC and Clang spell it, then as zig does; none where a compiler's own choice will do.
"""


def wanted_target() -> str:
    """For what code is to be made: `$POPGRAPH_TARGET`, else for this very machine."""
    name = os.environ.get("POPGRAPH_TARGET", "").strip() or NATIVE
    if name not in TARGETS:
        raise BackendError(
            f"there is no target {name!r}", hint=f"POPGRAPH_TARGET may be {', '.join(TARGETS)}"
        )
    return name
