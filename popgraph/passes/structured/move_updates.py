"""Moves updates of variables up, after the last use of the old value, to shorten live ranges."""

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
    Move an update of a variable, and its private work, after the last reader of the old value.

    An update at the end of the step would keep the activations of its gradient alive until then.
    """

    name = "move-updates"

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        for graph in graphs_of(module):
            _move(graph.block)


def _move(block: Block) -> None:
    """Sorts operations by the position of the last operation that they must follow."""
    positions = {op: (number, 0) for number, op in enumerate(block.ops)}
    updates = [op for op in block.ops if isinstance(op, UpdateOp)]
    readers = {
        op.variable.text: set(_readers(op.result)) for op in block.ops if isinstance(op, VariableOp)
    }
    moved = set[Operation]()
    for number, update in enumerate(updates, 1):
        chain = _chain(update, moved)
        waits = _read_by(chain) | readers.get(update.variable.text, set())
        last = max((positions[op][0] for op in waits - chain if op in positions), default=0)
        positions |= dict.fromkeys(chain, (last, number))
        moved |= chain
    ordered = sorted(positions, key=positions.__getitem__)
    if ordered != list(block.ops):
        for op in ordered:
            op.detach()
        block.add_ops(ordered)


def _chain(update: UpdateOp, moved: set[Operation]) -> set[Operation]:
    """The pure operations that only this update uses and that have not moved yet."""
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
    """The producers of the operands of a chain, including those in its regions."""
    values = [value for op in chain for inner in op.walk() for value in inner.operands]
    return {owner for value in values if isinstance(owner := value.owner, Operation)}


def _readers(value: SSAValue) -> Iterator[Operation]:
    """Yields the operations that read a value, or a view of it, except `pg.return`."""
    # A returned value gets memory of its own, so it does not delay the update.
    seen = [value]
    while seen:
        for use in seen.pop().uses:
            if not isinstance(use.operation, ReturnOp):
                yield use.operation
            if isinstance(use.operation, ViewOp):
                seen.append(use.operation.output)
