"""Rounds the factors of matmuls and convolutions to bf16, for mixed precision."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from xdsl.builder import Builder, ImplicitBuilder
from xdsl.dialects.builtin import ModuleOp, bf16, f32
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from popgraph.dialects.graphcore import (
    CastOp,
    ConvWeightGradOp,
    MatMulOp,
    ReshapeOp,
    TransposeOp,
)
from popgraph.dialects.graphcore.base import integer, shape_of, tensor_of
from popgraph.dialects.program import graphs_of
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.graphcore.canonicalize.rewriting import moved
from popgraph.passes.graphcore.whole_sums import AnyProduct, columns_of, fills_words, shares_halves
from popgraph.passes.options import BF16, Options
from popgraph.support.shapes import prod
from popgraph.support.tuning import Tuning
from popgraph.support.warnings import PopgraphWarning
from popgraph.support.words import WORDS

NOTHING = "no matmul or convolution is computed in bf16"
HINT = "precision='f32': products of f64 or f16, of few rows or columns, or inside loops stay so"


@dataclass(frozen=True)
class LowerPrecision(Pass):
    """
    y = mat_mul a, b  ->  y = mat_mul (cast f32 (cast bf16 a)), (cast f32 (cast bf16 b)), of f32.

    The same for conv and its gradients. Products of two bf16 are exact in f32, and sums stay f32.
    Only contractions that dot products of bf16 make faster: sums of several terms, with factors
    that many products share, unless Winograd's transforms save more; none in bodies of loops and
    branches. Each value is rounded once, where it is computed.
    """

    name = "lower-precision"
    KEEPS_MEANING: ClassVar[bool] = False
    AFTER = ("canonicalize", "skip-padding", "fold-depth")
    tuning: Tuning = Tuning()
    winograd: bool = True

    @classmethod
    def of(cls, options: Options) -> LowerPrecision | None:
        if options.precision != BF16:
            return None
        return cls(options.tuning, options.winograd)

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        rounding = _Rounding()
        # A body of a loop would round the weights that it captures in each iteration.
        every = [op for graph in graphs_of(module) for op in graph.block.ops]
        products = [op for op in every if isinstance(op, AnyProduct)]
        found = [op for op in products if self._is_lowered(op)]
        for op in found:
            for number, operand in enumerate(op.operands):
                if narrow_of(operand) is None:
                    op.operands[number] = rounding.rounded(operand, op)
                    _erase_unread(operand)
        if products and not found:
            compilation.warn(NOTHING, HINT, PopgraphWarning)

    def _is_lowered(self, op: AnyProduct) -> bool:
        if tensor_of(op.result).element_type != f32 or prod(shape_of(op.operands[0])) == 0:
            return False
        if self.winograd and multiplies_less(op, self.tuning):
            return False
        # Fewer channels keep pixels innermost, where channels are not adjacent: a step of LeNet
        # takes 0.77 ms, 0.96 ms if all convolutions are rounded, 0.85 ms in f32 (Zen 5).
        if not isinstance(op, MatMulOp) and columns_of(op) < self.tuning.least_channels:
            return False
        shared = all(shares_halves(op, number, self.tuning) for number in range(2))
        return shared and fills_words(op, WORDS[BF16], self.tuning)


def multiplies_less(op: AnyProduct, tuning: Tuning) -> bool:
    """Whether Winograd's transforms compute a contraction with less work than dot products."""
    if isinstance(op, MatMulOp):
        return False
    is_gradient = isinstance(op, ConvWeightGradOp)
    maps, channels, *kernel = shape_of(op.result if is_gradient else op.operands[1])
    steps = {*op.strides.data, *op.dilations.data, integer(op.groups)}
    least = tuning.half_winograd_gradient_channels if is_gradient else tuning.half_winograd_channels
    batch, _, *image = shape_of(op.operands[1] if is_gradient else op.result)
    if kernel != [3, 3] or steps != {1} or min(maps, channels) < least:
        return False
    return batch * prod(image) >= tuning.half_winograd_positions


def narrow_of(value: SSAValue) -> SSAValue | None:
    """The bf16 value that a value is or widens; None for another one."""
    if isinstance(value.owner, CastOp) and tensor_of(value).element_type == f32:
        value = value.owner.x
    return value if tensor_of(value).element_type == bf16 else None


def _erase_unread(value: SSAValue) -> None:
    """Erases movements whose result nothing reads any more."""
    owner = value.owner
    if isinstance(owner, TransposeOp | ReshapeOp) and not value.uses:
        source = owner.x
        Rewriter.erase_op(owner)
        _erase_unread(source)


@dataclass
class _Rounding:
    """The values rounded so far."""

    narrow: dict[SSAValue, SSAValue] = field(default_factory=dict)

    def rounded(self, value: SSAValue, reader: Operation) -> SSAValue:
        """The value rounded to bf16 and widened, for one reader."""
        half = self._half(value)
        with ImplicitBuilder(Builder(InsertPoint.before(reader))):
            made = CastOp(half, to=f32)
        made.location = reader.location
        return made.result

    def _half(self, value: SSAValue) -> SSAValue:
        """
        The value as bf16, computed where the value is.

        A transposed or reshaped value is rounded before: a weight and its transpose share the bf16.
        """
        if value not in self.narrow:
            owner = value.owner
            movement = owner if isinstance(owner, TransposeOp | ReshapeOp) else None
            source = value if movement is None else self._half(movement.x)
            place = (
                InsertPoint.after(owner)
                if isinstance(owner, Operation)
                else InsertPoint.at_start(owner)
            )
            with ImplicitBuilder(Builder(place)):
                if movement is None:
                    self.narrow[value] = CastOp(source, to=bf16).result
                else:
                    self.narrow[value] = moved(source, [movement])
            made = self.narrow[value].owner
            if isinstance(owner, Operation) and isinstance(made, Operation):
                made.location = owner.location
        return self.narrow[value]
