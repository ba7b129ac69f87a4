"""Hoists work that depends on constants alone into `pg.prepare`, which runs once at load."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import Rewriter
from xdsl.traits import Pure

from popgraph.dialects.program import ConstantOp, PrepareOp, VariableOp, YieldOp, graphs_of
from popgraph.dialects.tile import ViewOp
from popgraph.passes.analysis.invariants import unchanging
from popgraph.passes.base import Compilation, Pass


@dataclass(frozen=True)
class HoistConstants(Pass):
    """
    Move work that depends on constants only into one `pg.prepare`.

    A typical case is the packing of weights. Constants and views of them are free and stay outside.
    """

    name = "hoist-constants"
    AFTER = ("schedule-contractions", "hoist-invariants")

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        for graph in graphs_of(module):
            _hoist(graph.block)


def _hoist(block: Block) -> None:
    prepares = [op for op in block.ops if isinstance(op, PrepareOp)]
    free, costly = _constant_work(block)
    if len(prepares) < 2 and all(isinstance(op, PrepareOp) for op in costly):
        return
    if prepares:
        for prepare in prepares:
            _dissolve(prepare)
        free, costly = _constant_work(block)
    _prepare(block, free, costly)


def _constant_work(block: Block) -> tuple[list[Operation], list[Operation]]:
    """
    Operations that depend on constants only, in order: free ones, and costly ones.

    Constants and views of them are free; a view of a costly result is costly.
    """
    at_hand: set[SSAValue] = set()
    free, costly = list[Operation](), list[Operation]()
    for op in unchanging(block, (), _may_move):
        if isinstance(op, ViewOp | ConstantOp) and at_hand.issuperset(op.operands):
            at_hand.update(op.results)
            free.append(op)
        else:
            costly.append(op)
    # Views alone are not worth a region.
    if all(isinstance(op, ViewOp | PrepareOp) for op in costly):
        costly = [op for op in costly if isinstance(op, PrepareOp)]
    return free, costly


def _may_move(op: Operation) -> bool:
    return op.has_trait(Pure) and not isinstance(op, VariableOp)


def _dissolve(prepare: PrepareOp) -> None:
    """Replaces a `pg.prepare` by its body."""
    block = prepare.parent
    last = prepare.body.block.last_op
    assert block is not None and isinstance(last, YieldOp)
    for result, value in zip(prepare.outputs, last.values, strict=True):
        result.replace_all_uses_with(value)
    Rewriter.erase_op(last)
    for op in list(prepare.body.block.ops):
        op.detach()
        block.insert_op_before(op, prepare)
    Rewriter.erase_op(prepare)


def _prepare(block: Block, free: list[Operation], costly: list[Operation]) -> None:
    """Moves free operations to the start of the block, followed by one `pg.prepare`."""
    inside = set(costly)
    outputs = [
        result
        for op in costly
        for result in op.results
        if any(use.operation not in inside for use in result.uses)
    ]
    body = Block()
    prepare = PrepareOp(Region(body), [output.type for output in outputs])
    for op in [*free, *costly]:
        op.detach()
    block.insert_ops_before([*free, prepare], _first(block))
    body.add_ops(costly)
    for output, result in zip(outputs, prepare.outputs, strict=True):
        result.name_hint = output.name_hint
        output.replace_uses_with_if(result, lambda use: use.operation not in inside)
    body.add_op(YieldOp(outputs))


def _first(block: Block) -> Operation:
    first = block.first_op
    assert first is not None, "a graph ends with pg.return"
    return first
