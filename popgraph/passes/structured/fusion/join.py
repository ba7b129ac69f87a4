"""The join: how operations move into one that runs them together, whoever decides that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from popgraph.dialects import tile
from popgraph.passes.analysis.replace import insert_made_for

Fused = tile.NestOp | tile.ChainOp
Make = Callable[[Sequence[SSAValue], Block, Sequence[Attribute]], Fused]
"""Creates the fused operation of these inputs, this body and these types of results."""


def join(operations: Sequence[Operation], make: Make) -> Fused:
    """
    Moves operations of a block into a new one at the place of the last.

    a; nest { b }; c  ->  fused { a; b; c }

    Only when they are convex. What stands between them and reads them follows the new operation.
    """
    members = [inner for op in operations for inner in _dissolved(op)]
    last = members[-1]
    late, results = list(dependants(members)), read_elsewhere(members)
    made = {value for op in members for value in op.results}
    read = dict.fromkeys(value for op in members for value in op.operands)
    inputs = [value for value in read if value not in made]
    body = Block(arg_types=[value.type for value in inputs])
    fused = make(inputs, body, [value.type for value in results])
    insert_made_for(last, fused, at=InsertPoint.after(last))
    arguments = dict(zip(inputs, body.args, strict=True))
    for op in members:
        op.detach()
        body.add_op(op)
        op.operands = [arguments.get(operand, operand) for operand in op.operands]
    for value, result in zip(results, fused.results, strict=True):
        result.name_hint = value.name_hint
        value.replace_uses_with_if(result, lambda use: use.operation.parent is not body)
    body.add_op(tile.YieldOp(*results))
    for reader in reversed(late):
        reader.detach()
        Rewriter.insert_op(reader, InsertPoint.after(fused))
    return fused


def _dissolved(op: Operation) -> list[Operation]:
    """The operations of a fused one, which they replace; any other operation itself."""
    if not isinstance(op, Fused):
        return [op]
    for argument, operand in zip(op.body.block.args, op.operands, strict=True):
        argument.replace_all_uses_with(operand)
    for result, value in zip(op.results, op.yielded, strict=True):
        result.replace_all_uses_with(value)
    *inner, _ = op.body.block.ops
    for one in inner:
        one.detach()
        Rewriter.insert_op(one, InsertPoint.before(op))
    Rewriter.erase_op(op)
    return inner


def read_elsewhere(operations: Sequence[Operation]) -> list[SSAValue]:
    """The results of some operations that others read."""
    inside = set(operations)
    return [
        value
        for op in operations
        for value in op.results
        if any(use.operation not in inside for use in value.uses)
    ]


def is_convex(operations: Sequence[Operation]) -> bool:
    """Whether nothing else has to run between these operations."""
    between = set(dependants(operations))
    return not any(operand.owner in between for op in operations for operand in op.operands)


def dependants(operations: Sequence[Operation]) -> Iterable[Operation]:
    """The operations between these that depend on some of them, in order."""
    inside = set(operations)
    found: dict[Operation, None] = {}
    op: Operation | None = operations[0]
    while op is not None and op is not operations[-1]:
        if op not in inside and any(
            operand.owner in inside or operand.owner in found for operand in op.operands
        ):
            found[op] = None
        op = op.next_op
    return found
