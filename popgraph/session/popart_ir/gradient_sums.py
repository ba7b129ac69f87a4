"""Sums of gradients as trees of additions, of which no part waits for all others."""

from __future__ import annotations

from dataclasses import replace

from popgraph.builder.popart.names import GRADIENT
from popgraph.session.popart_ir.graph import Op, OpGraph, Settings

_FEWEST = 3
"""So many gradients make a sum that is worth it."""


def decompose_gradient_sums(graph: OpGraph) -> None:
    """Sum(a, b, c) -> Add(Add(Add(0, a), b), c), the earliest gradients first."""
    for op in [op for op in graph.ops if _is_sum_of_gradients(graph, op)]:
        _decompose(graph, op)


def _is_sum_of_gradients(graph: OpGraph, op: Op) -> bool:
    return (
        op.type == "Sum"
        and op.backward
        and GRADIENT in op.output
        and len(op.inputs) >= _FEWEST
        and all(graph.producer(id) is not None for id in op.inputs.values())
    )


def _decompose(graph: OpGraph, op: Op) -> None:
    """Each addition is where its gradient is computed."""
    total, info = op.output, graph.infos[op.output]
    producers = {id: graph.producer(id) for id in op.inputs.values()}
    places = {one: place for place, one in enumerate(graph.ops)}
    parts = sorted(op.inputs.values(), key=lambda id: places[one] if (one := producers[id]) else -1)
    graph.forget(op)
    sum_ = graph.add_tensor(f"{total}_init", info)
    settings = _where(producers[parts[0]])
    first = producers[parts[0]]
    following = graph.ops.index(first) + 1 if first is not None else 0
    graph.add(_made("Init", {}, sum_, settings), before=graph.ops[following])
    for number, part in enumerate(parts):
        final = number == len(parts) - 1
        result = total if final else graph.add_tensor(f"{total}_{number}", info)
        made = _made("Add", {0: sum_, 1: part}, result, _where(producers[part]))
        behind = producers[part] if number or first is None else graph.producer(sum_)
        place = graph.ops.index(behind) + 1 if behind is not None else len(graph.ops)
        graph.add(made, before=graph.ops[place] if place < len(graph.ops) else None)
        sum_ = result


def _where(producer: Op | None) -> Settings:
    return replace(producer.settings, name="") if producer is not None else Settings()


def _made(type_: str, inputs: dict[int, str], output: str, settings: Settings) -> Op:
    return Op(type_, inputs, {0: output}, settings=settings, backward=True)
