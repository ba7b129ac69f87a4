"""Operators that compute the same, and copies that one operator waits for, made one."""

from __future__ import annotations

from collections.abc import Hashable

from popgraph.builder.opset.enums import RecomputeType
from popgraph.session.popart_ir.graph import Op, OpGraph
from popgraph.session.popart_ir.outline import equivalent
from popgraph.session.popart_ir.placement import COPY, SOURCES
from popgraph.session.popart_ir.schedule import scheduled


def merge_duplicates(graph: OpGraph) -> None:
    """
    f(x), f(x) -> f(x).

    Only when the second has no name that is asked for, and waits for nothing but x.
    """
    first: dict[Hashable, Op] = {}
    for op in scheduled(graph):
        again = op.settings.recompute is RecomputeType.Recomputed
        if not op.inputs or op.writes or again:
            continue
        key = equivalent(graph, op), tuple(sorted(op.inputs.items()))
        found = first.setdefault(key, op)
        asked = any(graph.is_protected(id) for id in op.outputs.values())
        if found is op or asked or op in graph.ordered:
            continue
        for index, id in op.outputs.items():
            graph.replace_uses(id, found.outputs[index])
        graph.remove(op)


def merge_copies(graph: OpGraph) -> None:
    """Makes copies to one IPU one that are all read first by the same operator."""
    order = {op: place for place, op in enumerate(scheduled(graph))}
    for op in sorted(graph.ops, key=lambda op: op.number):
        copies: dict[Op, None] = {}
        for id in op.inputs.values():
            copy = graph.producer(id)
            if copy is not None and copy.type == COPY and len(copy.inputs) == 1:
                first = min(graph.consumers(id), key=order.__getitem__)
                if first is op:
                    copies[copy] = None
        contexts = {copy.settings.context for copy in copies}
        if len(copies) > 1 and len(contexts) == 1:
            _merge(graph, list(copies), order)


def _merge(graph: OpGraph, copies: list[Op], order: dict[Op, int]) -> None:
    last = max(copies, key=graph.ops.index)
    sources = sorted({copy.settings.ipu for copy in copies if copy.settings.ipu is not None})
    inputs = {index: copy.input(0) for index, copy in enumerate(copies)}
    outputs = {index: copy.output for index, copy in enumerate(copies)}
    attributes = {**last.attributes, SOURCES: sources}
    made = Op(COPY, inputs, outputs, attributes, last.settings, backward=last.backward)
    graph.add(made, before=last)
    order[made] = order[last]
    for copy in copies:
        graph.forget(copy)
