"""Options for a short compile time: plain schedules, without micro-kernels."""

from __future__ import annotations

from dataclasses import replace

from popgraph.passes.options import Options
from popgraph.passes.structured.fusion.fuse_attention import FuseAttention
from popgraph.passes.structured.fusion.fuse_channels import FuseChannels
from popgraph.passes.structured.layout.assign_halos import AssignHalos
from popgraph.passes.structured.parallel.alternate_chunks import AlternateChunks
from popgraph.passes.structured.schedule.schedule_contractions import ScheduleContractions
from popgraph.passes.structured.winograd.use_winograd import UseWinograd

LEFT_OUT = frozenset(
    step.name
    for step in (
        *(AssignHalos, UseWinograd, ScheduleContractions, FuseAttention, FuseChannels),
        AlternateChunks,
    )
)
"""
Passes that make C long: micro-kernels and their preparation.

Passes above the structured level are not among them: they affect results that users see, such as
random streams and the rounding of quantized sums.
"""


def quick(options: Options) -> Options:
    """
    The same options, for a program with the same meaning and short C: no loop is unrolled.

    Schedules of the user and measured ones apply to the tuned program only. In portable programs,
    results have the same bits.
    """
    # The bits of a portable program depend on transforms, and on the lanes of partial sums.
    portable, vectors = options.is_portable, options.tuning.reduction_vectors
    kept = frozenset({UseWinograd.name}) if portable else frozenset()
    return replace(
        options,
        disabled=options.disabled | LEFT_OUT - kept,
        tuning=replace(
            options.tuning,
            reduction_vectors=vectors if portable else 1,
            most_interleaved=1,
            most_transposed=1,
            longest_short_row=0,
        ),
        schedules=(),
        measured=(),
    )
