"""Loops of which the first turns begin before them, and the last ones end behind: pipelines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise

from popgraph.builder.opset.exceptions import popart_unsupported_exception
from popgraph.session.popart_ir.graph import Op, OpGraph, Settings
from popgraph.session.popart_ir.main_loops import FIRST_INPUT, TURNS, Loop, scoped
from popgraph.session.popart_ir.schedule import scheduled
from popgraph.support.logs import log_of

Value = tuple[str, int]
"""A tensor of the body, and the turn in which it is computed."""


@dataclass(frozen=True)
class Skew:
    """How many turns operators are ahead of the last ones, and where each turn of one stands."""

    turns: int
    """How many turns are no longer those of the loop."""
    ahead: Mapping[Op, int]
    position: Callable[[Op, int], int]
    """Of an operator in a turn, among all that is in the loop and around it."""
    free: bool = False
    """What is around the loop has no order but that of what it reads."""


def decompose(loop: Loop, skew: Skew) -> None:
    """Has a loop compute several turns at once, each a part of its own, with more around it."""
    trips = loop.op.integers_or(TURNS, 0)
    if trips < skew.turns:
        log_of("transform").warning(
            "[DecomposeLoops::decomposeLoop] Attempted to unroll %s iterations of LoopOp %s, but "
            "the trip count is only %s.",
            skew.turns,
            loop.op.settings.name,
            trips,
        )
    elif skew.turns:
        _check_order(loop, skew)
        _Decomposition(loop, skew).run()


def _check_order(loop: Loop, skew: Skew) -> None:
    """Refuses operators that would be turns ahead of what they read."""
    for op in loop.body.ops:
        for id in op.inputs.values():
            producer = loop.body.producer(id)
            if producer is not None and skew.ahead[producer] < skew.ahead[op]:
                raise popart_unsupported_exception(
                    f"{op.type} would be computed turns before {producer.type}, which it reads: "
                    "the IR of a pipeline of explicit main loops is not shown where its exchange "
                    "overlaps with all loops",
                    "ExchangeStrategy.OverlapLoops",
                    "ExchangeStrategy.OverlapInnerLoop",
                )


def separate_results(loop: Loop, stage: int | None) -> None:
    """Has an operator between what a loop takes and what it gives, where that is the same."""
    graph = loop.body
    for place, id in enumerate(graph.results):
        if graph.producer(id) is None:
            given = graph.fresh(id, graph.infos[id])
            readers = graph.consumers(id)
            ipu = readers[0].settings.ipu if readers else None
            told = Settings(name="LoopOutputSeparatorIdentityOp", ipu=ipu, stage=stage)
            graph.add(Op("IdentityInplace", {0: id}, {0: given}, settings=told))
            graph.results[place] = given


@dataclass
class _Slot:
    """A tensor that each turn of the loop hands on to the next."""

    first: str
    inner: str
    following: str
    last: str


@dataclass
class _Decomposition:
    loop: Loop
    skew: Skew
    _slots: dict[Value, _Slot] = field(default_factory=dict)
    _outer: dict[Value, str] = field(default_factory=dict)
    """What is computed before the loop or behind it, by the turn counted from that end."""
    _first: dict[Value, str] = field(default_factory=dict)
    """What is computed before it."""
    _carried: dict[str, str] = field(default_factory=dict)
    """What a turn gives for what the next one takes."""
    _starts: dict[str, str] = field(default_factory=dict)
    """What a loop gets for the first turn, by what turns give."""
    _implicit: dict[str, str] = field(default_factory=dict)
    """Tensors around the loop, by their names in it."""
    _numbers: dict[str, str] = field(default_factory=dict)
    """Constants around the loop, by those in it."""
    _ends: dict[str, str] = field(default_factory=dict)
    """What the loop gave, by names in it."""

    def run(self) -> None:
        loop, body, outer = self.loop, self.loop.body, self.loop.outer
        ops = scheduled(body)
        self._open()
        place = outer.ops.index(loop.op) + 1
        following = outer.ops[place] if place < len(outer.ops) else None
        outer.remove(loop.op)
        turns = range(self.skew.turns + 1)
        first = [(op, turn) for op in ops for turn in turns if turn < self.skew.ahead[op]]
        last = [(op, turn) for op in ops for turn in turns if turn > self.skew.ahead[op]]
        self._name_outputs(first)
        before = self._cloned(first, self._before)
        self._first = self._outer
        read = {
            (op, at): self._inside(id, self.skew.ahead[op])
            for op in ops
            for at, id in op.inputs.items()
        }
        self._outer = {}
        self._name_outputs(last)
        after = self._cloned(last, self._behind)
        for id in body.results:
            self._behind(id, self.skew.turns)
        for (op, index), id in read.items():
            body.connect(op, index, id)
        self._close(self.skew.turns)
        for clone in (*(op for op, _ in before), loop.op, *(op for op, _ in after)):
            outer.add(clone, before=following)
        self._order(ops, before, after)

    def _open(self) -> None:
        """Notes what goes round, and what is read as it is."""
        loop, body = self.loop, self.loop.body
        held = dict(zip(body.inputs[FIRST_INPUT:], loop.operands, strict=True))
        self._ends = {id: loop.op.outputs[at] for at, id in enumerate(body.results)}
        for id, inner in zip(body.results, loop.carried, strict=False):
            self._carried[inner] = id
            self._starts[id] = held.pop(inner)
        self._implicit = held

    # what a tensor of a turn is called

    def _around(self, id: str) -> str | None:
        """What is the same in all turns, as it is called around the loop."""
        if id in self.loop.body.constants and id not in self._numbers:
            value, info = self.loop.body.constants[id], self.loop.body.infos[id]
            self._numbers[id] = self.loop.outer.constant(self._bare(id), value, info)
        return self._implicit.get(id, self._numbers.get(id))

    def _before(self, id: str, turn: int) -> str:
        if (known := self._around(id)) is not None:
            return known
        if id in self._carried:
            return self._before(self._carried[id], turn - 1)
        return self._starts[id] if turn < 0 else self._outer[id, turn]

    def _inside(self, id: str, turn: int) -> str:
        if self._around(id) is not None:
            return id
        if id in self._carried:
            return self._inside(self._carried[id], turn - 1)
        return id if self._ahead(id) == turn else self._slot(id, turn).inner

    def _behind(self, id: str, turn: int) -> str:
        if (known := self._around(id)) is not None:
            return known
        if id in self._carried:
            return self._behind(self._carried[id], turn - 1)
        if self._ahead(id) < turn:
            return self._outer[id, turn]
        return self._slot(id, turn - 1).last

    def _ahead(self, id: str) -> int:
        producer = self.loop.body.producer(id)
        assert producer is not None, f"the loop computes {id}"
        return self.skew.ahead[producer]

    def _slot(self, id: str, turn: int) -> _Slot:
        """What a turn hands on: a tensor that the next turn takes for the one before."""
        if (id, turn) not in self._slots:
            info = self.loop.body.infos[id]
            inner = self.loop.body.fresh(id, info)
            arrives = turn + 1 == self._ahead(id)
            following = id if arrives else self._slot(id, turn + 1).inner
            ends = id in self._ends and turn + 1 == self.skew.turns
            last = self._ends[id] if ends else self._fresh(id)
            first = self._first[id, turn] if turn >= 0 else self._starts[id]
            self._slots[id, turn] = _Slot(first, inner, following, last)
        return self._slots[id, turn]

    def _fresh(self, id: str) -> str:
        body, outer = self.loop.body, self.loop.outer
        return outer.fresh(scoped(outer, self._bare(id)), body.infos[id])

    def _bare(self, id: str) -> str:
        """A name in the loop, without that of the loop."""
        return id.removeprefix(scoped(self.loop.body, ""))

    # operators

    def _name_outputs(self, turns: Sequence[tuple[Op, int]]) -> None:
        for op, turn in turns:
            for id in op.outputs.values():
                ends = turn == self.skew.turns and id in self._ends
                self._outer[id, turn] = self._ends[id] if ends else self._fresh(id)

    def _cloned(
        self, turns: Sequence[tuple[Op, int]], name: Callable[[str, int], str]
    ) -> list[tuple[Op, int]]:
        """Operators outside of the loop, in their order, and where they stand."""
        told = self.loop.op.settings
        found = []
        for op, turn in turns:
            clone = replace(
                op,
                inputs={index: name(id, turn) for index, id in op.inputs.items()},
                outputs={index: self._outer[id, turn] for index, id in op.outputs.items()},
                attributes=dict(op.attributes),
                settings=replace(op.settings, stage=told.stage, phase=told.phase),
            )
            found.append((clone, self.skew.position(op, turn)))
        return sorted(found, key=lambda one: one[1])

    def _close(self, turns: int) -> None:
        """Gives the loop what goes round now."""
        loop, body = self.loop, self.loop.body
        slots = list(self._slots.values())
        body.inputs = [
            *body.inputs[:FIRST_INPUT],
            *(slot.inner for slot in slots),
            *self._implicit,
        ]
        body.results = [slot.following for slot in slots]
        operands = [*(slot.first for slot in slots), *self._implicit.values()]
        loop.op.inputs = dict(enumerate(operands, FIRST_INPUT))
        loop.op.outputs = {at: slot.last for at, slot in enumerate(slots)}
        loop.count = len(slots)
        loop.op.attributes[TURNS] = loop.op.integers_or(TURNS, 0) - turns

    # their order

    def _order(
        self, ops: Sequence[Op], before: list[tuple[Op, int]], after: list[tuple[Op, int]]
    ) -> None:
        """Everything is in the order of its places, in the loop and around it."""
        body, ahead = self.loop.body, self.skew.ahead
        for first, later in body.later.items():
            later.difference_update({op for op in later if ahead[op] != ahead[first]})
        inside = [(op, self.skew.position(op, ahead[op])) for op in ops]
        inside.sort(key=lambda one: one[1])
        body.ops = [op for op, _ in inside]
        _follow(body, _bins(inside))
        if not self.skew.free:
            _follow(self.loop.outer, [*_bins(before), [self.loop.op], *_bins(after)])


def _bins(placed: Sequence[tuple[Op, int]]) -> list[list[Op]]:
    """Operators that stand at the same place."""
    return [[op for op, _ in ops] for _, ops in groupby(placed, key=lambda one: one[1])]


def _follow(graph: OpGraph, bins: Sequence[Sequence[Op]]) -> None:
    for one, following in pairwise(bins):
        for first in one:
            for op in following:
                graph.run_after(op, first)
