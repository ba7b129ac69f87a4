"""Options for a goal other than speed: small programs, or a short compile time."""

from __future__ import annotations

from dataclasses import replace

from popgraph.passes.graphcore.contract_in_floats import ContractInFloats
from popgraph.passes.loops.prefetch_panels import PrefetchPanels
from popgraph.passes.options import SIZE, SPEED, Options
from popgraph.passes.structured.fusion.fuse_attention import FuseAttention
from popgraph.passes.structured.fusion.fuse_channels import FuseChannels
from popgraph.passes.structured.layout.assign_halos import AssignHalos
from popgraph.passes.structured.parallel.alternate_chunks import AlternateChunks
from popgraph.passes.structured.winograd.use_winograd import UseWinograd
from popgraph.support.machine import Machine
from popgraph.support.tuning import Tuning

LONG = frozenset(step.name for step in (UseWinograd, FuseAttention, FuseChannels, AlternateChunks))
"""
Optional passes that make C long: micro-kernels and their preparation.

Passes above the structured level are not among them: they affect results that users see, such as
random streams and the rounding of quantized sums.
"""


def quick(options: Options) -> Options:
    """
    The same options, for a program with the same meaning and short C.

    Schedules of the user and measured ones apply to the tuned program only. In portable programs,
    results have the same bits.
    """
    return replace(options, soon=True)


def aimed(options: Options) -> Options:
    """
    The options with the choices that `Options.optimize` implies.

    For "size", kernels are plain loops over scalars: vectors add loops for the last elements, and
    microcontrollers have none.

    With `Options.soon`, only contractions with many products get register tiles, small ones.
    """
    if options.soon:
        options = _hurried(options)
    if options.optimize == SPEED:
        return options
    # Integers stay integers: as floats, weights of 8 bits would take four times the memory.
    left_out = {ContractInFloats.name, *LONG}
    made = _plain(replace(options, disabled=options.disabled | left_out))
    machine, tuning = options.target.machine, made.tuning
    if options.optimize == SIZE:
        machine = machine.with_vectors(1, machine.registers)
        # Channels last in all images: sums run along one or two loops, and layers are alike.
        tuning = replace(tuning, least_channels=1)
    else:
        machine = _with_small_tiles(machine, tuning)
    # Chunks of sums take loops of their own; contractions have these chunks, too.
    tuning = replace(tuning, partial_sums=tuning.chain_terms, most_halo_boxes=0)
    return replace(made, machine=machine, tuning=tuning)


def _hurried(options: Options) -> Options:
    """The options of quick programs."""
    left_out = {AssignHalos.name, PrefetchPanels.name, *LONG}
    if options.is_portable:  # Transforms change bits.
        left_out.remove(UseWinograd.name)
    made = _plain(replace(options, disabled=options.disabled | left_out))
    tuning = made.tuning
    tuning = replace(tuning, least_products=tuning.quick_products, most_vectors=1)
    machine = _with_small_tiles(options.target.machine, tuning)
    return replace(made, machine=machine, tuning=tuning)


def _with_small_tiles(machine: Machine, tuning: Tuning) -> Machine:
    """The machine with as many registers as small register tiles use."""
    registers = min(tuning.small_tile_registers, machine.registers)
    return machine.with_vectors(machine.vector_bytes, registers)


def _plain(options: Options) -> Options:
    """The options without schedules of others, and without vectors side by side."""
    # The bits of a portable program depend on the lanes of partial sums.
    vectors = options.tuning.reduction_vectors if options.is_portable else 1
    return replace(
        options,
        tuning=replace(
            options.tuning,
            reduction_vectors=vectors,
            most_chains=1,
            most_interleaved=1,
            most_transposed=1,
            longest_short_row=0,
        ),
        schedules=(),
        measured=(),
    )
