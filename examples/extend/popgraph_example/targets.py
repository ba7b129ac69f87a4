"""A target: a core with small caches, and the baseline instructions of 64-bit x86 or Arm."""

from __future__ import annotations

from popgraph.extend import Machine, add_target

KIB = 1 << 10

add_target(
    Machine(
        name="little_core",
        source="an example: SSE2 or NEON vectors, small caches, generic rates",
        vector_bytes=16,
        registers=16,
        l2_bytes=128 * KIB,
        l3_bytes=512 * KIB,
    ),
    flags=("-march=x86-64", "-march=x86_64", "-march=armv8-a"),
)
