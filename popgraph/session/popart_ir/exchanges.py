"""Loads and stores that follow each other, made one operator."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace

from popgraph.builder.opset.enums import AccumulateOuterFragmentSchedule
from popgraph.session.options import SessionOptions
from popgraph.session.popart_ir.graph import Op, OpGraph
from popgraph.session.popart_ir.placement import STREAM
from popgraph.session.popart_ir.remote_ops import (
    EXCHANGES,
    LOAD,
    MERGED,
    STORE,
    Exchange,
)
from popgraph.session.popart_ir.schedule import scheduled

_LOADS = frozenset([LOAD, "HostLoad"])
_MERGEABLE = _LOADS | {STORE, "HostStore"}


def merge_exchanges(graph: OpGraph, options: SessionOptions) -> None:
    """Merges loads and stores between which nothing else runs, unless one needs another."""
    schedule = options.accumulateOuterFragmentSettings.schedule
    apart = schedule is AccumulateOuterFragmentSchedule.OverlapMemoryOptimized
    row = _Row(apart)
    before: Op | None = None
    for op in scheduled(graph):
        if not row.takes(graph, op, before):
            row.merge(graph)
            row = _Row(apart)
        if op.type in _MERGEABLE:
            row.ops.append(op)
        before = op
    row.merge(graph)


@dataclass
class _Row:
    """Loads and stores in a row."""

    apart: bool
    """Behind the micro-batches, loads and stores are not merged."""
    ops: list[Op] = field(default_factory=list)

    def takes(self, graph: OpGraph, op: Op, before: Op | None) -> bool:
        """Whether an operator goes on with the row, or may stand in it."""
        if op.type != "Init" and op.type not in _MERGEABLE:
            return False
        if before is not None and before.settings.context is not op.settings.context:
            return False
        if self.apart and op.settings.after_batches and self._mixes(op):
            return False
        return not any(graph.producer(id) in self.ops for id in op.inputs.values())

    def _mixes(self, op: Op) -> bool:
        types = {one.type for one in self.ops}
        return (op.type == STORE and LOAD in types) or (op.type == LOAD and STORE in types)

    def merge(self, graph: OpGraph) -> None:
        if len(self.ops) > 1:
            _merge(graph, self.ops)


def _merge(graph: OpGraph, ops: Collection[Op]) -> None:
    *_, last = ops
    for op in ops:
        graph.later.get(op, set()).difference_update(ops)
    inputs = [id for op in ops for _, id in sorted(op.inputs.items())]
    outputs = [id for op in ops for _, id in sorted(op.outputs.items())]
    settings = replace(last.settings, name="")
    made = Op(MERGED, dict(enumerate(inputs)), dict(enumerate(outputs)), settings=settings)
    made.attributes[EXCHANGES] = tuple(_parts(ops))
    made.writes, made.backward = True, last.backward
    graph.add(made, before=last)
    for op in ops:
        graph.order_alike(op, made)
        graph.forget(op)


def _parts(ops: Collection[Op]) -> Iterator[Exchange]:
    """What each operator does, as part of the one that they become."""
    at = 0
    for op in ops:
        direction = "Load" if op.type in _LOADS else "Store"
        stream = str(op.attributes.get(STREAM, ""))
        argument = at + 1 if op.type in (LOAD, STORE) else None
        yield Exchange(direction, stream, op.settings.ipu, op.settings.tiles, argument)
        at += len(op.inputs)
