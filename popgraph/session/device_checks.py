"""What PopART refuses when a program is made for a device, whatever the model computes."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from popgraph.builder.opset.enums import VirtualGraphMode
from popgraph.builder.opset.exceptions import popart_exception
from popgraph.session.options import SessionOptions

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


def check_lowering(options: SessionOptions, tiles: int | None, tensors: Collection[str]) -> None:
    """
    Refuses options that do not fit the device, each other, or the tensors of the program.

    An IPU has so many `tiles`, 0 if that is not known; None on a CPU.
    """
    for complaint in (
        *_of_replicas(options),
        *(() if tiles is None else _of_tiles(options, tiles)),
        *_of_buffers(options, tensors),
    ):
        raise popart_exception(complaint, "SessionOptions")


def _of_replicas(options: SessionOptions) -> Iterator[str]:
    several = options.replicatedGraphCount > 1
    if several and not options.enableReplicatedGraphs:
        yield (
            "enableReplicatedGraphs is false, but replicatedGraphCount > 1. Either enable "
            "replication, or set the replicated graph count to 1"
        )
    if several and options.opxModifyChecking:
        yield (
            "Can not do opx modify checking when using replicated graphs. Set "
            "SessionOptions::opxModifyChecking to false."
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


def _of_buffers(options: SessionOptions, tensors: Collection[str]) -> Iterator[str]:
    for id in options.updatableNamedBuffers:
        if id not in tensors:
            yield (
                "Invalid named buffer in updatableNamedBuffers!\n"
                f"No Ir::Tensor with TensorId '{id}' in Ir::getTensor(..) "
            )
