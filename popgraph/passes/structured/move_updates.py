"""Moves updates of variables up to the last use of the old value, to shorten live ranges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.traits import Pure

from popgraph.dialects.program import ReturnOp, UpdateOp, VariableOp, graphs_of
from popgraph.dialects.tile import ViewOp
from popgraph.passes.base import Compilation, Pass


@dataclass(frozen=True)
class MoveUpdates(Pass):
    """
    Work that only updates need moves up, behind the last that reads the variable's old value.

    At the end of the step every update would keep the activations that it is made of until then.
    """

    name = "move-updates"

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        for graph in graphs_of(module):
            _move(graph.block)


def _move(block: Block) -> None:
    """Sorts operations by the place of what they have to wait for."""
    places = {op: (number, 0) for number, op in enumerate(block.ops)}
    updates = [op for op in block.ops if isinstance(op, UpdateOp)]
    readers = {
        op.variable.text: set(_readers(op.result)) for op in block.ops if isinstance(op, VariableOp)
    }
    moved = set[Operation]()
    for number, update in enumerate(updates, 1):
        chain = _chain(update, moved)
        waits = _read_by(chain) | readers.get(update.variable.text, set())
        place = max((places[op][0] for op in waits - chain if op in places), default=0)
        places |= dict.fromkeys(chain, (place, number))
        moved |= chain
    ordered = sorted(places, key=places.__getitem__)
    if ordered != list(block.ops):
        for op in ordered:
            op.detach()
        block.add_ops(ordered)


def _chain(update: UpdateOp, moved: set[Operation]) -> set[Operation]:
    """The operations that only this update needs, and that have not moved yet."""
    chain: set[Operation] = {update}
    waiting = [update.value]
    while waiting:
        owner = waiting.pop().owner
        if isinstance(owner, Operation) and _belongs(owner, chain, moved):
            chain.add(owner)
            waiting += owner.operands
    return chain - {update}


def _belongs(op: Operation, chain: set[Operation], moved: set[Operation]) -> bool:
    if op in moved or isinstance(op, VariableOp) or not op.operands or not op.has_trait(Pure):
        return False
    return all(use.operation in chain for result in op.results for use in result.uses)


def _read_by(chain: set[Operation]) -> set[Operation]:
    """What makes the operands of these operations, and of what is inside them."""
    values = [value for op in chain for inner in op.walk() for value in inner.operands]
    return {owner for value in values if isinstance(owner := value.owner, Operation)}


def _readers(value: SSAValue) -> Iterator[Operation]:
    """Operations that read a value, or a view of it; what is returned is kept by itself."""
    seen = [value]
    while seen:
        for use in seen.pop().uses:
            if not isinstance(use.operation, ReturnOp):
                yield use.operation
            if isinstance(use.operation, ViewOp):
                seen.append(use.operation.output)
