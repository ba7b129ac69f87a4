"""What operators of a main loop do in each turn: exchange with the host, computation, both ways."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from popgraph.builder.opset.enums import ExchangeStrategy, TileSet
from popgraph.session.popart_ir.graph import Op, OpGraph, words
from popgraph.session.popart_ir.placement import COPY, STREAM
from popgraph.session.popart_ir.schedule import scheduled
from popgraph.session.popart_ir.streaming_phases import TILE_COPY

_EXCHANGES = words(
    "RemoteLoad RemoteLoadInplace RemoteStore HostLoad HostLoadInplace HostStore MultiExchange"
)
_CONNECTED = _EXCHANGES - {"MultiExchange"} | {"Init", TILE_COPY}
"""What belongs to an exchange with the host."""


class Part(IntEnum):
    """The parts of a turn, in their order."""

    BEFORE_LOAD = 0
    LOAD = 1
    TO_COMPUTE = 2
    COMPUTE = 3
    FROM_COMPUTE = 4
    STORE = 5
    AFTER_STORE = 6


@dataclass(frozen=True, order=True)
class Role:
    """The part of a turn that an operator belongs to."""

    part: Part
    sends: bool = False
    """It copies from one stage of a pipeline to the next."""
    at_once: bool = False
    """It is no computation, and yet in the same turn as that."""


COMPUTE, SEND = Role(Part.COMPUTE), Role(Part.COMPUTE, sends=True)
TO_COMPUTE, FROM_COMPUTE = Role(Part.TO_COMPUTE), Role(Part.FROM_COMPUTE)
_WORKING = {COMPUTE, SEND, TO_COMPUTE, FROM_COMPUTE}


def _roles(part: Part) -> tuple[Role, Role]:
    """The role of a turn of its own, and that in the turn of the computation."""
    return Role(part), Role(part, at_once=True)


FIRST, FIRST_AT_ONCE = _roles(Part.BEFORE_LOAD)
LOAD, LOAD_AT_ONCE = _roles(Part.LOAD)
STORE, STORE_AT_ONCE = _roles(Part.STORE)
LAST, LAST_AT_ONCE = _roles(Part.AFTER_STORE)
_EARLY = {FIRST, FIRST_AT_ONCE, LOAD, LOAD_AT_ONCE}
_LATE = {STORE, STORE_AT_ONCE, LAST, LAST_AT_ONCE}


@dataclass
class Neighbours:
    """An operator, and the roles of those around it, as far as they are known."""

    op: Op
    at_once: bool
    """It exchanges data just in time."""
    before: set[Role] = field(default_factory=set)
    after: set[Role] = field(default_factory=set)
    receives: bool = False
    """It reads from another stage."""
    gives: bool = False
    """Another stage reads of it."""
    guesses: bool = False
    """What nothing else decides is chosen by what is around."""
    waits: bool = False
    """What nothing needs is late."""

    @property
    def computes(self) -> bool:
        return self.op.settings.tiles is TileSet.Compute

    @property
    def exchanges(self) -> bool:
        return self.op.type in _EXCHANGES


Rule = Callable[[Neighbours], Role | None]


def roles_of(
    graph: OpGraph, rule: Rule, just_in_time: Callable[[Op], bool], *, by_stage: bool
) -> dict[Op, Role]:
    """
    The roles of all operators, by a rule that knows those around each.

    Where nothing changes any more, what is left is chosen by what is around, and at last what
    nothing needs is late.
    """
    ops, relations = scheduled(graph), _relations(graph)
    found: dict[Op, Role] = {}
    guesses = waits = False
    at_once = {op: is_at_once(graph, op, just_in_time) for op in ops}
    for _ in range(len(ops) * len(Part) + 2):
        changed = False
        for op in ops:
            told = Neighbours(op, at_once[op], guesses=guesses, waits=waits)
            _look_around(told, relations[op], found, by_stage=by_stage)
            role = rule(told)
            if role is not None and found.get(op) != role:
                found[op], changed = role, True
        if not changed:
            if waits:
                break
            guesses, waits = True, guesses
    return {op: found.get(op, COMPUTE) for op in ops}


def _look_around(
    told: Neighbours,
    relations: tuple[Sequence[Op], Sequence[Op]],
    found: Mapping[Op, Role],
    *,
    by_stage: bool,
) -> None:
    stage = told.op.settings.stage
    before, after = relations
    for forward, others, roles in ((False, before, told.before), (True, after, told.after)):
        for other in others:
            if by_stage and other.settings.stage is None:
                continue
            if by_stage and other.settings.stage != stage:
                told.gives |= forward
                told.receives |= not forward
            elif other in found:
                roles.add(found[other])


def _relations(graph: OpGraph) -> dict[Op, tuple[list[Op], list[Op]]]:
    found: dict[Op, tuple[list[Op], list[Op]]] = {op: ([], []) for op in graph.ops}
    for op in graph.ops:
        for id in op.inputs.values():
            if (producer := graph.producer(id)) is not None:
                found[op][0].append(producer)
                found[producer][1].append(op)
    for first, later in graph.later.items():
        for op in later:
            if op in found and first in found:
                found[op][0].append(first)
                found[first][1].append(op)
    return found


def is_at_once(graph: OpGraph, op: Op, just_in_time: Callable[[Op], bool]) -> bool:
    """Whether an operator belongs to an exchange that is just in time."""
    readers = [user for id in op.outputs.values() for user in graph.consumers(id)]
    return any(
        just_in_time(one)
        for ways in (_walked(readers, lambda at: _users(graph, at)), _walked([op], _makers(graph)))
        for one in [op, *ways]
    )


def _users(graph: OpGraph, op: Op) -> Iterable[Op]:
    return [user for id in op.outputs.values() for user in graph.consumers(id)]


def _makers(graph: OpGraph) -> Callable[[Op], Iterable[Op]]:
    return lambda op: [one for id in op.inputs.values() if (one := graph.producer(id)) is not None]


def _walked(start: Iterable[Op], step: Callable[[Op], Iterable[Op]]) -> list[Op]:
    """What is reached by way of exchanges."""
    seen, waiting = dict.fromkeys(start), list(start)
    while waiting:
        op = waiting.pop()
        if op.type not in _CONNECTED:
            continue
        for other in step(op):
            if other not in seen:
                seen[other] = None
                waiting.append(other)
    return list(seen)


def strategy_among(
    strategies: Mapping[str, ExchangeStrategy], chosen: Iterable[ExchangeStrategy]
) -> Callable[[Op], bool]:
    """Whether an operator on tiles for exchange follows one of some strategies."""
    wanted = frozenset(chosen)

    def follows(op: Op) -> bool:
        if STREAM not in op.attributes or op.settings.tiles is not TileSet.IO:
            return False
        told = strategies.get(str(op.attributes[STREAM]), ExchangeStrategy.JustInTime)
        return told in wanted

    return follows


def overlapped_role(at: Neighbours) -> Role | None:
    """The role of an operator in a loop whose exchanges overlap with its computation."""
    if at.op.type == TILE_COPY:
        if not at.computes:  # a loop that takes the copy is part of the computation
            return COMPUTE if at.at_once or COMPUTE in at.after else FROM_COMPUTE
        if at.before & {FROM_COMPUTE, STORE, LAST}:
            return LAST
        return COMPUTE if COMPUTE in at.before else TO_COMPUTE
    if (at.computes and LOAD in at.after) or FIRST in at.after:
        return FIRST
    if (at.computes and STORE in at.before) or LAST in at.before:
        return LAST
    if at.exchanges:
        if at.at_once or at.computes:
            return COMPUTE
        idle = at.waits and not at.after & {FIRST, LOAD, *_WORKING}
        return STORE if idle or at.before & _WORKING else LOAD
    if at.computes and at.before & {TO_COMPUTE, LOAD, COMPUTE}:
        return COMPUTE
    if not at.guesses:
        return None
    return COMPUTE if at.computes else _beside(at)


def _beside(at: Neighbours) -> Role | None:
    """A role next to what is around, which keeps nobody from exchanging at once."""
    if at.after:
        role = min(at.after)
        return FIRST if role == LOAD else role
    if at.before:
        role = max(at.before)
        return LAST if role == STORE else role
    return FIRST if at.waits else None


def staged_role(at: Neighbours) -> Role | None:
    """The role of an operator in a loop whose turns are stages of a pipeline."""
    at_once = at.at_once or (at.computes and at.op.type != TILE_COPY)
    if at.op.type == TILE_COPY:
        if at.computes and at.before & {COMPUTE, SEND, FROM_COMPUTE, *_LATE}:
            return LAST
        return COMPUTE if at_once else TO_COMPUTE if at.computes else FROM_COMPUTE
    if not at.exchanges and not at.receives:
        if at.after & {LOAD, FIRST}:
            return FIRST
        if at.after & {LOAD_AT_ONCE, FIRST_AT_ONCE}:
            return FIRST_AT_ONCE
    if not at.exchanges and not at.gives:
        if at.before & {STORE, LAST}:
            return LAST
        if at.before & {STORE_AT_ONCE, LAST_AT_ONCE}:
            return LAST_AT_ONCE
    if at.exchanges:
        return _staged_exchange(at, at_once=at_once)
    if at.receives or at.gives or at.before & {TO_COMPUTE, LOAD, LOAD_AT_ONCE, COMPUTE, SEND}:
        if SEND in at.before:
            return LAST_AT_ONCE
        return SEND if at.op.type == COPY else COMPUTE
    if not at.guesses:
        return None
    return _staged_guess(at)


def _staged_exchange(at: Neighbours, *, at_once: bool) -> Role:
    needed = {*_EARLY, TO_COMPUTE, COMPUTE}
    if not at_once:
        needed |= {SEND, STORE_AT_ONCE, LAST_AT_ONCE, FROM_COMPUTE}
    late = at.receives or at.before & _WORKING or (at.waits and not at.after & needed)
    return Role(Part.STORE if late else Part.LOAD, at_once=at_once)


def _staged_guess(at: Neighbours) -> Role | None:
    if at.op.type == COPY:
        return SEND
    if not at.computes:
        return _beside(at)
    if at.waits and not at.after & {*_EARLY, TO_COMPUTE}:
        return COMPUTE
    if at.after:
        role = min(at.after)
        return {
            LOAD: FIRST,
            TO_COMPUTE: FIRST,
            LOAD_AT_ONCE: FIRST_AT_ONCE,
            SEND: COMPUTE,
        }.get(role, role)
    if at.before:
        role = max(at.before)
        return {
            STORE: LAST,
            FROM_COMPUTE: LAST,
            STORE_AT_ONCE: LAST_AT_ONCE,
            SEND: LAST,
        }.get(role, role)
    return None
