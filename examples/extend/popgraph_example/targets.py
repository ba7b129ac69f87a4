"""A target: a core with small caches, which runs what every 64-bit x86 or Arm core runs."""

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
