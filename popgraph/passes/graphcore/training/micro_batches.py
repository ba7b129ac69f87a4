"""Micro-batches: programs for those that only add up gradients, for the last, and for updates."""

from __future__ import annotations

from typing import TypeGuard

import numpy as np
from xdsl.builder import Builder, ImplicitBuilder
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.transforms.dead_code_elimination import region_dce

from popgraph.dialects.graphcore.arithmetic import SubOp, WhereOp
from popgraph.dialects.graphcore.exchanges import ExchangeOp
from popgraph.dialects.graphcore.random import SEED
from popgraph.dialects.program import (
    ConstantOp,
    ReturnOp,
    UpdateOp,
    VariableOp,
    WeightStore,
)
from popgraph.dialects.program.ops import names_attribute
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


def _empties(op: Operation | Block) -> TypeGuard[WhereOp]:
    """Whether an operation gives a variable its value that begins with zeros after each batch."""
    return isinstance(op, WhereOp) and any(
        isinstance(use.operation, UpdateOp) and use.operation.variable.text.startswith(_EMPTIED)
        for use in op.result.uses
    )


_EMPTIED = (ACCUMULATED, COUNTER)


def update_alone(module: ModuleOp, weights: WeightStore) -> ModuleOp | None:
    """
    The program of the update, which finds the sums of a whole batch in their accumulators.

    It follows the program of micro-batches that only add up, also after the last of them. None if
    they cannot be apart: outputs tell of the update, or it needs more than variables as they were,
    or ranks exchange gradients meanwhile.
    """
    alone = module.clone()
    graph, chosen = only_graph(alone), _count(alone)
    assert chosen is not None, "a program that is in turns counts micro-batches"
    decided = _decided_by(chosen.operands[0], graph.block)
    before = {op.variable.text: op.result for op in graph.variables()}
    own = {update.variable.text: update.value for update in graph.updates()}
    moved = {name for name, value in own.items() if value not in decided} - {SEED}
    if not decided.isdisjoint(graph.outputs.values()):
        return None
    if SEED in own:
        _draw_as_before(before[SEED], own[SEED], weights)
    for update in list(graph.updates()):
        if update.value not in decided:
            Rewriter.erase_op(update)
        elif _empties(update.value.owner):
            update.value.owner.operands[2].replace_all_uses_with(before[update.variable.text])
    settle_turn(alone, weights, last=True)
    Rewriter.erase_op(graph.return_op)
    graph.block.add_op(ReturnOp([], []))
    region_dce(graph.body)
    needs_more = any(argument.first_use is not None for argument in graph.block.args)
    is_late = any(op.variable.text in moved for op in graph.variables())
    if needs_more or is_late or any(isinstance(op, ExchangeOp) for op in alone.walk()):
        return None
    for argument in list(graph.block.args):
        graph.block.erase_arg(argument)
    graph.input_names = names_attribute(())
    return alone


def _decided_by(value: SSAValue, block: Block) -> set[SSAValue]:
    """A value, and all of its block that is computed from it."""
    found = {value}
    for op in block.ops:
        if not found.isdisjoint(op.operands):
            found.update(op.results)
    return found


def _draw_as_before(state: SSAValue, following: SSAValue, weights: WeightStore) -> None:
    """Whatever draws does so in the step that was counted already, each from its own stream."""
    step = weights.attribute(np.array([0, 1], np.int64))
    assert isinstance(state.owner, VariableOp), "a seed is a variable"
    with ImplicitBuilder(Builder(InsertPoint.after(state.owner))):
        counted = SubOp(state, ConstantOp(step).result)
    for use in list(state.uses):
        if use.operation not in (counted, following.owner):
            use.operation.operands[use.index] = counted.result
