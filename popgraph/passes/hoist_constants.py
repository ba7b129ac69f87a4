"""What can be computed once, when the program is loaded?"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import Rewriter
from xdsl.traits import Pure

from popgraph.dialects.program import ConstantOp, GraphOp, PrepareOp, VariableOp, YieldOp
from popgraph.dialects.tile import ViewOp
from popgraph.passes.base import Compilation, Pass


@dataclass(frozen=True)
class HoistConstants(Pass):
    """
    Work that depends on constants only moves into one `pg.prepare`.

    The packing of weights is the typical case. Constants, and views of them, cost nothing and
    stay where they are.
    """

    name = "hoist-constants"

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        for op in module.ops:
            if isinstance(op, GraphOp):
                _hoist(op.block)


def _hoist(block: Block) -> None:
    prepares = [op for op in block.ops if isinstance(op, PrepareOp)]
    _, costly = _constant_work(block)
    if len(prepares) < 2 and all(isinstance(op, PrepareOp) for op in costly):
        return
    for prepare in prepares:
        _dissolve(prepare)
    free, costly = _constant_work(block)
    _prepare(block, free, costly)


def _constant_work(block: Block) -> tuple[list[Operation], list[Operation]]:
    """
    What depends on constants only, in order: what is free, and what costs.

    A view of a costly result goes with it.
    """
    at_hand: set[SSAValue] = set()
    computed: set[SSAValue] = set()
    free, costly = list[Operation](), list[Operation]()
    for op in block.ops:
        reads = _reads(op)
        known = all(value in at_hand or value in computed for value in reads)
        if isinstance(op, VariableOp) or not op.has_trait(Pure) or not known:
            continue
        if isinstance(op, ViewOp | ConstantOp) and at_hand.issuperset(reads):
            at_hand.update(op.results)
            free.append(op)
        else:
            computed.update(op.results)
            costly.append(op)
    if all(isinstance(op, ViewOp | PrepareOp) for op in costly):
        costly = [op for op in costly if isinstance(op, PrepareOp)]
    return free, costly


def _reads(op: Operation) -> list[SSAValue]:
    """What an operation depends on: its operands, and what its regions take from outside."""
    if not op.regions:
        return list(op.operands)
    inside: set[SSAValue] = set()
    for inner in op.walk():
        inside.update(inner.results)
    for inner_block in op.walk_blocks():
        inside.update(inner_block.args)
    return [value for inner in op.walk() for value in inner.operands if value not in inside]


def _dissolve(prepare: PrepareOp) -> None:
    """Puts the body of a `pg.prepare` in its place."""
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
    """Constants first, then one region with all the work."""
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
