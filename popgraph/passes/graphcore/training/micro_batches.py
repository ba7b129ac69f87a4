"""Specializes a training program: accumulate only, accumulate and update, or update only."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeGuard

import numpy as np
from xdsl.builder import Builder, ImplicitBuilder
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint

from popgraph.dialects.graphcore.arithmetic import SubOp, WhereOp
from popgraph.dialects.graphcore.exchanges import ExchangeOp
from popgraph.dialects.graphcore.random import SEED
from popgraph.dialects.program import (
    ConstantOp,
    GraphOp,
    ReturnOp,
    UpdateOp,
    WeightStore,
)
from popgraph.passes.analysis.graph import only_graph
from popgraph.passes.graphcore.training.variables import COUNTER
from popgraph.passes.graphcore.training.weight_context import ACCUMULATED


def counts_micro_batches(module: ModuleOp) -> bool:
    """Whether a program counts micro-batches."""
    return _count(module) is not None


def _count(module: ModuleOp) -> WhereOp | None:
    """The selection that resets the micro-batch counter when a batch is complete."""
    updates = (op for op in only_graph(module).updates() if op.variable.text == COUNTER)
    chosen = next((op.value.owner for op in updates), None)
    return chosen if isinstance(chosen, WhereOp) else None


def specialize_micro_batch(module: ModuleOp, weights: WeightStore, *, last: bool) -> None:
    """
    where(batch is complete, x, y)  ->  where(last, x, y) with the constant `last`.

    If false, only accumulators change, and later passes remove the update. If true, accumulators
    keep the selection that empties them: folding it would need constants full of zeros.
    """
    graph, chosen = only_graph(module), _count(module)
    assert chosen is not None, "a program of several micro-batches counts them"
    known = ConstantOp(weights.attribute(np.array(last)))
    first = graph.block.first_op
    assert first is not None, "a graph that counts has operations"
    graph.block.insert_op_before(known, first)
    for use in list(chosen.operands[0].uses):
        # where(true, zeros, total) would fold to zeros as large as all gradients together.
        if not (last and _empties(use.operation)):
            use.operation.operands[use.index] = known.result


def _empties(op: Operation | Block) -> TypeGuard[WhereOp]:
    """Whether an operation selects the next value of an accumulator: zeros after each batch."""
    return isinstance(op, WhereOp) and any(
        isinstance(use.operation, UpdateOp) and use.operation.variable.text.startswith(_EMPTIED)
        for use in op.result.uses
    )


_EMPTIED = (ACCUMULATED, COUNTER)


def separate_update(module: ModuleOp, weights: WeightStore) -> ModuleOp | None:
    """
    The program of the update alone, which reads the sums of a batch from the accumulators.

    It runs after the last micro-batch. None if it cannot be separated: an output depends on the
    update, or the update reads an input, a variable that a micro-batch changes, or an exchange
    between ranks.
    """
    graph, chosen = only_graph(module), _count(module)
    assert chosen is not None, "a program of several micro-batches counts them"
    decided = _decided_by(chosen.operands[0], graph.block)
    if not decided.isdisjoint(graph.outputs.values()):
        return None
    variables = {op.variable.text: op for op in graph.variables()}
    updates = [op for op in graph.updates() if op.value in decided]
    kept = {op.variable.text for op in updates}
    late = {op.variable.text for op in graph.updates()} - kept - {SEED}
    sums = {
        op.value.owner.operands[2]: variables[op.variable.text].result
        for op in updates
        if _empties(op.value.owner)
    }
    needed = _needed(updates, sums)
    if needed is None or any(variables[name] in needed for name in late if name in variables):
        return None
    alone = _copied(graph, {*needed, *updates}, sums)
    specialize_micro_batch(alone, weights, last=True)
    _draw_as_before(only_graph(alone), weights)
    return alone


def variables_of_micro_batches(module: ModuleOp) -> set[str]:
    """Variables that every micro-batch changes, even without an update after it."""
    graph, chosen = only_graph(module), _count(module)
    assert chosen is not None, "a program of several micro-batches counts them"
    decided = _decided_by(chosen.operands[0], graph.block)
    return {
        op.variable.text
        for op in graph.updates()
        if op.value not in decided or _empties(op.value.owner)
    }


def _needed(
    updates: Sequence[UpdateOp], sums: Mapping[SSAValue, SSAValue]
) -> set[Operation] | None:
    """
    Operations that compute the updates from the given sums.

    None if they read an input or exchange values between ranks.
    """
    found: set[Operation] = set()
    waiting = [op.value for op in updates]
    while waiting:
        value = waiting.pop()
        owner = sums.get(value, value).owner
        if isinstance(owner, Block | ExchangeOp):
            return None
        if owner not in found:
            found.add(owner)
            waiting.extend(owner.operands)
    return found


def _copied(
    graph: GraphOp, ops: Collection[Operation], known: Mapping[SSAValue, SSAValue]
) -> ModuleOp:
    """A module with copies of the given operations; `known` maps values to their replacements."""
    made = GraphOp(graph.sym_name.data, (), ())
    made.location = graph.location
    named = {other: value for value, other in known.items()}
    copies: dict[SSAValue, SSAValue] = {}
    for op in graph.block.ops:
        if op not in ops:
            continue
        made.block.add_op(op.clone(copies))
        copies |= {named[one]: copies[one] for one in op.results if one in named}
    made.block.add_op(ReturnOp([], []))
    return ModuleOp([made])


def _decided_by(value: SSAValue, block: Block) -> set[SSAValue]:
    """A value and all values of its block that depend on it."""
    found = {value}
    for op in block.ops:
        if not found.isdisjoint(op.operands):
            found.update(op.results)
    return found


def _draw_as_before(graph: GraphOp, weights: WeightStore) -> None:
    """
    Lets random operations draw from the step before, as the whole program would.

    The micro-batch has incremented the step count in the seed already.
    """
    step = weights.attribute(np.array([0, 1], np.int64))
    for held in [op for op in graph.variables() if op.variable.text == SEED]:
        with ImplicitBuilder(Builder(InsertPoint.after(held))):
            counted = SubOp(held.result, ConstantOp(step).result)
        for use in list(held.result.uses):
            if use.operation is not counted:
                use.operation.operands[use.index] = counted.result
