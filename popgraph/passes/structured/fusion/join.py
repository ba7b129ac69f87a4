"""Joins operations into a `tile.fused`, for all passes that decide what to fuse."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from popgraph.dialects import tile
from popgraph.passes.analysis.replace import insert_made_for


def join(
    operations: Sequence[Operation],
    domain: Sequence[int],
    steps: Sequence[int],
    loops: Sequence[Sequence[int]] | None = None,
    splits: int | None = None,
) -> tile.FusedOp:
    """
    Moves operations of a block into a `tile.fused` at the position of the last one.

    a; fused { b }; c  ->  fused { a; b; c }

    Only when they are convex. Operations between them that depend on them move after it.
    """
    members = [inner for op in operations for inner in _dissolved(op)]
    last = members[-1]
    late, results = list(dependants(members)), read_elsewhere(members)
    made = {value for op in members for value in op.results}
    read = dict.fromkeys(value for op in members for value in op.operands)
    inputs = [value for value in read if value not in made]
    body = Block(arg_types=[value.type for value in inputs])
    types = [value.type for value in results]
    fused = tile.FusedOp(inputs, domain, steps, body, types, loops, splits)
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
    """Inlines a `tile.fused` into its block and returns its members; else the operation itself."""
    if not isinstance(op, tile.FusedOp):
        return [op]
    for argument, operand in zip(op.body.block.args, op.inputs, strict=True):
        argument.replace_all_uses_with(operand)
    for result, value in zip(op.outputs, op.yielded, strict=True):
        result.replace_all_uses_with(value)
    *inner, _ = op.body.block.ops
    for one in inner:
        one.detach()
        Rewriter.insert_op(one, InsertPoint.before(op))
    Rewriter.erase_op(op)
    return inner


def read_elsewhere(operations: Sequence[Operation]) -> list[SSAValue]:
    """The results of `operations` that other operations read."""
    inside = set(operations)
    return [
        value
        for op in operations
        for value in op.results
        if any(use.operation not in inside for use in value.uses)
    ]


def is_convex(operations: Sequence[Operation]) -> bool:
    """Whether no path of dependences leaves these operations and returns to them."""
    between = set(dependants(operations))
    return not any(operand.owner in between for op in operations for operand in op.operands)


def dependants(operations: Sequence[Operation]) -> Iterable[Operation]:
    """The operations between the first and the last that depend on any of them, in order."""
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
