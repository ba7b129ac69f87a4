"""Canonicalization of scales: folded into constant weights, or moved to a smaller tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.dialects.builtin import bf16, f32, f64
from xdsl.ir import SSAValue

from popgraph.dialects.graphcore import (
    AddOp,
    BatchNormOp,
    BroadcastOp,
    ConvOp,
    ExpNonpositiveOp,
    MatMulOp,
    MulOp,
    ReciprocalOp,
    ReduceSumOp,
    ReshapeOp,
    TransposeOp,
)
from popgraph.dialects.graphcore.base import (
    Movement,
    Operand,
    dtype_of,
    shape_of,
    tensor_of,
)
from popgraph.dialects.graphcore.batch_norm import factor_and_shift
from popgraph.dialects.program import ConstantOp, WeightStore, constant_array
from popgraph.passes.graphcore.canonicalize.rewriting import Rule, moved, with_operands
from popgraph.support.arrays import Array
from popgraph.support.laws import Proof, real_law, variable
from popgraph.support.shapes import prod


@dataclass(frozen=True)
class Layer:
    """A convolution or matmul with constant weights and a single use."""

    op: ConvOp | MatMulOp
    weights: ConstantOp

    @staticmethod
    def of(value: SSAValue) -> Layer | None:
        op = value.owner
        if not isinstance(op, ConvOp | MatMulOp) or not value.has_one_use():
            return None
        weights = op.operands[1].owner
        return Layer(op, weights) if isinstance(weights, ConstantOp) else None

    @property
    def channel_axis(self) -> int:
        """The axis of the result's channels; each has weights of its own."""
        rank = len(shape_of(self.op.result))
        return 1 if isinstance(self.op, ConvOp) else rank - 1

    @property
    def channels(self) -> int:
        return shape_of(self.op.result)[self.channel_axis]

    def per_channel(self, array: Array) -> Array | None:
        """A constant as one number per channel; None if it varies along another axis."""
        result = shape_of(self.op.result)
        if array.ndim > len(result):
            return None
        wide = array.reshape((1,) * (len(result) - array.ndim) + array.shape)
        if any(size != 1 for axis, size in enumerate(wide.shape) if axis != self.channel_axis):
            return None
        if wide.size not in (1, self.channels):
            return None
        return np.broadcast_to(wide.reshape(-1), (self.channels,))

    def spread(self, numbers: Array) -> Array:
        """Numbers per channel in a shape that broadcasts against the result."""
        shape = [1] * len(shape_of(self.op.result))
        shape[self.channel_axis] = self.channels
        return numbers.reshape(shape)

    @property
    def dtype(self) -> np.dtype[np.generic]:
        return dtype_of(self.weights.result).numpy

    def scaled(self, scale: Array, store: WeightStore) -> Operand:
        """The layer with scaled weights, which are computed while passes run."""
        shape, dtype, literal = shape_of(self.weights.result), self.dtype, self.weights.literal
        if isinstance(self.op, ConvOp):
            scale = scale.reshape((-1,) + (1,) * (len(shape) - 1))

        def scaled_weights() -> Array:
            return np.multiply(store.array(literal), scale).astype(dtype)

        origin = f"{literal} * {scale.dtype} {scale.tobytes().hex()}"
        weights = ConstantOp(store.later(origin, shape, dtype, scaled_weights))
        return with_operands(self.op, [self.op.operands[0], weights.result])


S, X, Y, W, B, C = map(variable, ("s", "x", "y", "w", "b", "c"))
FACTOR, MEAN, BIAS = map(variable, ("factor", "mean", "bias"))
SCALED_SUM = (real_law((S + X * W) * C, S * C + X * (W * C)),)
"""A scale of a sum moves into each term: the step of an induction over the terms."""
SCALED_BIAS = (real_law((Y + B) * C, Y * C + B * C),)
NORMALIZED = (
    real_law(((Y + B) - MEAN) * FACTOR + BIAS, Y * FACTOR + (B * FACTOR + (BIAS - MEAN * FACTOR))),
)
FACTORS = (
    real_law(X * (Y * C), (X * C) * Y),
    real_law(X * (Y * C), (X * Y) * C),
    real_law((X * B) * (Y * C), (X * (B * C)) * Y),
)
"""One term of a product of matrices; `SCALED_SUM` moves the factor out of the sum."""


