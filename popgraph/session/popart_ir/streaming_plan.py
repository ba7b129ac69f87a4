"""Which tensors are loaded, stored and gathered, and when: those that are not whole on the chip."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from popgraph.builder.opset.enums import (
    RecomputeType,
    ReplicatedTensorSharding,
    TensorStorage,
)
from popgraph.session.popart_ir.graph import Context, Kind, Op, OpGraph, Settings
from popgraph.session.popart_ir.placement import COPY, destination, leaves_phase
from popgraph.session.popart_ir.schedule import scheduled
from popgraph.session.settings import TensorLocation

_NEITHER, _BEFORE, _BEHIND = range(3)
"""On which side of the loss."""
_NO_PHASE = -1


@dataclass(frozen=True, order=True)
class Moment:
    """The part of a program, and in it the phase, or the side of the loss."""

    part: int
    phase: int = _NO_PHASE
    side: int = _NEITHER

    @property
    def context(self) -> Context:
        return list(Context)[self.part]


_FROM_HOST, _AFTER_BATCHES, _TO_HOST = (
    Moment(context.place)
    for context in (Context.WEIGHTS_FROM_HOST, Context.AFTER_BATCHES, Context.WEIGHTS_TO_HOST)
)


class Clock:
    """When the operators of a graph run."""

    def __init__(self, graph: OpGraph, loss: str | None, phases: int) -> None:
        self._phases = phases if phases > 1 else 0
        self.order = {op: place for place, op in enumerate(scheduled(graph))}
        final = graph.producer(loss) if loss is not None else None
        behind = set(graph.after(final)) if final is not None else set()
        turn = min((self.order[op] for op in self.order if _follows(op, behind)), default=None)
        self._turn = len(self.order) if turn is None else turn

    @property
    def in_phases(self) -> bool:
        return self._phases > 0

    def of(self, op: Op) -> Moment:
        place = op.settings.context.place
        if op.settings.context is not Context.NORMAL:
            return Moment(place)
        if self.in_phases:
            return Moment(place, _NO_PHASE if op.settings.phase is None else op.settings.phase)
        return Moment(place, side=_BEHIND if self.order[op] >= self._turn else _BEFORE)

    def all(self) -> Iterator[Moment]:
        """The moments of any program."""
        yield from (_FROM_HOST, _AFTER_BATCHES, _TO_HOST)
        place = Context.NORMAL.place
        if self.in_phases:
            yield from (Moment(place, phase) for phase in range(2 * self._phases - 1))
        else:
            yield from (Moment(place, side=side) for side in (_BEFORE, _BEHIND))


def _follows(op: Op, behind: set[Op]) -> bool:
    return op.backward or op.settings.after_batches or op in behind


class Memory:
    """Which tensors have the same memory."""

    def __init__(self, graph: OpGraph) -> None:
        self._graph = graph
        self._groups: dict[str, set[str]] = {}
        for op in graph.ops:
            changed = op.modifies
            if changed is not None:
                self._join(op.input(changed), op.output)
            elif op.type.endswith("Inplace"):
                for id in op.inputs.values():
                    self._join(id, op.output)

    def _join(self, first: str, second: str) -> None:
        joined = self.of(first) | self.of(second)
        self._groups |= dict.fromkeys(joined, joined)

    def of(self, id: str) -> set[str]:
        return self._groups.get(id, {id})

    def variable(self, id: str) -> str | None:
        """The variable whose memory a tensor has."""
        found = (one for one in sorted(self.of(id)) if self._graph.kind(one) is Kind.VARIABLE)
        return next(found, None)

    def modifiers(self, id: str) -> list[Op]:
        """What changes the memory of a tensor."""
        found = [
            op
            for one in self.of(id)
            for op in self._graph.consumers(one)
            if (changed := op.modifies) is not None and op.inputs[changed] == one
        ]
        return sorted(found, key=lambda op: op.number)


@dataclass
class Streaming:
    """What happens to a tensor at a moment."""

    ipu: int | None
    load: bool = False
    store: bool = False
    gather: bool = False
    produced: bool = False
    live: bool = False
    readers: list[tuple[str, Op]] = field(default_factory=list)
    modifiers: list[Op] = field(default_factory=list)

    def take(self, other: Streaming) -> None:
        """Takes over what is done for a tensor of the same memory."""
        self.load |= other.load
        self.store |= other.store
        self.gather |= other.gather
        other.load = other.store = other.gather = False


@dataclass
class Plan:
    """What happens to a tensor."""

    id: str
    variable: str | None = None
    """The variable whose memory it has."""
    location: TensorLocation = field(default_factory=TensorLocation)
    producer: Op | None = None
    settings: Settings = field(default_factory=Settings)
    """Of what brings the tensor where it is needed."""
    members: dict[str, None] = field(default_factory=dict)
    """The tensors in its memory, if it is a variable."""
    moments: dict[Moment, Streaming] = field(default_factory=dict)

    @property
    def is_remote(self) -> bool:
        return is_remote(self.location)

    @property
    def is_sharded(self) -> bool:
        return self.location.replicatedTensorSharding is ReplicatedTensorSharding.On


def is_remote(location: TensorLocation) -> bool:
    """Whether a tensor is in memory off the chip, all of it or each replica's share."""
    off = location.storage is TensorStorage.OffChip
    return off or location.replicatedTensorSharding is ReplicatedTensorSharding.On


