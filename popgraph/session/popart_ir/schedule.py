"""The order in which the operators of a graph are written."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush

from popgraph.session.popart_ir.graph import Kind, Op, OpGraph


def scheduled(graph: OpGraph, after: Mapping[Op, set[Op]]) -> list[Op]:
    """Operators after what they read, by priority, then as they came; updates after readers."""
    waits = {op: _before(graph, op) for op in graph.ops}
    for first, later in after.items():
        for op in later:
            if op in waits and first in waits:
                waits[op].add(first)
    users: dict[Op, list[Op]] = {op: [] for op in graph.ops}
    for op, needed in waits.items():
        for one in needed:
            users[one].append(op)
    place = {op: number for number, op in enumerate(graph.ops)}
    ready: list[tuple[float, int]] = []
    for op, needed in waits.items():
        if not needed:
            heappush(ready, (-op.settings.priority, place[op]))
    found: list[Op] = []
    while ready:
        op = graph.ops[heappop(ready)[1]]
        found.append(op)
        for user in users[op]:
            waits[user].discard(op)
            if not waits[user]:
                heappush(ready, (-user.settings.priority, place[user]))
    assert len(found) == len(graph.ops), "operators can be ordered"
    return found


def _before(graph: OpGraph, op: Op) -> set[Op]:
    needed = {before for id in op.inputs.values() if (before := graph.producer(id)) is not None}
    for id in op.inputs.values() if op.writes else ():
        if graph.kind(id) is Kind.VARIABLE and id == op.inputs.get(0):
            needed.update(user for user in graph.consumers(id) if not user.writes)
    return needed - {op}
