"""Constant folding: operations on literals become literals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from xdsl.builder import Builder, ImplicitBuilder
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from popgraph.dialects.element_types import element_bytes
from popgraph.dialects.graphcore import CheckIndicesOp, ExchangeOp, TransposeOp
from popgraph.dialects.graphcore.base import (
    Elementwise,
    GraphcoreOp,
    Movement,
    as_array,
    dtype_of,
    shape_of,
)
from popgraph.dialects.graphcore.collectives import Collective
from popgraph.dialects.graphcore.quantization import Quantization
from popgraph.dialects.program import ConstantOp, GraphOp, WeightStore, constant_array
from popgraph.dialects.program.attributes import BlobAttr, DataAttr
from popgraph.dialects.program.weights import LATER_BYTES
from popgraph.passes.base import Compilation, Pass
from popgraph.support.arrays import Array, owned
from popgraph.support.laws import Proof, Rewrite
from popgraph.support.shapes import prod
from popgraph.support.tuning import Tuning

LITERAL = (Elementwise, Movement, Quantization)
"""Operations on literals whose results `computed_array` evaluates, whatever their size."""


FOLD = Rewrite(
    "fold literals",
    "y = f(literals)  ->  y = literal",
    Proof(construction="the literal is computed by `evaluate`, the meaning of the operation"),
)


def is_literal(value: SSAValue) -> bool:
    """Whether a value depends on literals only, so that `computed_array` can evaluate it."""
    waiting, seen = [value], {value}
    while waiting:
        op = waiting.pop().owner
        if isinstance(op, LITERAL):
            # Each value is visited once: chains of x * f(x) would double at each link.
            new = [operand for operand in op.operands if operand not in seen]
            seen.update(new)
            waiting.extend(new)
        elif not isinstance(op, ConstantOp):
            return False
    return True


def computed_array(value: SSAValue, weights: WeightStore) -> Array | None:
    """The elements of a value that depends on literals only; it may be too large to fold."""
    if not is_literal(value):
        return None
    found: dict[SSAValue, Array] = {}
    waiting = [value]
    while waiting:
        op = waiting[-1].owner
        missing = [one for one in _read_by(op) if one not in found]
        if missing:
            waiting.extend(missing)
            continue
        made = waiting.pop()
        if isinstance(op, ConstantOp):
            found[made] = weights.array(op.literal)
        else:
            assert isinstance(op, LITERAL)
            found[made] = op.evaluate(*(found[operand] for operand in op.operands))[0]
    return found[value]


def _read_by(owner: Operation | Block) -> Sequence[SSAValue]:
    return owner.operands if isinstance(owner, Operation) else ()


def bytes_of(value: SSAValue) -> int:
    return prod(shape_of(value)) * element_bytes(value.type)


def may_fold(op: Operation, limit: int, tuning: Tuning) -> bool:
    """Whether all operands are literals, and the results are small enough to be literals."""
    # NumPy takes seconds to transpose large literals; readers can read them strided instead.
    if isinstance(op, TransposeOp) and bytes_of(op.result) > tuning.large_literal_bytes:
        return False
    return (
        isinstance(op, GraphcoreOp)
        and not isinstance(op, ExchangeOp | Collective)  # other replicas may have other values
        and not op.regions
        and all(isinstance(operand.owner, ConstantOp) for operand in op.operands)
        and sum(map(bytes_of, op.results)) <= limit
    )


def fold(op: Operation, weights: WeightStore) -> dict[SSAValue, SSAValue]:
    """Replaces an operation by literals; maps each of its results to its literal."""
    assert isinstance(op, GraphcoreOp)
    if isinstance(op, LITERAL) and bytes_of(op.results[0]) >= LATER_BYTES:
        made: Sequence[DataAttr | BlobAttr] = [_later(op, weights)]
    else:
        operands = [constant_array(operand, weights) for operand in op.operands]
        if isinstance(op, CheckIndicesOp) and operands[0] is not None:
            error = op.error(operands[0])
            if error is not None and not isinstance(op.parent_op(), GraphOp):
                return {}  # a body may never run, so its error is not certain
            if error is not None:
                raise error
        arrays = _evaluated(op, [array for array in operands if array is not None])
        made = [weights.attribute(array) for array in arrays]
    FOLD.fires()
    folded: dict[SSAValue, SSAValue] = {}
    for result, attribute in zip(op.results, made, strict=True):
        with ImplicitBuilder(Builder(InsertPoint.before(op))):
            literal = ConstantOp(attribute)
        literal.location = op.location
        folded[result] = literal.result
        result.replace_all_uses_with(literal.result)
    Rewriter.erase_op(op)
    return folded


def _evaluated(op: GraphcoreOp, operands: Sequence[Array]) -> list[Array]:
    with np.errstate(all="ignore"):
        arrays = op.evaluate(*operands)
    return [
        as_array(array, dtype_of(result)) for result, array in zip(op.results, arrays, strict=True)
    ]


def _later(op: GraphcoreOp, weights: WeightStore) -> DataAttr | BlobAttr:
    """The literal of an operation's large result, which is computed while passes run."""
    literals = [one.owner.literal for one in op.operands if isinstance(one.owner, ConstantOp)]
    (result,) = op.results

    def make() -> Array:
        (array,) = _evaluated(op, [*map(weights.array, literals)])
        return owned(np.asarray(array, order="C"))  # The file of a view may change.

    origin = f"{op.name} {op.properties} {literals}"
    return weights.later(origin, shape_of(result), dtype_of(result).numpy, make)


def fold_small(
    ops: Iterable[Operation], weights: WeightStore, tuning: Tuning
) -> dict[SSAValue, SSAValue]:
    """Folds operations with small operands and small results, in order."""
    folded: dict[SSAValue, SSAValue] = {}
    limit = tuning.small_literal_bytes
    for op in ops:
        if may_fold(op, limit, tuning) and sum(map(bytes_of, op.operands)) <= limit:
            folded |= fold(op, weights)
    return folded


@dataclass(frozen=True)
class FoldConstants(Pass):
    """
    y = f(literals)  ->  y = literal.

    Only when the results have no more bytes than the operands, or at most `small_literal_bytes`: a
    broadcast literal is cheaper to compute than to load.
    """

    name = "fold-constants"
    TOLERANCE: ClassVar[float] = 0.0
    tuning: Tuning = Tuning()

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        for op in list(module.walk()):
            if op.parent is None:
                continue
            operands = sum(map(bytes_of, op.operands)) if op.operands else 0
            limit = max(self.tuning.small_literal_bytes, operands)
            if may_fold(op, limit, self.tuning):
                fold(op, compilation.weights)
        for op in list(module.walk(reverse=True)):
            if isinstance(op, ConstantOp) and not op.result.uses:
                Rewriter.erase_op(op)
