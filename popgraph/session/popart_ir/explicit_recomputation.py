"""Operators that compute again, beside the gradients, what these read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from popgraph.builder.opset.enums import RecomputeType
from popgraph.session.popart_ir.graph import Op, OpGraph
from popgraph.session.popart_ir.placement import COPY
from popgraph.session.popart_ir.streaming_phases import Phases

_Place = tuple[int | None, int | None]
"""The phase and the stage of a second computation, where there are any."""


def recompute_explicitly(graph: OpGraph, phases: Phases) -> None:
    """
    Computes again what is marked, once for each stage of a pipeline that reads it.

    Only in stages on the operator's own IPU; in phases, in the one that turns its own back.
    """
    homes: dict[int, set[int]] = {}
    for op in graph.ops:
        if op.settings.stage is not None and op.settings.ipu is not None and op.type != COPY:
            homes.setdefault(op.settings.stage, set()).add(op.settings.ipu)
    marked = [op for op in graph.ops if op.settings.recompute is RecomputeType.Recompute]
    for op in reversed(marked):
        op.settings = replace(op.settings, recompute=RecomputeType.Checkpoint)
        places: dict[_Place, list[Op]] = {}
        for user in _readers(graph, op):
            place = _place(op, user, homes, phases)
            if place is not None:
                places.setdefault(place, []).append(user)
        for place, users in places.items():
            _compute_again(graph, op, place, users)


def _readers(graph: OpGraph, op: Op) -> Iterator[Op]:
    """What reads results of an operator once gradients are computed."""
    found = {user: None for id in op.outputs.values() for user in graph.consumers(id)}
    for user in found:
        if user.backward or user.settings.recompute is RecomputeType.Recomputed:
            yield user


def _place(op: Op, user: Op, homes: Mapping[int, set[int]], phases: Phases) -> _Place | None:
    """Where an operator is computed again for a reader, if it can be."""
    own, read = op.settings, user.settings
    if own.stage is not None and read.stage is not None:
        shared = homes.get(own.stage, set()) & homes.get(read.stage, set())
        return (None, read.stage) if shared else None
    if phases and own.phase is not None and read.phase is not None:
        turned = 2 * phases.count - 2 - own.phase
        return (turned, None) if turned <= read.phase else None
    return None, None


def _compute_again(graph: OpGraph, op: Op, place: _Place, users: list[Op]) -> None:
    phase, stage = place
    outputs = {
        index: graph.fresh(f"{id}_Recompute", graph.infos[id]) for index, id in op.outputs.items()
    }
    settings = replace(
        op.settings,
        recompute=RecomputeType.Recomputed,
        phase=op.settings.phase if phase is None else phase,
        stage=op.settings.stage if stage is None else stage,
    )
    for index, id in op.outputs.items():
        for user in users:
            for at, read in list(user.inputs.items()):
                if read == id:
                    graph.connect(user, at, outputs[index])
    attributes = dict(op.attributes)
    made = Op(op.type, dict(op.inputs), outputs, attributes, settings, op.called, backward=True)
    graph.add(made, before=min(users, key=graph.ops.index))
