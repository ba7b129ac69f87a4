"""Multiplies quantized weights as stored, and scales the sums of each block."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from xdsl.dialects.builtin import ModuleOp, f32, i32

from popgraph.dialects.graphcore import (
    AddOp,
    CastOp,
    MatMulOp,
    MulOp,
    PartsOp,
    ReduceSumOp,
    ReshapeOp,
    SubOp,
    TransposeOp,
)
from popgraph.dialects.graphcore.base import Operand, shape_of, tensor_of
from popgraph.dialects.graphcore.broadcasting import scalar
from popgraph.dialects.program import WeightStore
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.graphcore.canonicalize.rewriting import Rule, apply_rules
from popgraph.passes.graphcore.fold_constants import bytes_of
from popgraph.passes.graphcore.intervals import Interval
from popgraph.passes.graphcore.pack_words import packed
from popgraph.passes.graphcore.scaled_weights import Scaled, ScaledFinder, block_of
from popgraph.support.laws import Proof, real_law, variable
from popgraph.support.shapes import prod
from popgraph.support.tuning import Target
from popgraph.support.words import NIBBLE, NIBBLES_A_WORD

BYTE = Interval(-128, 127)
"""Weights in this range are stored as i8."""


X, W, C, M, Q, U = map(variable, ("x", "w", "c", "m", "q", "u"))
BLOCKS = (real_law((Q * C - U * M) + X * (W * C - M), (Q + X * W) * C - (U + X) * M),)
"""One more term of the sums of a block: q of x * w, and u of x."""


class ScaleAfterwards(Rule[MatMulOp]):
    """
    y = mat_mul x, (w * s)  ->  y = reduce_sum ((mat_mul blocks of x, blocks of w) * s).
    y = mat_mul x, (w * s - m)  ->  the same, less reduce_sum (sums of blocks of x * m).

    Only when w is a literal of few bits, too large for L2, that few rows of x read: the matmul is
    bound by memory then. A block of rows of w, or all of w, has one row of scales and minima. 4-bit
    weights are rewritten for any number of rows if a vector has 16 lanes of f32, from which it
    looks them up. Portable programs rewrite only these, on every machine.
    """

    ROOTS = (MatMulOp,)
    PROOF = Proof(BLOCKS, approximate="each block is scaled after its sum")

    def __init__(self, weights: WeightStore, target: Target) -> None:
        super().__init__(weights)
        self._finder, self._target = ScaledFinder(weights), target.deciding

    def rewrite(self, op: MatMulOp) -> Operand | None:
        tuning, rows = self._target.tuning, prod(shape_of(op.lhs)[:-1])
        if len(shape_of(op.rhs)) != 2 or rows == 0:
            return None
        if tensor_of(op.result).element_type != f32:
            return None
        # Matmuls with weights that stay in L2 are not bound by memory.
        if bytes_of(op.rhs) < self._target.l2(tuning.streamed_l2):
            return None
        found = self._finder.of(op.rhs)
        if found is None or not found.ends.lies_in(BYTE):
            return None
        late = self._with_zero_last(found)
        made = None if late is None else self._rewritten(op, late, rows)
        return self._rewritten(op, found, rows) if made is None else made

    def _with_zero_last(self, found: Scaled) -> Scaled | None:
        """The same with the zero subtracted from sums, if the numbers then fit into 4 bits."""
        if found.zero is None or found.span < 1 << NIBBLE:
            return None
        before, zeros = (self._finder.intervals.of(one) for one in (found.numbers, found.zero))
        if before is None or zeros is None:
            return None
        made = replace(found, ends=before, zero_last=True)
        moved_zeros = Interval(zeros.low - made.offset, zeros.high - made.offset)
        return made if made.span < 1 << NIBBLE and moved_zeros.lies_in(BYTE) else None

    def _rewritten(self, op: MatMulOp, found: Scaled, rows: int) -> Operand | None:
        """The scaled sum over blocks; None if blocks are too small or too many rows read w."""
        scale = found.table(found.scale, self.weights)
        zero = minimum = None
        if found.zero_last and found.zero is not None:
            zero = found.table(found.zero, self.weights)
        if found.minimum is not None:
            minimum = found.minimum.table(self.weights)
        tables = [table for table in (scale, zero, minimum) if table is not None]
        terms, columns = scale.shape
        block = block_of(tables)
        tuning, packs = self._target.tuning, self._packs(found, block)
        few = rows <= tuning.most_narrow_uses and zero is None and not self._target.portable
        if block < tuning.least_block_terms or not (packs or few):
            return None
        count = terms // block
        if rows == 1:
            x: Operand = ReshapeOp(op.lhs, shape=(count, 1, block))
        else:
            x = TransposeOp(ReshapeOp(op.lhs, shape=(rows, count, block)), perm=(1, 0, 2))
        sums: Operand = MatMulOp(x, _floats(found, (count, block, columns), packs=packs))
        if zero is not None:
            moved_zero = zero[::block].reshape(count, 1, columns) - found.offset
            narrow = self.literal(moved_zero.astype(np.int8))
            added = ReduceSumOp(x, axes=[2], keepdims=True)
            sums = SubOp(sums, MulOp(added, CastOp(narrow, to=f32)))
        scaled: Operand = MulOp(sums, self.literal(scale[::block].reshape(count, 1, columns)))
        if minimum is not None:
            added = ReduceSumOp(x, axes=[2], keepdims=True)
            table = self.literal(minimum[::block].reshape(count, 1, columns))
            scaled = SubOp(scaled, MulOp(added, table))
        return ReshapeOp(ReduceSumOp(scaled, axes=[0], keepdims=False), shape=shape_of(op.result))

    def _packs(self, found: Scaled, block: int) -> bool:
        """Whether weights have 4 bits, and a vector has a lane for each of their 16 values."""
        lanes = self._target.machine.vector_bytes // np.dtype(np.float32).itemsize
        return found.span < 1 << NIBBLE == lanes and block % NIBBLES_A_WORD == 0


def _floats(found: Scaled, shape: tuple[int, int, int], *, packs: bool) -> Operand:
    """Weights cast to floats from their stored form: bytes, or words of eight 4-bit numbers."""
    whole = ReshapeOp(found.bytes(), shape=shape)
    if not packs:
        return CastOp(whole, to=f32)
    wide, low = CastOp(whole, to=i32).result, found.ends.low
    words = packed(SubOp(wide, scalar(low, wide)).result, 1, NIBBLES_A_WORD)
    options = {"count": NIBBLES_A_WORD, "bits": NIBBLE, "mask": (1 << NIBBLE) - 1}
    codes = CastOp(PartsOp(words, axis=1, **options), to=f32).result
    return AddOp(codes, scalar(found.first, codes))


@dataclass(frozen=True)
class ScaleSums(Pass):
    """
    y = mat_mul x, (w * s - m)  ->  y = reduce_sum ((mat_mul blocks of x, blocks of w) * s - ...).

    Only when w are literals of few bits, such as int4 or int8, that are too large for L2.
    """

    name = "scale-sums"
    TOLERANCE = 1e-5
    AFTER = ("contract-quantized",)
    BEFORE = ("fold-constants",)
    target: Target = Target()

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        apply_rules(module, [ScaleAfterwards(compilation.weights, self.target)])
