"""Targets for tests on which even small work is partitioned among threads."""

from __future__ import annotations

from dataclasses import replace

from popgraph.support.tuning import Target, Tuning

THREADS = 3


def sharing_all(grain: int, vector_bytes: int = 64, tuning: Tuning | None = None) -> Target:
    """Partitions all work above twice `grain`; only imbalance costs anything."""
    target = Target.of(vector_bytes, 32 if vector_bytes == 64 else 16)
    machine = replace(
        target.machine,
        chunk_start_cycles=0.0,
        remote_bpc=1e12,
        remote_strided_bpc=1e12,
        local_bpc=1e12,
    )
    small = replace(tuning or Tuning(), least_chunk_work=grain, chunks_per_thread=2)
    return Target(machine, small)
