"""The report of a program on IPUs: cycles of steps and memory of tiles, as data and as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from popgraph.ipu.machine import Ipu
from popgraph.ipu.memory import Memory
from popgraph.ipu.model import Call, IpuModel, Part
from popgraph.ipu.simulator import Step
from popgraph.support.tables import table


def content(model: IpuModel) -> dict[str, Any]:
    """The complete report as plain data."""
    return {
        "machine": machine(model.ipu),
        "cycles": {"total": model.cycles, **model.split()},
        "microseconds": model.seconds * 1e6,
        "flops": model.flops,
        "shareOfPeak": share_of_peak(model),
        "steps": [_part(part) for part in model.parts],
        "memory": memory(model.memory),
    }


def machine(ipu: Ipu) -> dict[str, Any]:
    """The machine model."""
    return {
        "name": ipu.name,
        "source": ipu.source,
        "numIPUs": ipu.count,
        "tilesPerIPU": ipu.tiles,
        "bytesPerTile": ipu.tile_bytes,
        "workers": ipu.workers,
        "clockHertz": ipu.clock_hertz,
        "flopsPerCycle": {"f16": ipu.flops_f16, "f32": ipu.flops_f32},
        "exchangeBytesPerCycle": ipu.exchange_bytes,
        "linkBytesPerSecond": ipu.link_hertz_bytes,
    }


def rate(model: IpuModel) -> float:
    """Flops per second of the program."""
    return model.flops / model.seconds if model.cycles else 0.0


def share_of_peak(model: IpuModel) -> dict[str, float]:
    """The program's flops relative to the peak of the matrix units, by element type."""
    return {kind: rate(model) / peak for kind, peak in model.ipu.peak_flops.items()}


def _part(part: Part) -> dict[str, Any]:
    if isinstance(part, Call):
        return {
            "kind": part.kind,
            "turns": part.turns,
            "cycles": part.cycles,
            "copies": [_part(copy) for copy in part.copies],
            "bodies": [[_part(one) for one in body] for body in part.bodies],
        }
    return {
        "kind": part.kind,
        "source": part.source,
        "cycles": part.cycles,
        "compute": part.compute,
        "exchange": part.exchange,
        "sync": part.sync,
        "tiles": part.tiles,
        "flops": part.flops,
        "bytesExchanged": part.exchanged,
        "bytesOverLinks": part.linked,
        "mostTemporaryBytes": int(part.temporary.max(initial=0)),
    }


def memory(found: Memory) -> dict[str, Any]:
    """Tile memory: permanent bytes by category, liveness of other tensors, bytes of each tile."""
    return {
        "bytesPerTile": found.ipu.tile_bytes,
        "alwaysLive": {name: int(each.sum()) for name, each in found.by_category.items()},
        "liveness": [
            {"kind": one.name, "total": one.total, "largest": one.largest} for one in found.moments
        ],
        "byTile": found.by_tile.tolist(),
        "fullestTile": found.fullest,
        "overflowing": found.overflowing,
    }


def text(model: IpuModel, rows: int) -> str:
    """The report as text: totals, longest steps, and memory."""
    return "\n".join([*head(model), "", _longest(model, rows)])


def head(model: IpuModel) -> list[str]:
    """The totals."""
    ipu, split, needed = model.ipu, model.split(), model.memory
    total = max(1, model.cycles)
    shares = ", ".join(f"{name} {cycles / total:.1%}" for name, cycles in split.items())
    tile, most = needed.fullest, int(needed.by_tile.max(initial=0))
    lines = [
        f"Model of {ipu.count} {ipu.name} with {ipu.tiles} tiles of {ipu.tile_bytes // 1024} KiB "
        f"({ipu.source})",
        f"{model.cycles} cycles, {model.seconds * 1e6:.1f} us at {ipu.clock_hertz / 1e9:g} GHz: "
        f"{shares}",
        f"{model.flops / 1e9:.3f} Gflop, {rate(model) / 1e12:.2f} Tflop/s",
        f"Memory: {int(needed.by_tile.sum()) / 2**20:.1f} MiB in all; tile {tile} needs most, "
        f"{most} of {ipu.tile_bytes} bytes ({most / ipu.tile_bytes:.1%})",
        *(
            f"  {name}: {int(each.sum())} bytes, at most {int(each.max(initial=0))} on a tile"
            for name, each in [*needed.by_category.items(), ("not always live", needed.peak)]
        ),
    ]
    if needed.overflowing:
        lines.append(f"OUT OF MEMORY: {overflow(needed)}")
    return lines


def overflow(needed: Memory) -> str:
    """The overflow of the fullest tile, as a sentence."""
    tile, tiles = needed.fullest, needed.overflowing
    most = int(needed.by_tile[tile])
    beyond = most - needed.ipu.tile_bytes
    return (
        f"tile {tile} needs {most} bytes of memory and has {needed.ipu.tile_bytes}, {beyond} too "
        f"few; {len(tiles)} of {needed.ipu.total_tiles} tiles overflow"
    )


def _longest(model: IpuModel, rows: int) -> str:
    counted: Sequence[tuple[Step, int]] = sorted(
        model.executed(), key=lambda one: -one[0].cycles * one[1]
    )
    total = max(1, model.cycles)
    header = (
        "cycles", "share", "compute", "exchange", "sync", "times", "tiles", "kind", "from"
    )  # fmt: skip
    found = [
        (
            str(step.cycles * times),
            f"{step.cycles * times / total:.1%}",
            *(str(each * times) for each in (step.compute, step.exchange, step.sync)),
            str(times),
            str(step.tiles),
            step.kind,
            step.source,
        )
        for step, times in counted[:rows]
    ]
    return table([header, *found])
