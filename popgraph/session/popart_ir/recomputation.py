"""Which operators are computed again for the gradients, as PopART chooses them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from math import sqrt

from popgraph.builder.opset.enums import RecomputationType, RecomputeType
from popgraph.session.popart_ir.graph import Op, OpGraph

_NORMS = frozenset(["BatchNormalization", "GroupNormalization", "InstanceNormalization"])
_ONCE = frozenset(["HostLoad", "HostStore", "RemoteStore", "MultiExchange", "PrintTensor", "Abort"])
"""What changes something besides its results, and so is not computed again."""
_SHARE = 0.75
"""How many of the segments that need least memory are taken, for the sake of time."""


def annotate_recomputation(
    graph: OpGraph, order: Sequence[Op], kind: RecomputationType, loss: str, *, explicit: bool
) -> None:
    """Marks the operators on the way to the loss, in their order, that are computed again."""
    final = graph.producer(loss)
    if final is None:
        return
    leading = set(graph.before(final))
    way = [op for op in order if op in leading]
    match kind:
        case RecomputationType.NormOnly:
            _mark(graph.ops, RecomputeType.Checkpoint)
            _mark([op for op in way if op.type in _NORMS], RecomputeType.Recompute)
        case RecomputationType.Standard:
            kept = _least_memory(graph, way)
            _mark([op for op in way if op not in kept and _may(op)], RecomputeType.Recompute)
        case RecomputationType.RecomputeAll | RecomputationType.Pipeline:
            free = [op for op in way if op.settings.recompute is RecomputeType.Undefined]
            _mark([op for op in free if _may(op)], RecomputeType.Recompute)
            if not explicit:
                _keep_last(graph, final)
    mark_behind_loss(graph, loss)


def mark_behind_loss(graph: OpGraph, loss: str) -> None:
    """What follows from the loss is computed once."""
    final = graph.producer(loss)
    behind = graph.after(final) if final is not None else ()
    again = RecomputeType.Recomputed
    _mark([op for op in behind if op.settings.recompute is not again], RecomputeType.Checkpoint)


def _mark(ops: Sequence[Op], kind: RecomputeType) -> None:
    for op in ops:
        op.settings = replace(op.settings, recompute=kind)


def _may(op: Op) -> bool:
    return not op.writes and op.type not in _ONCE


def _keep_last(graph: OpGraph, final: Op) -> None:
    """What lies between the last operators that are kept and the loss is kept, too."""
    waiting = [final]
    while waiting:
        for id in waiting.pop().inputs.values():
            before = graph.producer(id)
            if before is not None and before.settings.recompute is RecomputeType.Recompute:
                _mark([before], RecomputeType.Checkpoint)
                waiting.append(before)


def _least_memory(graph: OpGraph, way: Sequence[Op]) -> set[Op]:
    """Of each segment of the way, what is alive where that takes least memory."""
    live = _live(graph, way)
    sizes = [sum(_bytes(graph, op) for op in ops) for ops in live]
    kept: set[Op] = set()
    for start, end in _segments(len(way)):
        kept |= live[min(range(start, end), key=sizes.__getitem__)]
    return kept


def _bytes(graph: OpGraph, op: Op) -> int:
    return sum(graph.infos[id].nbytes() for id in op.outputs.values())


def _live(graph: OpGraph, way: Sequence[Op]) -> list[set[Op]]:
    """Behind each operator, those whose results others on the way still read."""
    needs: dict[Op, set[Op]] = {}
    left = dict.fromkeys(way, 0)
    for op in way:
        producers = map(graph.producer, op.inputs.values())
        needs[op] = {one for one in producers if one is not None}
        for before in needs[op]:
            left[before] += 1
    live: set[Op] = set()
    found: list[set[Op]] = []
    for op in way:
        for before in needs[op]:
            left[before] -= 1
            if not left[before]:
                live.discard(before)
        live.add(op)
        found.append(set(live))
    return found


def _segments(length: int) -> list[tuple[int, int]]:
    """Segments that become shorter by one, then single operators."""
    if length == 1:
        return [(0, 1)]
    longest = int((int(sqrt(2.0 * length)) - 1) * _SHARE)
    found, start = [], 0
    for size in count(longest, -1):
        if size <= 0 or start + size > length:
            break
        found.append((start, start + size))
        start += size
    return [*found, *((at, at + 1) for at in range(start, length))]
