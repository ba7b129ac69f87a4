"""The order in which the operators of a graph are written."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise
from typing import Any

from popgraph.session.options import SessionOptions
from popgraph.session.popart_ir.graph import Context, Kind, Op, OpGraph, words
from popgraph.session.popart_ir.lifetimes import Problem, shortened

_LAST = sys.maxsize
"""What has no phase comes after all phases."""
_FIRST = -1
"""What belongs to no part of a batch comes as early as it can."""
EARLY = "popgraph.early"
"""An attribute of what belongs to gradients, but needs none, and may run before the loss."""
_OVERWRITING = words("HostLoadInplace RemoteLoadInplace")
"""What reads nothing of its first input, which it writes over."""
_BEFORE_ALL = -2
"""What has no phase, and is in no part of a batch, comes before what has one."""


def scheduled(graph: OpGraph) -> list[Op]:
    """
    Operators after what they read, by priority, then as they came; updates after readers.

    What runs once for all micro-batches comes after what runs for each, and phases follow each
    other. So do parts of batches.
    """
    waits = _waits(graph)
    users: dict[Op, list[Op]] = {op: [] for op in graph.ops}
    for op, needed in waits.items():
        for one in needed:
            users[one].append(op)
    place = {op: number for number, op in enumerate(graph.ops)}

    def rank(op: Op) -> tuple[int, int, int, float, int]:
        told = op.settings
        phase = _LAST if told.phase is None else told.phase
        part = _FIRST if told.part is None else told.part
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


def _waits(graph: OpGraph) -> dict[Op, set[Op]]:
    """What each operator waits for."""
    waits = {op: _before(graph, op) for op in graph.ops}
    for first, later in graph.later.items():
        for op in later:
            if op in waits and first in waits:
                waits[op].add(first)
    return waits


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


@dataclass(frozen=True)
class Scheduler:
    """
    Orders operators as PopART's scheduler does.

    Priorities come first, then operators that belong together, then how long tensors live, each
    with its size; what is left is decided by types and names, the last of the alphabet first.
    """

    phases: bool = False
    """What has a phase runs in it."""
    stages: bool = False
    """So does what has a pipeline stage, and updates run one IPU after the other."""
    loss: str | None = None
    """A tensor that is computed before its gradient is, where that counts."""
    breaker: str = "greedy"
    most: int = sys.maxsize
    """How often operators may be moved."""

    @staticmethod
    def of(options: SessionOptions, loss: str | None, *, phases: bool) -> Scheduler:
        """As the options of a session ask for it."""
        limited = options.timeLimitScheduler <= 0
        return Scheduler(
            phases,
            options.enablePipelining,
            loss,
            options.kahnTieBreaker.lower(),
            0 if limited else options.swapLimitScheduler,
        )

    def order(self, graph: OpGraph) -> list[Op]:
        """The operators of a graph in the order in which they are written."""
        if not graph.ops:
            return []
        ops = graph.ops
        places = {op: number for number, op in enumerate(ops)}
        waits = [{places[one] for one in needed} for needed in _waits(graph).values()]
        for bins in self._bins(graph):
            _keep_apart([[places[op] for op in one] for one in bins], waits)
        found = shortened(self._problem(graph, places, waits), self.breaker, self.most)
        return [ops[node] for node in found if node < len(ops)]

    def _problem(self, graph: OpGraph, places: Mapping[Op, int], waits: list[set[int]]) -> Problem:
        """What is more important costs more than all that is less, for all of the time."""
        size, ops = len(waits), graph.ops
        names = _ranks([(op.type, _names(op), op.number) for op in ops])
        lives = [
            (graph.infos[id].nbytes(), sorted(places[op] for op in ends))
            for id, ends in _ends(graph).items()
        ]
        byte = 1 + size * sum(names)
        tie = 1 + byte * size * sum(weight for weight, _ in lives)
        ties = [
            (tie, sorted((places[first], places[op])))
            for first, op in graph.ties
            if first in places and op in places
        ]
        urgent = 1 + tie * size * (1 + len(ties))
        ranks = _ranks([self._urgency(op) for op in ops])
        pulls = [urgent * rank + name for rank, name in zip(ranks, names, strict=True)]
        scaled = [(byte * weight, ends) for weight, ends in lives if weight]
        return Problem(waits, [*scaled, *ties], pulls + [0] * (size - len(ops)))

    def _urgency(self, op: Op) -> tuple[int, float, int, float]:
        told = op.settings
        phase = _BEFORE_ALL if told.phase is None or not self.phases else told.phase
        if told.part is None:
            return -phase, told.priority, -_BEFORE_ALL, 0.0
        return -phase, 0.0, -told.part, told.priority

    def _bins(self, graph: OpGraph) -> Iterable[list[list[Op]]]:
        """Groups of operators of which each runs before the next begins."""
        ops = graph.ops
        if self.phases:
            yield _by([(op.settings.phase, op) for op in ops])
        if self.stages:
            normal = [op for op in ops if op.settings.context is Context.NORMAL]
            yield _by([(op.settings.stage, op) for op in normal])
            behind = [op for op in ops if op.settings.after_batches]
            staged = [op for op in behind if op.settings.stage is not None]
            yield _by([(op.settings.ipu, op) for op in staged])
        final = None if self.loss is None else graph.producer(self.loss)
        if final is not None:
            behind_loss = set(graph.after(final)) | {
                one
                for op in ops
                if op.backward and EARLY not in op.attributes
                for one in graph.after(op)
            }
            before = set(graph.before(final)) - behind_loss
            yield [[op for op in ops if op in one] for one in (before, behind_loss)]
        yield _by([(op.settings.context.place, op) for op in ops])


def _by(numbered: Sequence[tuple[int | None, Op]]) -> list[list[Op]]:
    """Operators with a number in groups, in the order of the numbers."""
    groups: dict[int, list[Op]] = {}
    for number, op in numbered:
        if number is not None:
            groups.setdefault(number, []).append(op)
    return [groups[number] for number in sorted(groups)]


def _keep_apart(bins: Sequence[Sequence[int]], waits: list[set[int]]) -> None:
    """Puts a node between each group and the next."""
    between: int | None = None
    for before, after in pairwise(bins):
        waits.append({*before} if between is None else {*before, between})
        between = len(waits) - 1
        for node in after:
            waits[node].add(between)


def _ends(graph: OpGraph) -> Mapping[str, set[Op]]:
    """Between which operators tensors live: what computes them and what reads them."""
    found: dict[str, set[Op]] = {}
    for op in graph.ops:
        lost = op.inputs.get(0) if op.type in _OVERWRITING else None
        for id in (*op.inputs.values(), *op.outputs.values()):
            if graph.kind(id) is not Kind.VARIABLE and id != lost:
                found.setdefault(id, set()).add(op)
    return {id: ends for id, ends in found.items() if len(ends) > 1}


def _names(op: Op) -> str:
    tensors = [*map(op.inputs.get, sorted(op.inputs)), *map(op.outputs.get, sorted(op.outputs))]
    return "".join(f"{id}_" for id in tensors)


def _ranks(keys: Sequence[Hashable]) -> list[int]:
    """The place of each key among all different ones in their order."""
    sortable: Any = set(keys)
    ranks = {key: rank for rank, key in enumerate(sorted(sortable))}
    return [ranks[key] for key in keys]