class ScaleWeights(Rule[MulOp]):
    """
    conv(x, w) * c  ->  conv(x, w * c), and the same for matmul

    Only when w and c are constant. c has one number in all or one per channel, and the layer has
    no other use.
    """

    ROOTS = (MulOp,)
    PROOF = Proof(SCALED_SUM, approximate="weights are rounded after the scale, products before")

    def rewrite(self, op: MulOp) -> Operand | None:
        for value, other in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
            layer = Layer.of(value)
            factor = None if layer is None else self.array(other)
            if layer is None or factor is None:
                continue
            scale = layer.per_channel(factor)
            if scale is not None:
                return layer.scaled(scale, self.weights)
        return None


class ScaleBias(Rule[MulOp]):
    """
    (conv(x, w) + b) * c  ->  conv(x, w * c) + b * c, and the same for matmul

    Only when w, b and c are constant. b and c have one number per channel, and the sum has no other
    use.
    """

    ROOTS = (MulOp,)
    PROOF = Proof(
        (*SCALED_SUM, *SCALED_BIAS), approximate="weights and bias are rounded after the scale"
    )

    def rewrite(self, op: MulOp) -> Operand | None:
        for value, other in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
            found = layer_and_bias(value, self.weights)
            factor = None if found is None else self.array(other)
            if factor is None or found is None:
                continue
            layer, bias = found
            scale = layer.per_channel(factor)
            if scale is not None:
                return shifted(self, layer, scale, np.multiply(bias, scale))
        return None


class FoldBatchNorm(Rule[BatchNormOp]):
    """
    batch_norm(conv(x, w) [+ b])  ->  conv(x, w * s) + (b - mean) * s + bias

    Only when w, b and the statistics are constant. The normalized value has no other use.
    """

    ROOTS = (BatchNormOp,)
    PROOF = Proof(
        (*SCALED_SUM, *NORMALIZED), approximate="weights and bias are rounded after the scale"
    )

    def rewrite(self, op: BatchNormOp) -> Operand | None:
        numbers = [self.array(operand) for operand in op.operands[1:]]
        layer, shift = Layer.of(op.x), None
        if layer is None:
            found = layer_and_bias(op.x, self.weights)
            layer, shift = found if found is not None else (None, None)
        known = [number for number in numbers if number is not None]
        if layer is None or layer.channel_axis != 1 or len(known) < len(numbers):
            return None
        scale, bias, mean, variance = known
        factor, bias = factor_and_shift(scale, bias, mean, variance, op.epsilon.value.data)
        return shifted(self, layer, factor, bias if shift is None else shift * factor + bias)


def layer_and_bias(value: SSAValue, store: WeightStore) -> tuple[Layer, Array] | None:
    """The layer and bias if `value` is a layer plus a constant per channel."""
    total = value.owner
    if not isinstance(total, AddOp) or not value.has_one_use():
        return None
    for inner, other in ((total.lhs, total.rhs), (total.rhs, total.lhs)):
        layer, constant = Layer.of(inner), constant_array(other, store)
        if layer is None or constant is None:
            continue
        bias = layer.per_channel(constant)
        if bias is not None:
            return layer, bias
    return None


def shifted(rule: ScaleBias | FoldBatchNorm, layer: Layer, scale: Array, shift: Array) -> Operand:
    """The layer with scaled weights, plus a shift per channel."""
    wide = layer.spread(np.asarray(shift)).astype(layer.dtype)
    return AddOp(layer.scaled(scale, rule.weights), rule.literal(wide))


MOVEMENTS = (TransposeOp, ReshapeOp, BroadcastOp)
"""Operations that commute with a scale."""
WIDE = (f32, f64, bf16)
"""Element types in which a moderate scale cannot overflow on its own; the largest f16 is 65504."""
MODERATE = 2.0**16
"""Scales from 1 / MODERATE to MODERATE move: within them f32 has ample exponents left."""


@dataclass(frozen=True)
class Scaled:
    """movements(plain * scale), where scale is one number."""

    product: MulOp
    plain: SSAValue
    scale: float
    movements: Sequence[Movement]

    @property
    def elements(self) -> int:
        return prod(shape_of(self.product.result))

    @property
    def cost(self) -> tuple[int, int]:
        """Elements to scale, then movements before it: packing absorbs those, but no scale."""
        movements, value = 0, self.plain
        while isinstance(value.owner, MOVEMENTS):
            movements, value = movements + 1, value.owner.x
        return self.elements, movements

    def without_scale(self) -> SSAValue:
        return moved(self.plain, self.movements)


