"""The machine model of IPUs: what the compiler knows of their tiles, memories and exchange."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

KIB = 1 << 10


@dataclass(frozen=True)
class Ipu:
    """
    Every fact about an IPU on which its mapping and its costs rest, and how many of them there are.

    Cycles are those of a tile. All tiles run in bulk-synchronous steps: each computes on its own
    memory, all wait for each other, and then they exchange what the next step reads.
    """

    name: str
    """The generation, as PopART's `ipuVersion` names it."""
    source: str
    """Where the figures come from."""
    tiles: int
    """Tiles of one IPU: each is a processor with a memory of its own."""
    tile_bytes: int
    """Bytes of the memory of a tile, which holds its data and its code."""
    clock_hertz: float
    """Cycles of a second."""
    flops_f16: int
    """Operations of the matrix unit of a tile in a cycle, on halves; a multiply-add is two."""
    flops_f32: int
    """The same on single precision."""
    count: int = 1
    """IPUs of the device, whose tiles are numbered IPU after IPU."""
    workers: int = 6
    """Threads of a tile, which take turns: each begins an instruction every sixth cycle."""
    vector_bytes: int = 8
    """Bytes of the vectors on which a tile computes outside of its matrix unit, one a cycle."""
    load_bytes: int = 16
    """Bytes that a tile loads from its memory in a cycle."""
    store_bytes: int = 8
    """Bytes that it stores beside them."""
    unit_bytes: int = 32
    """Bytes of the sums, and of the terms of each, that the matrix unit has weights for at once."""
    function_cycles: int = 6
    """Cycles of a function such as the exponential on one vector."""
    exchange_bytes: int = 4
    """Bytes that a tile sends, and as many that it receives, in a cycle of an exchange."""
    link_hertz_bytes: float = 320e9
    """Bytes of a second over all links between one IPU and the others, both ways together."""
    sync_cycles: int = 150
    """Cycles until all tiles of an IPU know that all have arrived."""
    link_sync_cycles: int = 1000
    """The same where tiles of several IPUs wait for each other."""
    launch_cycles: int = 100
    """Cycles to start the workers of a compute set, and to collect them."""
    code_bytes: int = 16 * KIB
    """Bytes of a tile that programs have anyway: its stacks, and code that all of them share."""
    step_code_bytes: int = 64
    """Bytes of code of one bulk-synchronous step on each tile."""
    vertex_bytes: int = 48
    """Bytes of state of a vertex: where its operands are."""
    least_tile_bytes: int = 128
    """Bytes of a tensor per tile, at least: the time to exchange them is a fifth of a sync."""
    operand_share: float = 0.6
    """
    Share of a tile's memory for the operands that a contraction receives at once.

    The default of PopART's `availableMemoryProportion`.
    """

    @property
    def total_tiles(self) -> int:
        """The tiles of all IPUs."""
        return self.count * self.tiles

    @property
    def operand_bytes(self) -> float:
        """Bytes of a tile for the operands that a contraction receives at once."""
        return self.tile_bytes * self.operand_share

    @property
    def link_bytes(self) -> float:
        """Bytes of a cycle that reach an IPU over its links; as many leave it."""
        return self.link_hertz_bytes / 2 / self.clock_hertz

    def flops(self, element_bytes: int) -> int:
        """Operations of the matrix unit in a cycle, on elements of a width."""
        return self.flops_f16 if element_bytes <= 2 else self.flops_f32

    @property
    def peak_flops(self) -> dict[str, float]:
        """Operations of a second, on all tiles, by element type."""
        each = self.total_tiles * self.clock_hertz
        return {"f16": each * self.flops_f16, "f32": each * self.flops_f32}

    def of(self, count: int = 1, tiles: int = 0) -> Ipu:
        """So many of these, each with so many tiles; 0: as many as it has."""
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
"""By the name that PopART's `ipuVersion` has for them."""


def device_named(text: str) -> Ipu:
    """
    What `ipu:2` (two IPUs), `ipu1` (one of the first generation) or `ipu:1:64` (64 tiles) names.

    ValueError where it names nothing.
    """
    name, *numbers = text.split(":")
    generation = MK2 if name == "ipu" else IPUS.get(name)
    if generation is None:
        raise ValueError(f"{name!r} is no device: there are ipu, {', '.join(IPUS)}")
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
"""The fields for which no public document has a figure: orders of magnitude."""
