"""Refuses programs that exceed the tile memory of a modelled IPU, as Poplar does."""

from __future__ import annotations

from popgraph.ipu.machine import Ipu
from popgraph.ipu.report import head, overflow
from popgraph.popart.api.debugging import OutOfMemoryError
from popgraph.popart.exceptions import OutOfMemoryException
from popgraph.popart.programs.program import Program
from popgraph.support.logs import log_of

_SURELY_FITS = 1 / 8
"""
Fraction of the total tile memory below which a program fits without consulting the model.

Most programs are far below it, and the model takes time.
"""

_HINT = (
    "take a smaller batch, more IPUs (numIPUs), or all tiles of one (tilesPerIPU: 1216 of ipu1, "
    "1472 of ipu2); createCpuDevice has the memory of this machine"
)


def check_memory(program: Program, ipu: Ipu, *, summarizes: bool) -> None:
    """With `summarizes`, the error has a memory summary, as `debug.allowOutOfMemory` requests."""
    if program.code.peak_bytes <= _SURELY_FITS * ipu.total_tiles * ipu.tile_bytes:
        return
    model = program.on_ipus(ipu)
    needed = model.memory
    if not needed.overflowing:
        return
    tile = needed.fullest
    message = (
        f"Out of memory on tile {tile}: {int(needed.by_tile[tile])} bytes used but tiles only have "
        f"{ipu.tile_bytes} bytes of memory"
    )
    log_of("devicex").error("Memory allocation error : %s", message)
    summary = "\n".join(head(model)) if summarizes else None
    raise OutOfMemoryException(OutOfMemoryError(message, summary, f"{overflow(needed)}: {_HINT}"))
