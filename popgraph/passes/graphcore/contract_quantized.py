"""Computes matmuls and convolutions of quantized numbers in integers, and scales the sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np
from xdsl.dialects.builtin import ModuleOp, f32, i32
from xdsl.ir import SSAValue

from popgraph.dialects.graphcore import (
    AddOp,
    CastOp,
    ConvOp,
    DequantizeOp,
    MatMulOp,
    MulOp,
    QuantizeOp,
    ReluOp,
    SubOp,
    TransposeOp,
)
from popgraph.dialects.graphcore.base import Operand, dtype_of, is_float, shape_of
from popgraph.dialects.graphcore.broadcasting import scalar
from popgraph.dialects.program import ConstantOp, DataAttr, WeightStore
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.graphcore.canonicalize.quantized import DequantizeLast
from popgraph.passes.graphcore.canonicalize.rewriting import Rule, apply_rules
from popgraph.passes.graphcore.fold_constants import computed_array, is_literal
from popgraph.passes.graphcore.whole_sums import AnyContraction, pays, summed_axes, terms_of
from popgraph.passes.options import Options
from popgraph.support.arrays import Array
from popgraph.support.casts import cast
from popgraph.support.index_laws import index_law
from popgraph.support.laws import Proof, function, real_law, variable
from popgraph.support.shapes import prod
from popgraph.support.tuning import Target
from popgraph.support.words import WORD, WORDS


@dataclass(frozen=True)
class Dequantized:
    """A factor `(whole - zero) * scale` that `dequantize` computes from integers."""

    whole: SSAValue
    ends: tuple[int, int]
    """The smallest and the largest number in `whole`."""
    zero: Array
    scale: Array
    """Has the rank of `whole`."""

    @staticmethod
    def of(value: SSAValue, weights: WeightStore) -> Dequantized | None:
        op = value.owner
        if not isinstance(op, DequantizeOp) or op.to != f32 or not dtype_of(op.x).is_integer:
            return None
        scale, zero = (computed_array(one, weights) for one in (op.scale, op.zero))
        if scale is None or zero is None or (is_float(op.zero) and np.any(zero != np.rint(zero))):
            return None
        scale = cast(scale, np.dtype(np.float32))
        wide = scale.reshape((1,) * (len(shape_of(value)) - scale.ndim) + scale.shape)
        return Dequantized(op.x, _ends(op.x, weights), cast(zero, WORD), wide)

    @property
    def magnitude(self) -> int:
        """The maximum of |whole - zero|."""
        differences = [end - zero for end in self.ends for zero in self.zero.flat]
        return int(max(map(abs, differences), default=0))

    @property
    def intervals(self) -> list[tuple[int, int]]:
        """Ranges that words may hold: of whole - zero, and of whole - low for a single zero."""
        found = [(-self.magnitude, self.magnitude)]
        low, high = self.ends
        return found if self.zero.size > 1 else [*found, (0, high - low)]

    def integers(self) -> Operand:
        """whole - zero, as i32."""
        op = self.whole.owner
        made: Operand = CastOp(self.whole, to=i32)
        if isinstance(op, TransposeOp) and is_literal(op.x):
            # The words of the literal are contiguous; fold-constants would transpose its bytes.
            made = TransposeOp(CastOp(op.x, to=i32), perm=op.perm.data)
        return SubOp(made, ConstantOp(DataAttr.of(self.zero))) if np.any(self.zero) else made


def _ends(whole: SSAValue, weights: WeightStore) -> tuple[int, int]:
    """The range of integers: of the elements of a literal, else of the type."""
    array = computed_array(whole, weights)
    if array is not None and array.size:
        return int(array.min()), int(array.max())
    kind = ml_dtypes.iinfo(dtype_of(whole).numpy)
    return kind.min, kind.max


X, Y, S, T, M, B, Q = map(variable, ("x", "y", "s", "t", "m", "b", "q"))
R, Z, LOW = map(variable, ("r", "z", "low"))
SCALED_SUMS = (real_law(Q * (S * T) + (X * S) * (Y * T), (Q + X * Y) * (S * T)),)
"""One more term of a sum q of products, with both scales."""
DIVIDED_BEFORE = (real_law((X * M + B) / S, X * (M / S) + B / S, given=function("ne", S, 0)),)
CLIPPED = (
    index_law(
        function("max", R + Z, LOW),
        function("max", 0 + Z, LOW),
        given=function("le", R, 0) & function("le", Z, LOW),
    ),
)
"""A rounded quotient r of a negative x, with the zero point z and the lower bound."""


class ContractIntegers(Rule[AnyContraction]):
    """
    y = mat_mul (a * s), (b * t)  ->  y = cast f32 (mat_mul a, b) * (s * t)

    The same for conv. Only when a and b are small integers that the machine multiplies faster than
    floats, and the scales are literals that are equal along the summed axis.
    """

    ROOTS = (MatMulOp, ConvOp)
    PROOF = Proof(
        SCALED_SUMS, approximate="the scales are multiplied once, after exact integer sums"
    )

    def __init__(self, weights: WeightStore, target: Target) -> None:
        super().__init__(weights)
        self._target = target.deciding

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
        """
        Whether 32 bits hold the sums, and integers pay.

        That is, words of the machine hold the numbers and pay, or the machine has no vectors:
        integers then take as many instructions as floats, and a quarter of the memory.
        """
        lhs, rhs = factors
        window = shape_of(op.operands[1])[2:] if isinstance(op, ConvOp) else ()
        most = lhs.magnitude * rhs.magnitude * prod(window) * terms_of(op)
        if most > np.iinfo(WORD).max:
            return False
        if self._target.machine.is_scalar:
            return True
        (first, *shifted), (second, *_) = lhs.intervals, rhs.intervals
        return any(
            words.fit(first, second) or any(words.fit_shifted(one, second) for one in shifted)
            for words in map(WORDS.__getitem__, self._target.machine.words)
            if pays(op, words, self._target.tuning)
        )


def _scale(op: AnyContraction, scales: Sequence[Array]) -> Array | None:
    """The scale of the sums, broadcastable to the result; None if terms have different scales."""
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


class ScaleBeforeRounding(Rule[QuantizeOp]):
    """
    quantize (cast f32 sums * m + b), s  ->  quantize (cast f32 sums * (m / s) + b / s), 1

    Also without b. Only when an integer matmul or convolution computes the sums, and s, m and b are
    literals.
    """

    ROOTS = (QuantizeOp,)
    PROOF = Proof(
        DIVIDED_BEFORE,
        approximate="factors are divided by the scale before the sums are multiplied",
    )

    def rewrite(self, op: QuantizeOp) -> Operand | None:
        divisor = computed_array(op.scale, self.weights)
        product, bias = op.x.owner, None
        if isinstance(product, AddOp):
            bias, product = computed_array(product.rhs, self.weights), product.lhs.owner
            if bias is None:
                return None
        if divisor is None or divisor.size != 1 or divisor == 1 or not op.rounds:
            return None
        if not isinstance(product, MulOp):
            return None
        scale, wide = computed_array(product.rhs, self.weights), product.lhs.owner
        if scale is None or not isinstance(wide, CastOp):
            return None
        if not isinstance(wide.x.owner, MatMulOp | ConvOp) or not dtype_of(wide.x).is_integer:
            return None
        by = divisor.reshape(())
        scaled: Operand = MulOp(wide, self.literal((scale / by).astype(scale.dtype)))
        if bias is not None:
            scaled = AddOp(scaled, self.literal((bias / by).astype(bias.dtype)))
        return QuantizeOp(scaled, scalar(1, scaled), op.zero, **op.options)


class RectifyByClipping(Rule[QuantizeOp]):
    """
    quantize (relu x), s, z  ->  quantize x, s, z

    Only when s is positive and z is the smallest integer: negative x become z either way.
    """

    ROOTS = (QuantizeOp,)
    PROOF = Proof(CLIPPED)

    def rewrite(self, op: QuantizeOp) -> Operand | None:
        rectified = op.x.owner
        if not isinstance(rectified, ReluOp) or not self._is_kept_from(op):
            return None
        return QuantizeOp(rectified.operands[0], op.scale, op.zero, **op.options)

    def _is_kept_from(self, op: QuantizeOp) -> bool:
        """Whether negative numbers become the smallest integer."""
        scale, zero = (computed_array(one, self.weights) for one in (op.scale, op.zero))
        if scale is None or zero is None or op.bounds is None or not op.rounds:
            return False
        return bool(np.all(scale > 0) and np.all(zero <= op.bounds[0]))


@dataclass(frozen=True)
class ContractQuantized(Pass):
    """
    y = mat_mul (dequantize a, s), (dequantize b, t)  ->  y = (mat_mul a, b) * (s * t).

    Only when the machine multiplies small integers faster than floats, and s and t are literals
    that are equal along the summed axis. The same for conv.
    """

    name = "contract-quantized"
    TOLERANCE = 1e-5
    BEFORE = ("fold-constants",)
    target: Target = Target()

    @classmethod
    def of(cls, options: Options) -> ContractQuantized | None:
        """The pass, if the machine has fast products of integers."""
        machine = options.target.machine
        return cls(options.target) if machine.words or machine.is_scalar else None

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        weights = compilation.weights
        rules = (
            DequantizeLast(weights),
            ContractIntegers(weights, self.target),
            RectifyByClipping(weights),
            ScaleBeforeRounding(weights),
        )
        apply_rules(module, rules)
