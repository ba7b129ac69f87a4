"""Execution phases: the phase of each operator, and the IPU that runs it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from popgraph.builder.opset.enums import RecomputeType
from popgraph.builder.opset.exceptions import popart_exception
from popgraph.session.popart_ir.graph import Context, Kind, Op, OpGraph
from popgraph.session.popart_ir.placement import COPY, leaves_phase
from popgraph.session.popart_ir.remote_ops import shown
from popgraph.session.popart_ir.schedule import scheduled
from popgraph.session.popart_ir.streaming_phases import HIGHEST, Phases
from popgraph.support.logs import log_of

_HELD = (Kind.VARIABLE, Kind.CONSTANT)


def set_phases(graph: OpGraph, phases: Phases, *, recomputes: bool) -> None:
    """
    Gives operators phases that take about as many bytes of weights each, where nobody has.

    What is not told to stay is computed again for the gradients.
    """
    order = scheduled(graph)
    share = sum(_cost(graph, op) for op in order) / phases.count
    phase, taken = 0, 0.0
    for op in order:
        cost = _cost(graph, op)
        if taken > 0 and taken + cost > share and phase < phases.count - 1:
            phase, taken = phase + 1, 0.0
        taken += cost
        told = op.settings.phase
        if told is not None and told >= phases.count:
            raise popart_exception(
                f"[StreamingMemory] Maximum phase is {phases.count - 1}, but op {shown(op)} has "
                f"phase {told}."
            )
        _place(graph, op, phase if told is None else told, phases.stages)
    for op in graph.ops:
        if op.settings.recompute is RecomputeType.Undefined:
            again = recomputes and op.type not in (COPY, "GetRandomSeed")
            kind = RecomputeType.Recompute if again else RecomputeType.Checkpoint
            op.settings = replace(op.settings, recompute=kind)


def _cost(graph: OpGraph, op: Op) -> int:
    """The bytes of an operator's weights."""
    return sum(graph.infos[id].nbytes() for id in set(op.inputs.values()) if _is_held(graph, id))


def _is_held(graph: OpGraph, id: str) -> bool:
    return graph.kind(id) in _HELD


def turn_phases_back(graph: OpGraph, phases: Phases) -> None:
    """Gradients have the phases behind those of the operators, in reverse."""
    for op in graph.ops:
        if op.backward and op.settings.phase is not None:
            op.settings = replace(op.settings, phase=2 * phases.count - 2 - op.settings.phase)


def complete_phases(graph: OpGraph, phases: Phases) -> None:
    """Gives phases to what has been added since: those of what is read, or of the readers."""
    changed = True
    while changed:
        changed = False
        for op in scheduled(graph):
            if op.settings.context is Context.NORMAL and op.settings.phase is None:
                found = _inherited(graph, op, phases)
                if found is not None:
                    _place(graph, op, found, phases.stages)
                    changed = True
    lost = [op for op in graph.ops if op.settings.context is Context.NORMAL]
    lost = [op for op in lost if op.settings.phase is None and not _copies_stream(graph, op)]
    if lost:
        raise popart_exception(
            "[StreamingMemory] Could not determine execution phase for "
            + ", ".join(map(shown, lost))
        )
    _drop_contrary_orders(graph)
    _compress_priorities(graph)
    for op in graph.ops:
        if op.type == COPY:
            op.settings = replace(op.settings, priority=0.0)
            if leaves_phase(op, phases.stages):
                op.settings = phases.ranked(op.settings, COPY)


def _drop_contrary_orders(graph: OpGraph) -> None:
    """No operator waits for one of a later phase, of which it reads nothing."""
    for first, waiting in graph.later.items():
        for op in list(waiting):
            phases = first.settings.phase, op.settings.phase
            normal = first.settings.context is op.settings.context is Context.NORMAL
            if normal and None not in phases and phases[0] > phases[1]:  # type: ignore[operator]
                log_of("transform").warning(
                    _CONTRARY, first.number, shown(first), op.number, shown(op), *phases
                )
                waiting.discard(op)


_CONTRARY = (
    "[StreamingMemory] Op %d %s (topologically) before op %d %s, but execution phases disagree "
    "(%d vs. %d). Removing constraint."
)


def _inherited(graph: OpGraph, op: Op, phases: Phases) -> int | None:
    before = [
        one.settings.phase + leaves_phase(one, phases.stages)
        for one in _producers(graph, op)
        if one.settings.phase is not None
    ]
    if before:
        return max(before)
    behind = [
        user.settings.phase
        for id in op.outputs.values()
        for user in graph.consumers(id)
        if user.settings.phase is not None
    ]
    return min(behind or _beside(graph, op), default=None)


def _beside(graph: OpGraph, op: Op) -> list[int]:
    """The phases of what reads the same as an operator that changes a variable."""
    if not op.writes:
        return []
    users = [user for id in op.inputs.values() for user in graph.consumers(id)]
    return [user.settings.phase for user in users if user.settings.phase is not None]


def _copies_stream(graph: OpGraph, op: Op) -> bool:
    """Whether numbers of the optimizer are copied, in front of the phases."""
    return op.type == COPY and all(graph.kind(id) is Kind.STREAM for id in op.inputs.values())


def _producers(graph: OpGraph, op: Op) -> Iterator[Op]:
    for id in op.inputs.values():
        producer = graph.producer(id)
        if producer is not None:
            yield producer


def _place(graph: OpGraph, op: Op, phase: int, stages: int) -> None:
    """Puts an operator in a phase, or in a later one that has what it reads; and on its IPU."""
    if op.settings.context is not Context.NORMAL:
        return
    known = [one.settings.phase for one in _producers(graph, op)]
    phase = max([phase, *(one for one in known if one is not None)])
    if op.type == COPY and op.settings.ipu is not None:
        if leaves_phase(op, stages) and (op.settings.ipu - phase) % stages != 0:
            phase -= 1
        op.settings = replace(op.settings, phase=phase)
        return
    ipu = phase % stages if op.settings.ipu is None else op.settings.ipu
    if (phase - ipu) % stages:
        raise popart_exception(
            f"[StreamingMemory] Op {shown(op)} inconsistent execution phase {phase} and virtual "
            f"graph ID {ipu}"
        )
    op.settings = replace(op.settings, phase=phase, ipu=ipu)


def _compress_priorities(graph: OpGraph) -> None:
    """Leaves room above and below the priorities of models."""
    told = {op.settings.priority for op in graph.ops}
    for sign in (1, -1):
        levels = sorted((one for one in told if one * sign > 0), reverse=sign > 0)
        step = HIGHEST / max(len(levels), 1)
        ranks = {one: sign * (HIGHEST - step * place) for place, one in enumerate(levels)}
        for op in graph.ops:
            if op.settings.priority in ranks and op.settings.priority * sign > 0:
                op.settings = replace(op.settings, priority=ranks[op.settings.priority])
