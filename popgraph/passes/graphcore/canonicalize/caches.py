"""Canonicalizes matmuls with a growing cache: old and new rows are multiplied separately."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from xdsl.dialects.builtin import f32, f64
from xdsl.ir import Block, SSAValue

from popgraph.dialects.graphcore import (
    AddOp,
    BroadcastOp,
    ConcatOp,
    MatMulOp,
    ReshapeOp,
    SliceOp,
    TransposeOp,
)
from popgraph.dialects.graphcore.base import Operand, integer, shape_of, tensor_of
from popgraph.dialects.program import GraphOp
from popgraph.passes.graphcore.canonicalize.rewriting import Rule
from popgraph.support.index_laws import CONCATENATION
from popgraph.support.laws import Proof, real_law, variable
from popgraph.support.shapes import prod

MovementOp: TypeAlias = TransposeOp | BroadcastOp | ReshapeOp
MOVEMENTS = (TransposeOp, BroadcastOp, ReshapeOp)


S, X, W, Q = map(variable, ("s", "x", "w", "q"))
SPLIT_SUM = (real_law((S + X * W) + Q, S + (X * W + Q)),)
"""Terms of a sum move to the sum of the rows after them."""


class MultiplyParts(Rule[MatMulOp]):
    """
    q @ concat(k, new)  ->  concat(q @ k, q @ new), along columns
    p @ concat(v, new)  ->  p[.., :n] @ v + p[.., n:] @ new, along rows.

    Only when k is an input. It may be transposed, reshaped or broadcast: the cache of a decoder.
    The concatenation would copy the whole cache for each token, while q and the product are small.
    Along rows, only in f32 and f64: in f16 each partial sum would be rounded.
    """

    ROOTS = (MatMulOp,)
    PROOF = Proof(
        (*CONCATENATION, *SPLIT_SUM), approximate="partial sums round on their own; columns do not"
    )

    def rewrite(self, op: MatMulOp) -> Operand | None:
        rank = len(shape_of(op.rhs))
        rounds = tensor_of(op.rhs).element_type not in (f32, f64)
        for axis in (rank - 1,) if rounds else (rank - 1, rank - 2):
            chain = list(_chain(op.rhs, axis))
            if chain and _holds_input(chain[-1][0]):
                parts = _parts(chain)
                return _columns(op, parts) if axis == rank - 1 else _rows(op, parts)
        return None


def _columns(op: MatMulOp, parts: Sequence[Operand]) -> Operand:
    return ConcatOp([MatMulOp(op.lhs, part) for part in parts], axis=len(shape_of(op.result)) - 1)


def _rows(op: MatMulOp, parts: Sequence[Operand]) -> Operand:
    *leading, _ = shape_of(op.lhs)
    start, total = 0, None
    for part in parts:
        size = shape_of(part)[-2]
        starts, sizes = [*(0 for _ in leading), start], [*leading, size]
        factor = SliceOp(op.lhs, starts=starts, sizes=sizes, steps=[1] * len(sizes))
        product: Operand = MatMulOp(factor, part)
        total = product if total is None else AddOp(total, product)
        start += size
    assert total is not None, "a cache is a part"
    return total


def _chain(value: SSAValue, axis: int) -> Iterator[tuple[MovementOp | ConcatOp, int]]:
    """
    Movements from a value back to a concatenation, which is yielded last; nothing without one.

    `axis` is the concatenated axis in `value`; each movement is yielded with its own.
    """
    found = []
    while isinstance(op := value.owner, MOVEMENTS):
        found.append((op, axis))
        before = _axis_before(op, axis)
        if before is None:
            return
        value, axis = op.x, before
    if isinstance(op, ConcatOp) and integer(op.axis) == axis:
        yield from [*found, (op, axis)]


def _axis_before(op: MovementOp, axis: int) -> int | None:
    """The axis of the operand that becomes an axis of the result; None if there is none."""
    before, after = shape_of(op.x), shape_of(op.results[0])
    match op:
        case TransposeOp():
            return op.perm.data[axis]
        case BroadcastOp():
            found = axis - len(after) + len(before)
            return found if found >= 0 and before[found] == after[axis] else None
        case _:
            sizes = prod(after[:axis]), after[axis]
            same = [at for at, size in enumerate(before) if (prod(before[:at]), size) == sizes]
            return same[0] if len(same) == 1 and 0 not in before else None


def _parts(chain: Sequence[tuple[MovementOp | ConcatOp, int]]) -> list[SSAValue]:
    """The operands of the concatenation, each with the movements applied."""
    *movements, (joined, _) = chain
    assert isinstance(joined, ConcatOp)
    found = []
    for part in joined.xs:
        size = shape_of(part)[integer(joined.axis)]
        for op, axis in reversed(movements):
            if isinstance(op, TransposeOp):
                part = TransposeOp(part, perm=op.perm.data).result
                continue
            shape = list(shape_of(op.results[0]))
            shape[axis] = size
            kind = BroadcastOp if isinstance(op, BroadcastOp) else ReshapeOp
            part = kind(part, shape=shape).result
        found.append(part)
    return found


def _holds_input(joined: MovementOp | ConcatOp) -> bool:
    """Whether an operand is a moved input of the program."""
    return isinstance(joined, ConcatOp) and any(map(_is_input, joined.xs))


def _is_input(value: SSAValue) -> bool:
    while isinstance(op := value.owner, MOVEMENTS):
        value = op.x
    return isinstance(op, Block) and isinstance(op.parent_op(), GraphOp)


RULES = (MultiplyParts,)
