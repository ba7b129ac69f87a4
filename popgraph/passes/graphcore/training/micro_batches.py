"""Micro-batches: programs for those that only add up gradients, and for the last of a batch."""

from __future__ import annotations

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from popgraph.dialects.graphcore.arithmetic import WhereOp
from popgraph.dialects.program import ConstantOp, UpdateOp, WeightStore
from popgraph.passes.analysis.graph import only_graph
from popgraph.passes.graphcore.training.variables import COUNTER
from popgraph.passes.graphcore.training.weight_context import ACCUMULATED


def is_in_turns(module: ModuleOp) -> bool:
    """Whether a program counts micro-batches."""
    return _count(module) is not None


def _count(module: ModuleOp) -> WhereOp | None:
    """Where the counter begins anew, because a batch is complete."""
    updates = (op for op in only_graph(module).updates() if op.variable.text == COUNTER)
    chosen = next((op.value.owner for op in updates), None)
    return chosen if isinstance(chosen, WhereOp) else None


def settle_turn(module: ModuleOp, weights: WeightStore, *, last: bool) -> None:
    """
    Makes of a program that decides in each run whether a batch is complete one that knows it.

    Where it is not, nothing but accumulators moves: what only updates need goes with them. Where it
    is, these are emptied as before, by a choice: zeros of their size would have to be kept.
    """
    graph, chosen = only_graph(module), _count(module)
    assert chosen is not None, "a program that is in turns counts micro-batches"
    known = ConstantOp(weights.attribute(np.array(last)))
    first = graph.block.first_op
    assert first is not None, "a graph that counts has operations"
    graph.block.insert_op_before(known, first)
    for use in list(chosen.operands[0].uses):
        if not (last and _empties(use.operation)):
            use.operation.operands[use.index] = known.result


def _empties(op: Operation) -> bool:
    """Whether an operation gives a variable its value that begins with zeros after each batch."""
    return isinstance(op, WhereOp) and any(
        isinstance(use.operation, UpdateOp) and use.operation.variable.text.startswith(_EMPTIED)
        for use in op.result.uses
    )


_EMPTIED = (ACCUMULATED, COUNTER)