class ScaleFewest(Rule[MatMulOp]):
    """
    q @ (k * c)  ->  (q * c) @ k or (q @ k) * c; (q * b) @ (k * c)  ->  (q * (b * c)) @ k.

    Only when c is one number of moderate size, k * c has no other use, and the other factor or the
    product has fewer elements. A decoder then scales one query instead of all keys. Of two factors
    with as many elements, it is the one with fewer movements before its scale: keys that several
    heads share are then packed without a copy. Scaling a literal without other uses is free:
    constant folding does it.
    """

    ROOTS = (MatMulOp,)
    PROOF = Proof((*SCALED_SUM, *FACTORS), approximate="another factor is rounded after the scale")

    def rewrite(self, op: MatMulOp) -> Operand | None:
        for number in (0, 1):
            found = self._scaled(op.operands[number])
            made = None if found is None else self._rewritten(op, number, found)
            if made is not None:
                return made
        return None

    def _scaled(self, value: SSAValue) -> Scaled | None:
        """The value as a movable product with one number, or None."""
        movements = list[Movement]()
        while isinstance(value.owner, MOVEMENTS) and value.has_one_use():
            movements.insert(0, value.owner)
            value = value.owner.x
        op = value.owner
        if not isinstance(op, MulOp) or not value.has_one_use():
            return None
        if tensor_of(value).element_type not in WIDE:
            return None
        for plain, factor in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
            array = self.array(factor)
            if array is None or array.size != 1 or shape_of(plain) != shape_of(value):
                continue
            if _is_scaled_when_folded(plain):
                continue
            scale = float(array.reshape(()))
            if 1 / MODERATE <= abs(scale) <= MODERATE:
                return Scaled(op, plain, scale, movements)
        return None

    def _rewritten(self, op: MatMulOp, number: int, found: Scaled) -> Operand | None:
        other = op.operands[1 - number]
        partner = self._scaled(other)
        results = prod(shape_of(op.result))
        if partner is not None and partner.cost <= found.cost:
            scale = self._number(partner.scale * found.scale, other)
            both = moved(MulOp(partner.plain, scale), partner.movements)
            return self._product(op, number, found, both)
        if self._elements(other) < min(found.elements, results + 1):
            factor = MulOp(other, self._number(found.scale, other))
            return self._product(op, number, found, factor.result)
        if results < found.elements:
            product = self._product(op, number, found, other)
            return MulOp(product, self._number(found.scale, other))
        return None

    def _product(self, op: MatMulOp, number: int, found: Scaled, other: SSAValue) -> Operand:
        factors = [other, other]
        factors[number] = found.without_scale()
        return with_operands(op, factors)

    def _elements(self, value: SSAValue) -> int:
        """The number of multiplications that scaling a value costs at run time."""
        return 0 if _is_scaled_when_folded(value) else prod(shape_of(value))

    def _number(self, scale: float, like: SSAValue) -> Operand:
        return self.literal(np.array(scale, dtype_of(like).numpy))


# Such a literal absorbs its scale in fold-constants. Without this exception in `_scaled`, the scale
# of a literal in T5 moved to and fro without end.
def _is_scaled_when_folded(value: SSAValue) -> bool:
    return isinstance(value.owner, ConstantOp) and value.has_one_use()


class NormalizeLater(Rule[MatMulOp]):
    """
    (e * (1 / sum e)) @ v  ->  (e @ v) * (1 / sum e), for a softmax of rows, e = exp(x - max x)

    Only when the softmax has no other use, and the result has fewer elements. Exponentials are at
    most 1, and their sum is at least 1. So a sum overflows only if the values in `v` are close to
    the largest number of their type.
    """

    ROOTS = (MatMulOp,)
    PROOF = Proof(
        (*SCALED_SUM, *FACTORS), approximate="sums are rounded before the scale, not their terms"
    )

    def rewrite(self, op: MatMulOp) -> Operand | None:
        rows, values = op.operands
        product, shape = rows.owner, shape_of(rows)
        if not isinstance(product, MulOp) or not rows.has_one_use() or len(shape_of(values)) < 2:
            return None
        if tensor_of(rows).element_type not in (f32, f64):
            return None
        exponentials, factor = product.operands
        if not isinstance(exponentials.owner, ExpNonpositiveOp) or len(shape) < 2:
            return None
        if not _divides_by_sum(factor, exponentials) or shape_of(values)[-1] >= shape[-1]:
            return None
        return MulOp(with_operands(op, [exponentials, values]), factor)


def _divides_by_sum(factor: SSAValue, rows: SSAValue) -> bool:
    """Whether a factor is 1 / sum(rows), a number for each row."""
    total = factor.owner.x.owner if isinstance(factor.owner, ReciprocalOp) else None
    return (
        isinstance(total, ReduceSumOp)
        and total.x == rows
        and shape_of(factor) == (*shape_of(rows)[:-1], 1)
    )


RULES = (ScaleWeights, ScaleBias, FoldBatchNorm, ScaleFewest, NormalizeLater)
