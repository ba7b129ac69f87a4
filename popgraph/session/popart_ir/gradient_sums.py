"""Sums of gradients as trees of additions, of which no part waits for all others."""

from __future__ import annotations

from dataclasses import replace

from popgraph.builder.popart.names import GRADIENT
from popgraph.session.popart_ir.graph import Op, OpGraph

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
    places = {one: place for place, one in enumerate(graph.ops)}
    read = [(id, one) for id in op.inputs.values() if (one := graph.producer(id)) is not None]
    read.sort(key=lambda pair: places[pair[1]])
    graph.forget(op)
    sum_ = graph.add_tensor(f"{total}_init", info)
    last = _behind(graph, read[0][1], read[0][1], f"{total}_InitOp", {}, sum_)
    for number, (part, producer) in enumerate(read):
        final = number == len(read) - 1
        result = total if final else graph.add_tensor(f"{total}_{number}", info)
        last = max(last, producer, key=graph.ops.index)
        last = _behind(graph, last, producer, f"add{number}", {0: sum_, 1: part}, result)
        sum_ = result


def _behind(graph: OpGraph, op: Op, like: Op, name: str, inputs: dict[int, str], output: str) -> Op:
    """Adds an addition behind an operator, where a gradient is; of nothing, it is zeros."""
    settings = replace(like.settings, name=name)
    type_ = "Add" if inputs else "Init"
    made = Op(type_, inputs, {0: output}, settings=settings, backward=True)
    following = graph.ops[graph.ops.index(op) + 1 :]
    return graph.add(made, before=following[0] if following else None)
