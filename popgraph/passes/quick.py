"""The quick options: plain schedules, for a program that is compiled soon."""

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
The passes that make C long: micro-kernels and what is made for them.

None of those above the structured level is among them: what they do is what the user may see, the
streams of random numbers and the form of quantized sums.
"""


def quick(options: Options) -> Options:
    """
    The same options, for a program that means the same and whose C is short: no loop is unrolled.

    What was decided or measured of schedules is for the tuned program.
    """
    return replace(
        options,
        disabled=options.disabled | LEFT_OUT,
        tuning=replace(
            options.tuning,
            reduction_vectors=1,
            most_interleaved=1,
            most_transposed=1,
            longest_short_row=0,
        ),
        schedules=(),
        measured=(),
    )
