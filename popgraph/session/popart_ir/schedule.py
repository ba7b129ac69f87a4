"""The order in which the operators of a graph are written."""

from __future__ import annotations

import sys
from heapq import heappop, heappush

from popgraph.session.popart_ir.graph import Kind, Op, OpGraph

_LAST = sys.maxsize
"""What has no phase comes after all phases."""
_FIRST = -1
"""What belongs to no part of a batch comes as early as it can."""


def scheduled(graph: OpGraph) -> list[Op]:
    """
    Operators after what they read, by priority, then as they came; updates after readers.

    What runs once for all micro-batches comes after what runs for each, and phases follow each
    other. So do parts of batches, if these are to be kept apart.
    """
    waits = {op: _before(graph, op) for op in graph.ops}
    for first, later in graph.later.items():
        for op in later:
            if op in waits and first in waits:
                waits[op].add(first)
    users: dict[Op, list[Op]] = {op: [] for op in graph.ops}
    for op, needed in waits.items():
        for one in needed:
            users[one].append(op)
    place = {op: number for number, op in enumerate(graph.ops)}

    def rank(op: Op) -> tuple[int, int, int, float, int]:
        told = op.settings
        phase = _LAST if told.phase is None else told.phase
        part = told.part if graph.in_parts and told.part is not None else _FIRST
        return told.context.place, phase, part, -told.priority, place[op]

    ready = sorted(rank(op) for op, needed in waits.items() if not needed)
    found: list[Op] = []
    while ready:
        op = graph.ops[heappop(ready)[-1]]
        found.append(op)
        for user in users[op]:
            waits[user].discard(op)
            if not waits[user]:
                heappush(ready, rank(user))
    assert len(found) == len(graph.ops), "operators can be ordered"
    return found


def _before(graph: OpGraph, op: Op) -> set[Op]:
    needed = {before for id in op.inputs.values() if (before := graph.producer(id)) is not None}
    changed = None if op.changes is None else op.input(op.changes)
    if changed is not None and graph.kind(changed) is Kind.VARIABLE:
        behind = _ordered_behind(graph, op)
        readers = (user for user in graph.consumers(changed) if not user.writes)
        needed.update(user for user in readers if user not in behind)
    return needed - {op}


def _ordered_behind(graph: OpGraph, op: Op) -> set[Op]:
    """What was told to wait for an operator: it reads of the next turn, say."""
    found, waiting = set[Op](), [op]
    while waiting:
        for later in graph.later.get(waiting.pop(), ()):
            if later not in found:
                found.add(later)
                waiting.append(later)
    return found