class Planner:
    """Plans all tensors of a graph; variables come last, whose plans hold for their memory."""

    def __init__(
        self, graph: OpGraph, clock: Clock, stages: int, where: Callable[[str], TensorLocation]
    ) -> None:
        self._graph, self._clock, self._stages, self._where = graph, clock, stages, where
        self._memory = Memory(graph)
        self.plans: dict[str, Plan] = {}

    def run(self) -> list[str]:
        """Fills `plans`; the tensors in the order in which they occur."""
        seen: dict[str, None] = {}
        for op in self._clock.order:
            seen |= dict.fromkeys([*op.inputs.values(), *op.outputs.values()])
        for id in reversed(seen):
            self._plan(id)
        return list(seen)

    def _of(self, id: str) -> Plan:
        return self.plans.setdefault(id, Plan(id))

    def _plan(self, id: str) -> None:
        graph, plan = self._graph, self._of(id)
        plan.producer = graph.producer(id)
        plan.variable = self._memory.variable(id)
        if plan.variable is not None:
            self._of(plan.variable).members[id] = None
        ids = dict.fromkeys([id, *plan.members])
        readers = [(one, op) for one in ids for op in graph.consumers(one)]
        readers.sort(key=lambda pair: self._clock.order[pair[1]])
        plan.location = self._where(plan.variable or id)
        first = readers[0][1].settings if readers else Settings()
        like = first if plan.producer is None else plan.producer.settings
        plan.settings = replace(like, name="", recompute=RecomputeType.Checkpoint, location=None)
        ipu = self._ipu(id, plan.producer, [op for _, op in readers])
        plan.moments = {moment: Streaming(ipu) for moment in self._clock.all()}
        self._begin(plan)
        for reader in readers:
            self._read(plan, reader)
        self._finish(plan)

    def _ipu(self, id: str, producer: Op | None, readers: list[Op]) -> int | None:
        """Where a tensor is computed, or else read first."""
        if producer is not None and producer.type == COPY:
            return destination(producer)
        if producer is not None:
            return producer.settings.ipu
        return min((op.settings.ipu for op in readers if op.settings.ipu is not None), default=None)

    def _begin(self, plan: Plan) -> None:
        """What does not follow from readers."""
        moments = plan.moments
        if plan.is_sharded and plan.location.storage is TensorStorage.OnChip:
            moments[_FROM_HOST].load = moments[_FROM_HOST].live = True
            moments[_TO_HOST].store = moments[_TO_HOST].live = True
        for id in plan.members:
            if id != plan.id:
                for moment, streaming in self.plans[id].moments.items():
                    self._at(plan, moment).take(streaming)
        if plan.producer is not None:
            moment = self._clock.of(plan.producer)
            if self._clock.in_phases and leaves_phase(plan.producer, self._stages):
                moment = replace(moment, phase=moment.phase + 1)
            made = self._at(plan, moment)
            made.produced = made.live = True
            made.store |= plan.location.storage is TensorStorage.OffChip

    def _at(self, plan: Plan, moment: Moment) -> Streaming:
        ipu = next(iter(plan.moments.values())).ipu
        return plan.moments.setdefault(moment, Streaming(ipu))

    def _read(self, plan: Plan, reader: tuple[str, Op]) -> None:
        moment = self._clock.of(reader[1])
        now = self._at(plan, moment)
        now.readers.append(reader)
        now.live = True
        before = self._before(plan, moment)
        now.load |= not now.produced
        for earlier in before:
            if earlier.live:  # it stays where it is, and is stored no sooner than here
                now.load = False
                now.store |= earlier.store
                earlier.store = False
        if not now.modifiers:
            found = self._memory.modifiers(plan.id)
            now.modifiers = [op for op in found if self._clock.of(op) == moment]
        if now.modifiers:
            now.store = True
            for earlier in before:
                earlier.store = False

    def _before(self, plan: Plan, moment: Moment) -> list[Streaming]:
        """The last two phases, in one of which the same IPU ran."""
        if not self._clock.in_phases or moment.phase == _NO_PHASE:
            return []
        near = (replace(moment, phase=moment.phase - back) for back in (2, 1))
        return [plan.moments[one] for one in near if one in plan.moments]

    def _finish(self, plan: Plan) -> None:
        moments = plan.moments
        if plan.is_sharded:
            for streaming in moments.values():
                streaming.gather = streaming.load and bool(streaming.readers)
        if moments[_FROM_HOST].load and moments[_TO_HOST].store:
            for moment, streaming in moments.items():
                if moment not in (_FROM_HOST, _TO_HOST):
                    streaming.load = streaming.store = False
                    streaming.live = True
        if not any(streaming.load for streaming in moments.values()):
            for streaming in moments.values():
                streaming.store = False
