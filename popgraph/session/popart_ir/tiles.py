"""Copies between the tiles that compute and those that talk to the outside."""

from __future__ import annotations

from dataclasses import replace

from popgraph.builder.opset.enums import TileSet
from popgraph.session.popart_ir.graph import Op, OpGraph
from popgraph.session.popart_ir.schedule import scheduled
from popgraph.session.popart_ir.streaming_phases import TILE_COPY, Phases

_SUFFIXES = {TileSet.IO: "_tioc", TileSet.Compute: "_fioc"}
"""How the names of copies end, by the tiles that they are on."""


def copy_to_tiles(graph: OpGraph, phases: Phases) -> None:
    """Copies what an operator reads that is on the other tiles, once for all its readers."""
    if all(op.settings.tiles is TileSet.Compute for op in graph.ops):
        return
    order = scheduled(graph)
    place = {op: number for number, op in enumerate(order)}
    for op in order:
        for id in dict.fromkeys([*op.inputs.values(), *op.outputs.values()]):
            readers = [user for user in graph.consumers(id) if user.type != TILE_COPY]
            for reader in sorted(readers, key=lambda user: place.get(user, len(place))):
                if op.type != TILE_COPY and reader in place:
                    _bring(graph, op, reader, id, phases)


def _bring(graph: OpGraph, op: Op, reader: Op, id: str, phases: Phases) -> None:
    """Has a reader of a tensor read a copy, if it is on other tiles."""
    tiles = reader.settings.tiles
    if tiles is _home(graph, id):
        return
    copy = id + _SUFFIXES[tiles]
    if copy not in graph.infos:
        graph.add_tensor(copy, graph.infos[id])
        like = op if tiles is TileSet.Compute else reader
        settings = replace(like.settings, name="", tiles=tiles)
        settings = phases.ranked(settings, TILE_COPY) if phases else settings
        made = Op(TILE_COPY, {0: id}, {0: copy}, settings=settings, backward=reader.backward)
        graph.add(made, before=reader)
    for index, read in list(reader.inputs.items()):
        if read == id:
            graph.connect(reader, index, copy)


def _home(graph: OpGraph, id: str) -> TileSet:
    """The tiles on which a tensor is: where it is computed, or first of where it is read."""
    producer = graph.producer(id)
    if producer is not None:
        return producer.settings.tiles
    return min((user.settings.tiles for user in graph.consumers(id)), key=int)
