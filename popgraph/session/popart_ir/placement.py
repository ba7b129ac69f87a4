"""Operators that bring data where they are needed: copies between IPUs and to the host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from popgraph.builder.opset.enums import TileSet
from popgraph.session.popart_ir.graph import Kind, Op, OpGraph, Settings

COPY = "IpuCopy"
SOURCES = "__sourceIpus"
"""The attribute of a copy that tells the IPUs that have what it copies."""


STREAM = "hostStreamTensorId"
"""The attribute that tells what is loaded from the host, or stored there."""


def add_loads(graph: OpGraph, priority: float, tiles: Mapping[str, TileSet]) -> None:
    """Has inputs loaded into tensors of their own, on the tiles that are told."""
    for id in graph.inputs:
        users = graph.consumers(id)
        if graph.kind(id) is not Kind.STREAM or not users:
            continue
        where = tiles.get(id, TileSet.Compute)
        stages = [user.settings.stage for user in users if user.settings.stage is not None]
        settings = Settings(
            ipu=users[0].settings.ipu,
            stage=min(stages, default=None),
            tiles=where,
            priority=priority,
        )
        empty, loaded = graph.fresh(id, graph.infos[id]), graph.fresh(id, graph.infos[id])
        graph.replace_uses(id, loaded)
        first = min(users, key=graph.ops.index)
        graph.add(Op("Init", {}, {0: empty}, {"inittype": 1}, settings), before=first)
        graph.add(Op("HostLoad", {0: empty}, {0: loaded}, {STREAM: id}, settings), before=first)


def add_store(graph: OpGraph, id: str, anchor: str, priority: float, tiles: TileSet) -> None:
    """Has a tensor stored on the host, as an anchor."""
    if id not in graph.infos:
        return
    loads = (op for op in graph.ops if op.attributes.get(STREAM) == id)
    id = next((op.output for op in loads if op.type == "HostLoad"), id)
    producer = graph.producer(id)
    like = producer.settings if producer else Settings()
    settings = Settings(ipu=like.ipu, stage=like.stage, tiles=tiles, priority=priority)
    behind = 0 if producer is None else graph.ops.index(producer) + 1
    place = graph.ops[behind] if behind < len(graph.ops) else None
    graph.add(Op("HostStore", {0: id}, {}, {STREAM: anchor}, settings, writes=True), before=place)


def add_copies(graph: OpGraph) -> None:
    """Copies what an operator reads from another IPU, once for each."""
    copied: dict[tuple[str, int], str] = {}
    for op in list(graph.ops):
        for index, id in list(op.inputs.items()):
            source, ipu = _home(graph, id), op.settings.ipu
            if source is None or ipu is None or source == ipu:
                continue
            if (id, ipu) not in copied:
                copied[id, ipu] = graph.add_tensor(f"{id}_c{ipu}", graph.infos[id])
                producer = graph.producer(id)
                settings = replace(
                    producer.settings if producer else Settings(), ipu=source, name=""
                )
                made = copy_to(ipu, id, copied[id, ipu], settings, backward=op.backward)
                graph.add(made, before=op)
            graph.connect(op, index, copied[id, ipu])


def copy_to(ipu: int, id: str, output: str, settings: Settings, *, backward: bool = True) -> Op:
    """A copy of a tensor to an IPU, from the one of the settings."""
    attributes: dict[str, object] = {
        SOURCES: [settings.ipu],
        "__destIpu": ipu,
    }
    return Op(COPY, {0: id}, {0: output}, attributes, settings, backward=backward)


def delay_copies(graph: OpGraph) -> None:
    """Has copies between IPUs, and gradients of kernels, run when nothing else can."""
    for op in graph.ops:
        if op.type == COPY or op.type == "ConvWeightsGrad":
            op.settings = replace(op.settings, priority=float("-inf"))


def destination(op: Op) -> int:
    """The IPU to which a copy goes."""
    return int(str(op.attributes["__destIpu"]))


def leaves_phase(op: Op, stages: int) -> bool:
    """Whether an operator copies from the IPUs of one execution phase to those of the next."""
    if op.type != COPY or op.settings.ipu is None:
        return False
    return (op.settings.ipu - destination(op)) % stages != 0


def _home(graph: OpGraph, id: str) -> int | None:
    """The IPU on which a tensor is: where it is computed, or first read."""
    producer = graph.producer(id)
    if producer is not None:
        return producer.settings.ipu
    places = [user.settings.ipu for user in graph.consumers(id) if user.settings.ipu is not None]
    return min(places, default=None)
