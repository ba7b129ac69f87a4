"""What replicas tell each other about several tensors, made one operator."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace

from popgraph.session.popart_ir.graph import Op, OpGraph
from popgraph.session.popart_ir.remote_ops import GATHER, REDUCE, SCATTER
from popgraph.session.popart_ir.schedule import scheduled
from popgraph.session.settings import ReplicatedCollectivesSettings


def merge_collectives(graph: OpGraph, settings: ReplicatedCollectivesSettings) -> None:
    """
    Merges sums over replicas, scatters and gathers of one group and element type.

    They stand side by side, or are brought side by side if the schedule is to be prepared.
    """
    kinds = _kinds(settings)
    rows = _together(graph, kinds) if settings.prepareScheduleForMergingCollectives else None
    for row in rows if rows is not None else _in_rows(graph, kinds):
        _merge(graph, row)


def _kinds(settings: ReplicatedCollectivesSettings) -> dict[str, str]:
    """The types that are merged, and the operators that they become, as PopART spells them."""
    found: dict[str, str] = {}
    if settings.mergeAllReduceCollectives:
        found |= dict.fromkeys(REDUCE, "MutliReplicatedAllReduce")
    if settings.mergeReduceScatterCollectives:
        found[SCATTER] = "MutliReplicatedReduceScatter"
    if settings.mergeAllGatherCollectives:
        found[GATHER] = "MutliReplicatedAllGather"
    return found


def _together(graph: OpGraph, kinds: dict[str, str]) -> Iterator[list[Op]]:
    """All that match and need nothing of each other, wherever they stand."""
    waiting = [op for op in scheduled(graph) if op.type in kinds]
    while waiting:
        row = [waiting.pop(0)]
        for op in list(waiting):
            alike = _kind(graph, op, kinds) == _kind(graph, row[0], kinds)
            if alike and not _needs(graph, op, row):
                row.append(op)
                waiting.remove(op)
        yield row


def _in_rows(graph: OpGraph, kinds: dict[str, str]) -> Iterator[list[Op]]:
    """All that match and are run one after the other."""
    row: list[Op] = []
    for op in scheduled(graph):
        alike = bool(row) and op.type in kinds
        alike = alike and _kind(graph, op, kinds) == _kind(graph, row[0], kinds)
        if row and not (alike and not _needs(graph, op, row)):
            yield row
            row = []
        if op.type in kinds:
            row.append(op)
    if row:
        yield row


def _kind(graph: OpGraph, op: Op, kinds: dict[str, str]) -> Hashable:
    group = str(op.attributes.get("__collectiveReplicaGrouping"))
    operator = str(op.attributes.get("__collectiveOperator"))
    info = graph.infos[op.input(0)]
    return kinds[op.type], info.data_type(), group, operator, op.settings.context


def _needs(graph: OpGraph, op: Op, row: Sequence[Op]) -> bool:
    """Whether an operator depends on one of a row."""
    return any(op in set(graph.after(one)) for one in row)


def _merge(graph: OpGraph, row: Sequence[Op]) -> None:
    first, last = row[0], max(row, key=graph.ops.index)
    type_ = _kinds(ReplicatedCollectivesSettings(True, True, True, True))[first.type]
    linked = [op.input(1) for op in row if 1 in op.inputs]
    inputs = dict(enumerate([*(op.input(0) for op in row), *linked]))
    outputs = dict(enumerate(op.output for op in row))
    settings = replace(first.settings, name=type_)
    made = Op(type_, inputs, outputs, dict(first.attributes), settings, backward=first.backward)
    made.optimizes = any(op.optimizes for op in row)
    graph.add(made, before=last)
    for op in row:
        graph.order_alike(op, made)
        graph.forget(op)
