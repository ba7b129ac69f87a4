"""The machine model of IPUs: tiles, memories and exchange."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

KIB = 1 << 10


@dataclass(frozen=True)
class Ipu:
    """
    All hardware figures behind mapping and costs, and the size of the device.

    Cycles are tile cycles. Tiles run in bulk-synchronous steps: each computes on its own
    memory, all synchronize, and then they exchange the data of the next step.
    """

    name: str
    """The generation, as in PopART's `ipuVersion`."""
    source: str
    """Source of the figures."""
    tiles: int
    """Tiles per IPU: processors with their own memories."""
    tile_bytes: int
    """Bytes of memory of a tile, for data and code."""
    clock_hertz: float
    """Clock rate of a tile in Hz."""
    flops_f16: int
    """Flops per cycle of a tile's matrix unit on f16; a multiply-add is two."""
    flops_f32: int
    """The same on f32."""
    count: int = 1
    """IPUs of the device; tiles are numbered consecutively, IPU by IPU."""
    workers: int = 6
    """Threads of a tile, scheduled round-robin: each issues an instruction every sixth cycle."""
    vector_bytes: int = 8
    """Bytes of a vector outside the matrix unit; one vector operation per cycle."""
    load_bytes: int = 16
    """Bytes that a tile loads from its memory per cycle."""
    store_bytes: int = 8
    """Bytes that a tile stores per cycle, in parallel with loads."""
    unit_bytes: int = 32
    """Side of the matrix unit's square of weights, in bytes."""
    function_cycles: int = 6
    """Cycles of a function such as exp on one vector."""
    exchange_bytes: int = 4
    """Bytes that a tile sends, and also receives, per cycle of an exchange."""
    link_hertz_bytes: float = 320e9
    """Bytes per second over all links of an IPU, both directions together."""
    sync_cycles: int = 150
    """Cycles to synchronize all tiles of an IPU."""
    link_sync_cycles: int = 1000
    """Cycles to synchronize tiles of several IPUs."""
    launch_cycles: int = 100
    """Cycles to start the workers of a compute set and to wait for them."""
    code_bytes: int = 16 * KIB
    """Fixed bytes per tile: stacks, and code that all programs share."""
    step_code_bytes: int = 64
    """Bytes of code per bulk-synchronous step on each tile."""
    vertex_bytes: int = 48
    """Bytes of state per vertex: pointers to its operands."""
    least_tile_bytes: int = 128
    """Minimal bytes of a tensor per tile: exchanging them takes a fifth of a sync."""
    operand_share: float = 0.6
    """
    Fraction of a tile's memory for the operands that a contraction receives at once.

    The default of PopART's `availableMemoryProportion`.
    """

    @property
    def total_tiles(self) -> int:
        """Tiles of all IPUs."""
        return self.count * self.tiles

    @property
    def operand_bytes(self) -> float:
        """Bytes per tile for the operands that a contraction receives at once."""
        return self.tile_bytes * self.operand_share

    @property
    def link_bytes(self) -> float:
        """Bytes per cycle into an IPU over its links; as many leave it."""
        return self.link_hertz_bytes / 2 / self.clock_hertz

    def flops(self, element_bytes: int) -> int:
        """Flops per cycle of the matrix unit, by element width."""
        return self.flops_f16 if element_bytes <= 2 else self.flops_f32

    @property
    def peak_flops(self) -> dict[str, float]:
        """Peak flops per second of the device, by element type."""
        each = self.total_tiles * self.clock_hertz
        return {"f16": each * self.flops_f16, "f32": each * self.flops_f32}

    def of(self, count: int = 1, tiles: int = 0) -> Ipu:
        """A device with `count` IPUs of `tiles` tiles each; 0: all tiles."""
        return replace(self, count=count, tiles=tiles or self.tiles)


# Z. Jia, B. Tillman, M. Maggioni, D. P. Scarpazza: "Dissecting the Graphcore IPU Architecture via
# Microbenchmarking", 2019 (arXiv 1912.03413). 1,216 tiles of 256 KiB with six threads at 1.6 GHz;
# 124.5 Tflop/s of mixed and 31.1 Tflop/s of single precision, which are 64 and 16 flops of a tile
# and cycle; a nominal 45 TB/s from memory, some 16 bytes loaded and 8 stored; links of 320 GB/s.
# The exchange moves 8 TB/s in all: 4 bytes of a tile and cycle.
MK1 = Ipu(
    name="ipu1",
    source="Jia et al. 2019, arXiv 1912.03413",
    tiles=1216,
    tile_bytes=256 * KIB,
    clock_hertz=1.6e9,
    flops_f16=64,
    flops_f32=16,
)

# S. Knowles: "Graphcore Colossus Mk2 IPU", Hot Chips 33, 2021, and Graphcore's product brief of the
# IPU-M2000. 1,472 tiles of 624 KiB with six threads at 1.325 GHz; 250 Tflop/s on halves and
# 62.5 Tflop/s of single precision, which are 128 and 32 flops of a tile and cycle; 47.5 TB/s from
# memory; 7.8 TB/s of exchange, 4 bytes of a tile and cycle; links of 320 GB/s.
MK2 = Ipu(
    name="ipu2",
    source="Knowles, Hot Chips 33, 2021, and the product brief of the IPU-M2000",
    tiles=1472,
    tile_bytes=624 * KIB,
    clock_hertz=1.325e9,
    flops_f16=128,
    flops_f32=32,
)

IPUS: Mapping[str, Ipu] = {each.name: each for each in (MK1, MK2)}
"""IPUs by their name in PopART's `ipuVersion`."""


def device_named(text: str) -> Ipu:
    """
    Parses a device: `ipu:2` (two IPUs), `ipu1` (first generation), `ipu:1:64` (64 tiles).

    ValueError if the name is not valid.
    """
    name, *numbers = text.split(":")
    generation = MK2 if name == "ipu" else IPUS.get(name)
    if generation is None:
        raise ValueError(f"unknown device {name!r}: known are ipu, {', '.join(IPUS)}")
    if len(numbers) > 2 or not all(number.isdigit() and int(number) for number in numbers):
        raise ValueError(f"{text!r}: a device is NAME, NAME:IPUS or NAME:IPUS:TILES")
    return generation.of(*map(int, numbers))


ESTIMATES = (
    "unit_bytes",
    "function_cycles",
    "sync_cycles",
    "link_sync_cycles",
    "launch_cycles",
    "code_bytes",
    "step_code_bytes",
    "vertex_bytes",
)
"""Fields without a published figure; the values are orders of magnitude."""
