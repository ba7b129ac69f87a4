"""What PopART refuses when a program is made for a device, whatever the model computes."""

from __future__ import annotations

from collections.abc import Iterator

from popgraph.builder.opset.enums import VirtualGraphMode
from popgraph.popart.api.options import SessionOptions
from popgraph.popart.exceptions import popart_exception

GCL_OPTIONS = ("maxBytesPerTile", "useSynclessCollectives")
FEWEST_IO_TILES = 32


def check_gcl_options(options: SessionOptions) -> None:
    """Refuses options that the library of collectives never had."""
    for option in options.gclOptions:
        if option not in GCL_OPTIONS:
            raise popart_exception(
                f"'{option}' is not a valid gcl option. Valid options are "
                f"{{{', '.join(GCL_OPTIONS)}}}",
                "SessionOptions.gclOptions",
            )


def check_lowering(options: SessionOptions, tiles: int | None) -> None:
    """
    Refuses options that do not fit each other, or the device.

    An IPU has so many `tiles`, 0 if that is not known; None on a CPU.
    """
    for complaint in (
        *_of_replicas(options),
        *(() if tiles is None else _of_tiles(options, tiles)),
    ):
        raise popart_exception(complaint, "SessionOptions")


def _of_replicas(options: SessionOptions) -> Iterator[str]:
    if options.replicatedGraphCount > 1 and not options.enableReplicatedGraphs:
        yield (
            "enableReplicatedGraphs is false, but replicatedGraphCount > 1. Either enable "
            "replication, or set the replicated graph count to 1"
        )


def _of_tiles(options: SessionOptions, tiles: int) -> Iterator[str]:
    count = options.numIOTiles
    if options.virtualGraphMode is VirtualGraphMode.Off:
        return
    if count > 0 and (count < FEWEST_IO_TILES or count % 2):
        yield (
            f"{count} is an invalid number of IO tiles. Number of IO tiles must be an even number "
            f"and >= {FEWEST_IO_TILES}."
        )
    if count > 0 and count >= tiles > 0:
        yield f"Tiles per IPU {tiles} should exceed number of IO tiles {count}."
