"""Multiplies quantized numbers as integers, and scales the sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np
from xdsl.dialects.builtin import ModuleOp, f32, i32
from xdsl.ir import Operation, SSAValue

from popgraph.dialects.graphcore import (
    AddOp,
    CastOp,
    CompareOp,
    ConvOp,
    DivOp,
    MatMulOp,
    MulOp,
    ReluOp,
    ReshapeOp,
    RoundOp,
    SubOp,
    TransposeOp,
    WhereOp,
)
from popgraph.dialects.graphcore.base import Operand, dtype_of, shape_of, tensor_of
from popgraph.dialects.program import ConstantOp, DataAttr, WeightStore
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.graphcore.canonicalize.rewriting import Rule, apply_rules, moved
from popgraph.passes.graphcore.fold_constants import computed_array
from popgraph.passes.graphcore.whole_sums import AnyContraction, pays, summed_axes, terms_of
from popgraph.passes.options import Options
from popgraph.support.arrays import Array
from popgraph.support.shapes import prod
from popgraph.support.tuning import Target
from popgraph.support.words import WORD, WORDS

MOVEMENTS = (TransposeOp, ReshapeOp)


@dataclass(frozen=True)
class Dequantized:
    """`(whole - zero) * scale`, perhaps transposed or reshaped: what DequantizeLinear gives."""

    whole: SSAValue
    ends: tuple[int, int]
    """The least and the greatest whole number."""
    zero: Array
    scale: Array
    """It broadcasts to the value, as it is after all movements."""
    movements: Sequence[TransposeOp | ReshapeOp] = ()

    @staticmethod
    def of(value: SSAValue, weights: WeightStore) -> Dequantized | None:
        op = value.owner
        if isinstance(op, MOVEMENTS):
            found = Dequantized.of(op.operands[0], weights)
            return found and found.moved(op)
        if not isinstance(op, MulOp) or tensor_of(value).element_type != f32:
            return None
        scale = computed_array(op.rhs, weights)
        if scale is None or shape_of(op.lhs) != shape_of(value):
            return None
        zero: Array | None = np.zeros((), np.float32)
        wide = op.lhs.owner
        if isinstance(wide, SubOp):
            zero, wide = computed_array(wide.rhs, weights), wide.lhs.owner
        if zero is None or not isinstance(wide, CastOp) or not dtype_of(wide.x).is_integer:
            return None
        if shape_of(wide.x) != shape_of(value) or np.any(zero != np.rint(zero)):
            return None
        rank = len(shape_of(value))
        scale = scale.reshape((1,) * (rank - scale.ndim) + scale.shape)
        return Dequantized(wide.x, _ends(wide.x, weights), zero, scale)

    def moved(self, op: TransposeOp | ReshapeOp) -> Dequantized | None:
        """The same after one more movement; None where scales would not broadcast any more."""
        if isinstance(op, TransposeOp):
            scale = self.scale.transpose(op.perm.data)
        elif self.scale.size == 1:
            scale = self.scale.reshape((1,) * len(shape_of(op.result)))
        else:
            return None
        return replace(self, scale=scale, movements=(*self.movements, op))

    @property
    def magnitude(self) -> int:
        """The largest size of a number before it is scaled."""
        differences = [end - zero for end in self.ends for zero in self.zero.flat]
        return int(max(map(abs, differences), default=0))

    @property
    def intervals(self) -> list[tuple[int, int]]:
        """Where its numbers lie, and where those do that a single zero was taken from."""
        found = [(-self.magnitude, self.magnitude)]
        low, high = self.ends
        return found if self.zero.size > 1 else [*found, (0, high - low)]

    def integers(self) -> Operand:
        """The numbers before they are scaled."""
        made: Operand = CastOp(self.whole, to=i32)
        if np.any(self.zero):
            made = SubOp(made, ConstantOp(DataAttr.of(self.zero.astype(WORD))))
        return moved(made, self.movements)


def _ends(whole: SSAValue, weights: WeightStore) -> tuple[int, int]:
    """Of integers of eight bits or the like: of literals the numbers decide, else the type."""
    array = computed_array(whole, weights)
    if array is not None and array.size:
        return int(array.min()), int(array.max())
    kind = ml_dtypes.iinfo(dtype_of(whole).numpy)
    return kind.min, kind.max


class ContractIntegers(Rule[AnyContraction]):
    """
    y = mat_mul (a * s), (b * t)  ->  y = cast f32 (mat_mul a, b) * (s * t)

    The same for conv. Only when a and b are small integers that the machine multiplies faster than
    floats, and scales are literals that do not differ along the summed axis.
    """

    ROOTS = (MatMulOp, ConvOp)

    def __init__(self, weights: WeightStore, target: Target) -> None:
        super().__init__(weights)
        self._target = target

    def rewrite(self, op: AnyContraction) -> Operand | None:
        found = [Dequantized.of(operand, self.weights) for operand in op.operands]
        factors = [one for one in found if one is not None]
        if len(factors) < len(found) or not self._fit(op, factors):
            return None
        scale = _scale(op, [one.scale for one in factors])
        if scale is None:
            return None
        whole = [SSAValue.get(one.integers()) for one in factors]
        sums: Operand
        sums = ConvOp(*whole, **op.options) if isinstance(op, ConvOp) else MatMulOp(*whole)
        return MulOp(CastOp(sums, to=f32), self.literal(scale))

    def _fit(self, op: AnyContraction, factors: Sequence[Dequantized]) -> bool:
        """Whether words of the machine hold the numbers, to profit, and 32 bits their sums."""
        lhs, rhs = factors
        window = shape_of(op.operands[1])[2:] if isinstance(op, ConvOp) else ()
        most = lhs.magnitude * rhs.magnitude * prod(window) * terms_of(op)
        if most > np.iinfo(WORD).max:
            return False
        (first, *shifted), (second, *_) = lhs.intervals, rhs.intervals
        return any(
            words.hold(first, second) or any(words.hold_shifted(one, second) for one in shifted)
            for words in map(WORDS.__getitem__, self._target.machine.words)
            if pays(op, words, self._target.tuning)
        )


def _scale(op: AnyContraction, scales: Sequence[Array]) -> Array | None:
    """What sums are multiplied by, as it broadcasts to the result; None if terms differ in it."""
    for scale, axis in zip(scales, summed_axes(op), strict=True):
        if scale.shape[axis] != 1:
            return None
    first, second = scales
    if isinstance(op, ConvOp):
        if first.size != 1 or second.size != second.shape[0]:
            return None
        second = second.reshape(-1, *(1,) * (second.ndim - 2))
        first = first.reshape(())
    product: Array = (first * second).astype(np.float32)
    return product


class ScaleBeforeRounding(Rule[DivOp]):
    """
    (cast f32 sums * m + b) / s  ->  cast f32 sums * (m / s) + b / s

    Also without b. Only when the sums are those of products of integers, all the others literals,
    and whoever reads the quotient rounds it: other readers, such as floor, may want it exact.
    """

    ROOTS = (DivOp,)

    def rewrite(self, op: DivOp) -> Operand | None:
        if not all(isinstance(use.operation, RoundOp) for use in op.result.uses):
            return None
        divisor = computed_array(op.rhs, self.weights)
        product, bias = op.lhs.owner, None
        if isinstance(product, AddOp):
            bias, product = computed_array(product.rhs, self.weights), product.lhs.owner
            if bias is None:
                return None
        if divisor is None or divisor.size != 1 or not isinstance(product, MulOp):
            return None
        scale, wide = computed_array(product.rhs, self.weights), product.lhs.owner
        if scale is None or not isinstance(wide, CastOp):
            return None
        if not isinstance(wide.x.owner, MatMulOp | ConvOp) or not dtype_of(wide.x).is_integer:
            return None
        by = divisor.reshape(())
        scaled: Operand = MulOp(wide, self.literal((scale / by).astype(scale.dtype)))
        return (
            scaled if bias is None else AddOp(scaled, self.literal((bias / by).astype(bias.dtype)))
        )


class RectifyByClipping(Rule[DivOp]):
    """
    clip (round (relu x / s) + z, z, high)  ->  clip (round (x / s) + z, z, high)

    What is negative ends at z either way. Only when nobody reads the quotient otherwise, and s is a
    positive literal.
    """

    ROOTS = (DivOp,)

    def rewrite(self, op: DivOp) -> Operand | None:
        rectified, divisor = op.lhs.owner, computed_array(op.rhs, self.weights)
        if not isinstance(rectified, ReluOp) or divisor is None or not np.all(divisor > 0):
            return None
        readers = [use.operation for use in op.result.uses]
        if not readers or not all(self._ends_at_zero(reader) for reader in readers):
            return None
        return DivOp(rectified.operands[0], op.rhs)

    def _ends_at_zero(self, op: Operation) -> bool:
        """Whether a rounding is moved and then kept from being lower than zero was moved to."""
        if not isinstance(op, RoundOp) or not op.result.has_one_use():
            return False
        (moved,) = (use.operation for use in op.result.uses)
        zero: Array | None = np.zeros(())
        value = op.result
        if isinstance(moved, AddOp):
            zero, value = computed_array(moved.rhs, self.weights), moved.result
        if zero is None or zero.size != 1:
            return False
        return self._is_kept_from(value, float(zero.reshape(())))

    def _is_kept_from(self, value: SSAValue, zero: float) -> bool:
        """Whether a value is only read for `where (value > low), value, low`, with low >= zero."""
        readers = [use.operation for use in value.uses]
        compares = [one for one in readers if isinstance(one, CompareOp)]
        wheres = [one for one in readers if isinstance(one, WhereOp)]
        if len(readers) != 2 or not compares or not wheres:
            return False
        (compare,), (where,) = compares, wheres
        if compare.predicate.data != "gt" or compare.operands[0] is not value:
            return False
        if where.operands[0] is not compare.result or where.operands[1] is not value:
            return False
        bounds = [computed_array(one.operands[-1], self.weights) for one in (compare, where)]
        return all(low is not None and low.size > 0 and np.all(low >= zero) for low in bounds)


@dataclass(frozen=True)
class ContractQuantized(Pass):
    """Matrix products and convolutions of dequantized numbers become those of integers, scaled."""

    name = "contract-quantized"
    TOLERANCE = 1e-5
    target: Target = Target()

    @classmethod
    def of(cls, options: Options) -> ContractQuantized | None:
        """Only where integers are faster than floats."""
        return cls(options.target) if options.target.machine.words else None

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        weights = compilation.weights
        rules = (
            ContractIntegers(weights, self.target),
            RectifyByClipping(weights),
            ScaleBeforeRounding(weights),
        )
        apply_rules(module, rules)
