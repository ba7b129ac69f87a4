"""Main loops whose turns overlap: pipelines of stages, and exchange with the host beside them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from popgraph.builder.opset.enums import ExchangeStrategy, TileSet
from popgraph.session.popart_ir.decomposed_loops import Skew, decompose, separate_results
from popgraph.session.popart_ir.graph import Op, OpGraph, Settings
from popgraph.session.popart_ir.loop_roles import (
    COMPUTE,
    Part,
    Role,
    overlapped_role,
    roles_of,
    staged_role,
    strategy_among,
)
from popgraph.session.popart_ir.main_loops import Loop
from popgraph.session.popart_ir.outline import called_graph, inputs_of
from popgraph.session.popart_ir.placement import STREAM
from popgraph.session.popart_ir.schedule import scheduled

_JUST_IN_TIME = ExchangeStrategy.JustInTime
_INNER, _BOTH = ExchangeStrategy.OverlapInnerLoop, ExchangeStrategy.OverlapLoops

_OVERLAPPED = {
    Part.BEFORE_LOAD: (0, 3, 8),
    Part.LOAD: (1, 4, 10),
    Part.TO_COMPUTE: (2, 6, 13),
    Part.COMPUTE: (5, 11, 16),
    Part.FROM_COMPUTE: (7, 14, 18),
    Part.STORE: (9, 15, 19),
    Part.AFTER_STORE: (12, 17, 20),
}
"""Where the parts of three turns in a row stand among each other, so that exchange overlaps."""

_TURNS = 2
"""Three turns overlap: what one stores, what the next one computes, what the one after loads."""

_STRIDE = 10
"""How far stages of a pipeline, and turns of a stage, are from each other."""

_ALONE, _AT_ONCE = "a turn of its own", "the turn of the computation"
_STAGED = {
    Part.BEFORE_LOAD: {_ALONE: 2, _AT_ONCE: 10},
    Part.LOAD: {_ALONE: 3, _AT_ONCE: 11},
    Part.TO_COMPUTE: {_ALONE: 7},
    Part.COMPUTE: {_ALONE: 14},
    Part.FROM_COMPUTE: {_ALONE: 18},
    Part.STORE: {_ALONE: 23, _AT_ONCE: 15},
    Part.AFTER_STORE: {_ALONE: 26, _AT_ONCE: 16},
}
"""Where the parts of a stage stand, in the same unit."""
_SEND = 19
"""Copies to the next stage come behind all that computes."""


def overlap_turns(loop: Loop) -> None:
    """Has what one turn of a loop exchanges overlap with what another one computes."""
    Overlap({}, None).overlap(loop, {_JUST_IN_TIME})


def _staged_place(role: Role) -> int:
    return _SEND if role.sends else _STAGED[role.part][_AT_ONCE if role.at_once else _ALONE]


@dataclass(frozen=True)
class Overlap:
    """What of main loops is to overlap."""

    strategies: Mapping[str, ExchangeStrategy]
    """Of inputs and anchors that are not just in time."""
    stages: int | None
    """Of a pipeline in the inner loop."""

    def apply(self, loops: list[Loop]) -> list[OpGraph]:
        """Decomposes loops, the outer one first; the graphs that stages are called from."""
        called: list[OpGraph] = []
        if self.stages is not None and loops:
            called = self._pipeline(loops[-1], self.stages)
        needed = {strategy for loop in loops for strategy, _ in self._exchanged(loop.body)}
        both = len(loops) > 1 and _BOTH in needed
        if self.stages is None and loops and needed & {_INNER, _BOTH}:
            self.overlap(loops[-1], {_JUST_IN_TIME}, free=both)
        if both:
            self.overlap(loops[0], {_JUST_IN_TIME, _INNER})
        return called

    def _exchanged(self, graph: OpGraph) -> Iterator[tuple[ExchangeStrategy, int | None]]:
        """The strategies of what is exchanged on tiles for that, and its stages."""
        for op in graph.ops:
            if STREAM in op.attributes and op.settings.tiles is TileSet.IO:
                strategy = self.strategies.get(str(op.attributes[STREAM]), _JUST_IN_TIME)
                yield strategy, op.settings.stage

    def overlap(
        self, loop: Loop, chosen: Collection[ExchangeStrategy], *, free: bool = False
    ) -> None:
        separate_results(loop, None)
        just_in_time = strategy_among(self.strategies, chosen)
        roles = roles_of(loop.body, overlapped_role, just_in_time, by_stage=False)
        ahead = {
            op: 0 if role.part >= Part.STORE else 1 if role.part >= Part.COMPUTE else 2
            for op, role in roles.items()
        }

        def position(op: Op, turn: int) -> int:
            return _OVERLAPPED[roles[op].part][turn]

        decompose(loop, Skew(_TURNS, ahead, position, free))

    # pipelines

    def _pipeline(self, loop: Loop, stages: int) -> list[OpGraph]:
        """Has the turns of a loop be of all stages at once, each computed by a call."""
        graph = loop.body
        separate_results(loop, stages - 1)
        just_in_time = strategy_among(self.strategies, {_JUST_IN_TIME})
        first, last = self._unrolled(graph, stages)
        roles = roles_of(graph, staged_role, just_in_time, by_stage=True)
        computing = [op for op in scheduled(graph) if roles[op] == COMPUTE]
        parts = [[op for op in computing if op.settings.stage == one] for one in range(stages)]
        called: list[OpGraph] = []
        for stage, ops in enumerate(parts):
            if ops:
                name = f"PipelineStage_{stage}_main_subgraph({len(called)})"
                called.append(_call(graph, ops, name))
        roles = roles_of(graph, staged_role, just_in_time, by_stage=True)

        def ahead(op: Op) -> int:
            role, stage = roles[op], op.settings.stage or 0
            if not role.at_once:
                stage -= role.part < Part.COMPUTE
                stage += role.part >= Part.STORE
            return sum(stage < one for one in range(first, last + 1))

        def position(op: Op, turn: int) -> int:
            return _staged_place(roles[op]) + ((op.settings.stage or 0) + turn) * _STRIDE

        decompose(loop, Skew(last - first + 1, {op: ahead(op) for op in graph.ops}, position))
        return called

    def _unrolled(self, graph: OpGraph, stages: int) -> tuple[int, int]:
        """The stages before which a turn is outside of the loop, the lowest and the highest."""
        found = {
            stage for strategy, stage in self._exchanged(graph) if strategy is not _JUST_IN_TIME
        }
        return (0 if 0 in found else 1), (stages if stages - 1 in found else stages - 1)


def _call(graph: OpGraph, ops: list[Op], name: str) -> OpGraph:
    """Has operators of a stage be a graph, which is called in their place."""
    inside = set(ops)
    given = [
        (at, slot)
        for at, op in enumerate(ops)
        for slot, id in op.outputs.items()
        if graph.is_protected(id) or not inside.issuperset(graph.consumers(id))
    ]
    body = called_graph(graph, ops, name, given)
    told = ops[0].settings
    call = Op(
        "Call",
        dict(enumerate(inputs_of(ops))),
        {index: ops[at].outputs[slot] for index, (at, slot) in enumerate(given)},
        settings=Settings(ipu=told.ipu, stage=told.stage, context=told.context),
        called=(name,),
        writes=any(op.writes for op in ops),
        backward=ops[0].backward,
    )
    graph.add(call, before=ops[-1])
    _hand_on_orders(graph, body, call, dict(zip(ops, body.ops, strict=True)))
    for op in ops:
        graph.forget(op)
    return body


def _hand_on_orders(graph: OpGraph, body: OpGraph, call: Op, made: Mapping[Op, Op]) -> None:
    """What had to wait for others waits in the body; of those in both graphs the call does."""
    orders, graph.later = graph.later, {}
    for first, later in orders.items():
        for op in later:
            if first in made and op in made:
                body.run_after(made[op], made[first])
            elif made.keys().isdisjoint((first, op)):
                graph.run_after(op, first)
            else:
                graph.run_after(call if op in made else op, call if first in made else first)


def forget_stages(graphs: Collection[OpGraph]) -> None:
    """Once the operators of a pipeline are where they run, none has a stage."""
    for graph in graphs:
        for op in graph.ops:
            op.settings = replace(op.settings, stage=None)
