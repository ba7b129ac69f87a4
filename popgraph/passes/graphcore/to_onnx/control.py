"""ONNX forms of branches and loops; communication has none."""

from __future__ import annotations

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects import graphcore
from popgraph.dialects.graphcore.base import dtype_of, shape_of
from popgraph.dialects.graphcore.control import UNBOUNDED, yield_of
from popgraph.dialects.onnx.types import tensor_type
from popgraph.passes.graphcore.to_onnx.printer import Printer, form, no_form

no_form(
    "ONNX has no communication between replicas or processes",
    *graphcore.COLLECTIVES,
    graphcore.ExchangeOp,
)


@form(graphcore.CondOp, by="If")
def cond(to: Printer, op: graphcore.CondOp) -> list[SSAValue]:
    """If, whose branches read outer values directly."""
    graphs = {}
    captured = [to(value) for value in op.captured]
    for word, region in (("then", op.then_body), ("else", op.else_body)):
        body = to.inner(word)
        body.values.update(zip(region.block.args, captured, strict=True))
        body.print_block(region.block)
        _end(body, [body(value) for value in yield_of(region.block).values])
        graphs[f"{word}_branch"] = body.writer.graph()
    return to.nodes("If", [to(op.predicate)], len(op.results), **graphs)


def _end(body: Printer, values: list[SSAValue]) -> None:
    body.outputs(values, [body.fresh("result") for _ in values])


@form(graphcore.LoopOp, by="Loop")
def loop(to: Printer, op: graphcore.LoopOp) -> list[SSAValue]:
    """
    Loop; a reversed one runs over positions from the last to the first.

    A loop that ends early writes its rows to a carried tensor of full length: the rows that ONNX
    stacks would be as many as the iterations.
    """
    trips, early = op.turns, op.ends_early
    body = to.inner("loop")
    turn = body.argument(op.index, "iteration")
    body.writer.add_input(body.fresh("going"), tensor_type("bool", ()))
    is_true = to.constant(np.array(True))
    for value in op.carried_arguments:
        body.values[value] = body.argument(value, "carried")
    held = [body.argument(one, "rows") for one in op.stacked] if early else []
    at: SSAValue = turn
    if op.reverse:
        at = body.node("Sub", to.index(trips - 1), turn)
    body.values[op.index] = at
    for value, scanned in zip(op.scanned_arguments, op.scanned, strict=True):
        body.values[value] = body.node("Gather", to(scanned), at, axis=0)
    for value, outer in zip(op.captured_arguments, op.captured, strict=True):
        body.values[value] = to(outer)
    body.print_block(op.block)
    go = is_true if op.yielded_go is None else body(op.yielded_go)
    carried = [body(one) for one in op.yielded_carried]
    rows = [body(one) for one in op.yielded_rows]
    if early:
        place = body.reshape(at, [1, 1])
        updates = [
            body.reshape(row, [1, *shape_of(one)])
            for row, one in zip(rows, op.yielded_rows, strict=True)
        ]
        rows = [
            body.node("ScatterND", whole, place, update)
            for whole, update in zip(held, updates, strict=True)
        ]
    _end(body, [go, *carried, *rows])
    firsts = [to(value) for value in op.carried]
    if early:
        firsts += [
            to.node("Expand", to.scalar(0, dtype_of(value)), to.ints(shape_of(value)))
            for value in op.stacked
        ]
    limit = None if trips == UNBOUNDED else to.index(trips)
    if op.limit is not None:
        given = to(op.limit)
        limit = given if limit is None else to.node("Min", given, limit)
    start = is_true if op.go is None else to(op.go)
    made = to.nodes("Loop", [limit, start, *firsts], len(op.results), body=body.writer.graph())
    for found, result in zip(made, op.results, strict=True):
        to.typed(found, shape_of(result), dtype_of(result))
    count = len(op.carried)
    if op.reverse and not early:
        made[count:] = [
            to.slice(
                value,
                [max(0, trips - 1), *[0] * (len(shape_of(result)) - 1)],
                shape_of(result),
                [-1, *[1] * (len(shape_of(result)) - 1)],
            )
            for value, result in zip(made[count:], op.stacked, strict=True)
        ]
    return made
