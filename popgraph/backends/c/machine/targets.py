"""The known compilation targets, and the selected one."""

from __future__ import annotations

import os
from collections.abc import Mapping

from popgraph.support.errors import BackendError
from popgraph.support.machine import ADDED, added_target

NATIVE = "native"


TARGETS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    NATIVE: ("__STDC__", ("-march=native", "-mcpu=native", "")),
    "avx512": ("__AVX512F__", ("-march=x86-64-v4", "-march=x86_64_v4")),
    "avx2": ("__AVX2__", ("-march=x86-64-v3", "-march=x86_64_v3")),
    "sse2": ("__SSE2__", ("-march=x86-64", "-march=x86_64")),
    "neon": ("__ARM_NEON", ("",)),
}
"""
By target: a macro that the compiler then defines, and the flag that selects it, in the spellings
of GCC and Clang, then of zig; empty if the compiler's default will do. Older Clang for arm64 has
only -mcpu=native.
"""


def wanted_target() -> str:
    """The target in `$POPGRAPH_TARGET`, else this machine."""
    name = os.environ.get("POPGRAPH_TARGET", "").strip() or NATIVE
    if target_named(name) is None:
        known = (*TARGETS, *(name for name, added in ADDED.items() if added.flags))
        raise BackendError(
            f"there is no target {name!r}", hint=f"set POPGRAPH_TARGET to {', '.join(known)}"
        )
    return name


def target_named(name: str) -> tuple[str, tuple[str, ...]] | None:
    """The macro and the flags of a target, as in `TARGETS`; None for unknown names."""
    if name in TARGETS:
        return TARGETS[name]
    added = added_target(name)
    return (added.macro, added.flags) if added and added.flags else None


def target_key() -> str:
    """The selected target as a cache key; for an extension's target with its flags."""
    name = wanted_target()
    return name if name in TARGETS else f"{name} {target_named(name)}"
