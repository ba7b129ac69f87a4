"""Computes matmuls and convolutions of small numbers with dot-product instructions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from xdsl.dialects.builtin import ModuleOp, f32, i32
from xdsl.ir import SSAValue

from popgraph.dialects.graphcore import (
    AddOp,
    CastOp,
    ConvInPairsOp,
    ConvInputGradOp,
    ConvOp,
    ConvWeightGradOp,
    DotConvInputGradOp,
    DotConvOp,
    DotConvWeightGradOp,
    DotMatMulOp,
    GatherOp,
    MatMulInPairsOp,
    MatMulOp,
    MulOp,
    OrOp,
    PadOp,
    PartsOp,
    ReduceSumOp,
    ReshapeOp,
    ShiftOp,
    SubOp,
)
from popgraph.dialects.graphcore.base import (
    Operand,
    dtype_of,
    integer,
    shape_of,
    tensor_of,
)
from popgraph.dialects.graphcore.broadcasting import scalar
from popgraph.dialects.graphcore.contractions import ConvolutionOptions
from popgraph.dialects.program import ConstantOp, DataAttr, WeightStore
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.graphcore.canonicalize.rewriting import Rule, apply_rules
from popgraph.passes.graphcore.fold_constants import computed_array, is_literal
from popgraph.passes.graphcore.lower_precision import multiplies_less, narrow_of
from popgraph.passes.graphcore.pack_words import every, packed
from popgraph.passes.graphcore.pair_sums import PairSums, Way
from popgraph.passes.graphcore.whole_sums import (
    AnyContraction,
    AnyProduct,
    IntegerSums,
    columns_of,
    fills_words,
    products_of,
    shares_halves,
    summed_axes,
)
from popgraph.passes.options import Options
from popgraph.passes.properties import WORDLESS
from popgraph.support.arrays import Array
from popgraph.support.index_laws import ROW_MAJOR, index_law
from popgraph.support.laws import Proof, variable
from popgraph.support.shapes import prod
from popgraph.support.tuning import Target
from popgraph.support.words import IN_PAIRS, NIBBLE, NIBBLES, WORD, WORDS, WordFormat

A, B, Z, Q, U = map(variable, ("a", "b", "z", "q", "u"))
SHIFTED = (index_law((Q - Z * U) + (A - Z) * B, (Q + A * B) - Z * (U + B)),)
"""One more term of the sums q of a * b, and u of b. It holds modulo 2^32, too: a ring."""

NO_ZERO = np.zeros((), WORD)
"""The zero point of integers without one."""


class SumInWords(Rule[AnyContraction]):
    """
    y = mat_mul a, b  ->  y = dot_mat_mul (words a), (words b)

    The same for conv, whose words hold neighbouring channels. A word is a packed vector of 2 or 4
    numbers in 32 bits. Only when words of the machine hold all numbers and are faster, and 32 bits
    hold the sums, or all bits of the result. A factor a - zero is multiplied as unsigned bytes a;
    the zero is subtracted after: y = dot_mat_mul (words a), (words b) - zero * (column sums of b).
    """

    ROOTS = (MatMulOp, ConvOp)
    PROOF = Proof((*ROW_MAJOR, *SHIFTED))

    def __init__(self, weights: WeightStore, target: Target) -> None:
        super().__init__(weights)
        self._sums, self._target = IntegerSums(weights), target

    def rewrite(self, op: AnyContraction) -> Operand | None:
        sizes = [*shape_of(op.operands[0]), *shape_of(op.operands[1])]
        if not dtype_of(op.result).is_integer or 0 in sizes or not self._fits(op):
            return None
        tried = [(self._factor(op, words), words) for words in _words_that_pay(op, self._target)]
        if (paired := self._in_pairs(op)) is not None:
            return paired
        found = [(factor, words) for factor, words in tried if factor is not None]
        # Memory bounds a product with a single row: 512 x 2048 weights in bytes take half as long.
        is_row = products_of(op) == prod(shape_of(op.operands[1]))
        best = min(
            found,
            key=lambda one: (-one[1].count if is_row else 0, one[1].cost, one[0].is_moved),
            default=None,
        )
        return None if best is None else self._contracted(op, *best)

    def _in_pairs(self, op: AnyContraction) -> Operand | None:
        """Sums in 16 bits of a few words at a time, if constant weights allow them."""
        weights, tuning = self._weights_of(op), self._target.tuning
        if IN_PAIRS.name not in self._target.machine.words or weights is None:
            return None
        factor = self._factor(op, IN_PAIRS) if fills_words(op, IN_PAIRS, tuning) else None
        if factor is None:
            return None
        found = PairSums.of(weights, tuning, self._ways(op, weights))
        if found is None:
            return None
        return self._contracted(op, factor, IN_PAIRS, found)

    def _ways(self, op: AnyContraction, weights: Array) -> Sequence[Way]:
        """The ways in which sums in 16 bits pay, best first."""
        # Exchanging the channels of an image would move all its pixels.
        if not isinstance(op, MatMulOp):
            return (Way(offsets=True),)
        ways = [Way(), Way(offsets=True)]
        if columns_of(op) >= self._target.tuning.least_moved_columns:
            ways += [Way(moves=True), Way(offsets=True, moves=True)]
        # A single row reads offsets with each weight: 256 x 1024 bytes take 2.8 us with them, 1.6
        # us without, and 2.8 us as words of 16 bits (Zen 5, AVX2).
        is_row = products_of(op) == weights.size
        return [way for way in ways if not (is_row and way.offsets)]

    def _weights_of(self, op: AnyContraction) -> Array | None:
        """A constant right factor, its contracted axis first."""
        grouped = isinstance(op, ConvOp) and integer(op.groups) > 1
        array = computed_array(op.operands[1], self.weights)
        if array is None or grouped or (isinstance(op, MatMulOp) and array.ndim > 2):
            return None
        # Memory bounds a product with a single row: 2048 x 1000 bytes take 64 us instead of 47 with
        # 32-bit sums of bytes. Numbers that need words of 16 bits are twice as large.
        if products_of(op) == array.size and self._factor(op, WORDS["u8i7"]) is not None:
            return None
        return np.moveaxis(array, summed_axes(op)[1], 0)

    def _fits(self, op: AnyContraction) -> bool:
        """Whether 32 bits hold the sums; narrower results need only their low bits."""
        if dtype_of(op.result).numpy.itemsize <= WORD.itemsize:
            return True
        limits = self._sums.limits(op)
        # Bytes may be twice as large before their zero is subtracted.
        return limits is not None and 2 * limits.sum(axis=0).max() <= np.iinfo(WORD).max

    def _factor(self, op: AnyContraction, words: WordFormat) -> Shifted | None:
        """The left factor in a form that words hold; None if they do not hold both factors."""
        lhs, rhs = op.operands
        first, second = self._sums.interval(lhs), self._sums.interval(rhs)
        if first is None or second is None:
            return None
        if words.fit(first, second):
            return Shifted(lhs)
        if not is_literal(rhs):
            return None
        source, found = lhs.owner, Shifted(lhs)
        if isinstance(source, SubOp) and self._is_uniform(op, source.rhs):
            found = Shifted(source.lhs, source.rhs)
        before = self._sums.interval(found.value)
        if before is not None and isinstance(op, ConvOp) and any(op.pads):
            around = (0,) if found.zero is None else self._sums.interval(found.zero)
            before = None if around is None else before.with_numbers(*around)
        if before is None or not words.fit_shifted(before, second):
            return None
        return replace(found, by=words.shift(before))

    def _is_uniform(self, op: AnyContraction, zero: SSAValue) -> bool:
        """Whether a zero is equal for all terms of a sum, and constant if windows are padded."""
        if isinstance(op, ConvOp):
            return prod(shape_of(zero)) == 1 and (is_literal(zero) or not any(op.pads))
        shape = shape_of(zero)
        return not shape or shape[-1] == 1

    def _contracted(
        self,
        op: AnyContraction,
        factor: Shifted,
        words: WordFormat,
        pairs: PairSums | None = None,
    ) -> Operand:
        first, second = summed_axes(op)
        numbers = factor.numbers(words)
        if pairs is not None and pairs.order is not None:
            # Unsigned indices need no check for negative ones, and few bytes.
            order = pairs.order.astype(np.min_scalar_type(len(pairs.order)))
            numbers = GatherOp(numbers, self.literal(order), axis=first).result
        lhs, rhs = packed(numbers, first, words.count), self._packed(op, second, words)
        is_padded = isinstance(op, ConvOp) and factor.is_moved and any(op.pads)
        if isinstance(op, ConvOp) and is_padded:
            lhs = self._padded(op, lhs, factor, words)
        beside: list[Operand] = []
        if pairs is None:
            sums = _sums_in_words(op, lhs, rhs, words, is_padded=is_padded)
        else:
            sums = self._sums_of_pairs(op, lhs, rhs, pairs, is_padded=is_padded)
            if pairs.offset is not None:
                beside.append(self._offsets_of(op, pairs.total))
        if factor.is_moved:
            beside.append(self._of_zero(op, factor))
        if beside:
            sums = SubOp(sums, beside[0] if len(beside) == 1 else AddOp(*beside))
        element = tensor_of(op.result).element_type
        return sums if element == i32 else CastOp(sums, to=element)

    def _sums_of_pairs(
        self,
        op: AnyContraction,
        lhs: SSAValue,
        rhs: SSAValue,
        pairs: PairSums,
        *,
        is_padded: bool,
    ) -> Operand:
        """The contraction of words in blocks; zeros fill the last one."""
        if pairs.padding or pairs.order is not None:
            first, second = summed_axes(op)
            lhs = _extended(lhs, first, pairs.padding)
            # A new literal, since a schedule can pack it; padding would be a layout of its own.
            array = computed_array(op.operands[1], self.weights)
            assert array is not None, "pairs are sums of literals"
            if pairs.order is not None:
                array = array.take(pairs.order, second)
            after = [(0, 0)] * array.ndim
            after[second] = (0, IN_PAIRS.count * shape_of(lhs)[first] - array.shape[second])
            filled = SSAValue.get(self.literal(np.pad(array.astype(IN_PAIRS.rhs), after)))
            rhs = packed(filled, second, IN_PAIRS.count)
        if pairs.offset is None:
            return MatMulInPairsOp(lhs, rhs, block=pairs.block)
        # Convolutions: [blocks, maps, kernel...] -> [kernel..., blocks, maps].
        kernel = range(2, pairs.offset.ndim)
        offset = np.ascontiguousarray(pairs.offset.transpose(*kernel, 0, 1))
        operands = (lhs, rhs, self.literal(offset))
        if isinstance(op, MatMulOp):
            return MatMulInPairsOp(*operands, block=pairs.block)
        return ConvInPairsOp(*operands, block=pairs.block, **_options(op, is_padded=is_padded))

    def _offsets_of(self, op: AnyContraction, total: Array) -> Operand:
        """The sum of all offsets of a result."""
        if isinstance(op, MatMulOp):
            return self.literal(total)
        maps, *kernel = total.shape
        total = total.reshape(maps, -1).sum(axis=1, dtype=WORD)
        return self.literal(total.reshape(maps, *(1,) * len(kernel)))

    def _packed(self, op: AnyContraction, axis: int, words: WordFormat) -> SSAValue:
        """The words of the right factor; 4-bit literals are stored two words in one."""
        rhs = op.operands[1]
        made, found = packed(rhs, axis, words.count), self._sums.interval(rhs)
        # Half the bytes: a GEMV with quantized weights is bound by memory.
        narrow = found is not None and found.low >= 0 and found.high < 1 << NIBBLE
        if not narrow or not is_literal(rhs) or words.count != 4 or shape_of(made)[axis] % 2:
            return made
        low, high = (every(made, axis, place, 2) for place in range(2))
        both = OrOp(low, ShiftOp(high, scalar(NIBBLE, high), direction="left"))
        return PartsOp(both, axis=axis, count=2, bits=NIBBLE, mask=NIBBLES).result

    def _of_zero(self, op: AnyContraction, factor: Shifted) -> Operand:
        """The contribution of the zero to the sums: a literal if zero and weights are literals."""
        zero = factor.whole_zero()
        if prod(shape_of(zero)) == 1 and is_literal(zero) and is_literal(op.operands[1]):
            return _sums_of(op, zero)
        known = computed_array(op.operands[1], self.weights) if isinstance(op, MatMulOp) else None
        if known is None:
            return MulOp(zero, _sums_of(op))
        # A literal: fuse-epilogue would multiply by the zero where weights are summed, in each run.
        return MulOp(zero, self.literal(known.sum(axis=-2, keepdims=True, dtype=WORD)))

    def _padded(self, op: ConvOp, value: SSAValue, factor: Shifted, words: WordFormat) -> SSAValue:
        """Pads words with the zero, since padding must contribute a - zero = 0."""
        zero = computed_array(factor.whole_zero(), self.weights)
        assert zero is not None, "`_is_uniform` requires a literal zero"
        number = np.full(words.count, int(zero.reshape(-1)[0])).astype(words.lhs)
        return padded_by(op, value, int(number.view(WORD)[0]))


class SumAsStored(Rule[AnyContraction]):
    """
    y = conv (cast a - zero), b  ->  y = conv (cast (pad a)), (cast b) - (sums of zero * b)

    The same for mat_mul, and without a zero. Only on machines without vectors, if zero and b are
    literals. Casts are then direct operands, so that the contraction reads integers as stored, and
    b is stored in a byte per number.
    """

    ROOTS = (MatMulOp, ConvOp)
    PROOF = Proof(SHIFTED)

    def __init__(self, weights: WeightStore, target: Target) -> None:
        super().__init__(weights)
        self._is_scalar = target.machine.is_scalar

    def rewrite(self, op: AnyContraction) -> Operand | None:
        if not self._is_scalar or isinstance(op.operands[1].owner, CastOp):
            return None
        lhs, rhs = op.operands[0].owner, computed_array(op.operands[1], self.weights)
        if rhs is None:
            return None
        zero = computed_array(lhs.rhs, self.weights) if isinstance(lhs, SubOp) else NO_ZERO
        cast = lhs.lhs.owner if isinstance(lhs, SubOp) else lhs
        if not isinstance(cast, CastOp) or not dtype_of(cast.x).is_integer or zero is None:
            return None
        narrow = rhs.astype(np.int8)
        if tensor_of(op.result).element_type != i32 or zero.size != 1 or np.any(narrow != rhs):
            return None
        w = CastOp(self.literal(narrow), to=i32)
        if isinstance(op, ConvOp):
            x = CastOp(padded_by(op, cast.x, int(zero.item())), to=i32)
            sums: Operand = ConvOp(x, w, **op.options | {"pads": [0] * len(op.pads)})
        else:
            sums = MatMulOp(cast, w)
        return SubOp(sums, _sums_of(op, lhs.rhs)) if isinstance(lhs, SubOp) else sums


class SumHalvesInWords(Rule[AnyProduct]):
    """
    y = mat_mul a, b  ->  y = cast (dot_mat_mul (words a), (words b)), of bf16

    The same for f32 that is widened bf16, for conv, whose words hold neighbouring channels, and for
    its gradients. Sums are f32, as without words. Only for literals and operands whose elements
    enough products share: for others, packing costs more than it saves. With `winograd`, not for
    convolutions that are faster by transforms (`multiplies_less`).
    """

    ROOTS = (MatMulOp, ConvOp, ConvInputGradOp, ConvWeightGradOp)
    PROOF = Proof(ROW_MAJOR, approximate="pairs of products are added before the sum")

    def __init__(self, weights: WeightStore, target: Target, *, winograd: bool = True) -> None:
        super().__init__(weights)
        self._target, self._winograd = target, winograd

    def rewrite(self, op: AnyProduct) -> Operand | None:
        found = [narrow_of(operand) for operand in op.operands]
        halves = [half for half in found if half is not None]
        tuning, words = self._target.tuning, WORDS["bf16"]
        if len(halves) < len(found) or words.name not in self._target.machine.words:
            return None
        if not fills_words(op, words, tuning) or prod(shape_of(op.operands[0])) == 0:
            return None
        if self._winograd and multiplies_less(op, tuning):
            return None
        for number, half in enumerate(halves):
            if not is_literal(half) and not shares_halves(op, number, tuning):
                return None
        axes = summed_axes(op)
        lhs, rhs = (packed(half, axis, 2) for half, axis in zip(halves, axes, strict=True))
        sums, element = _sums_in_words(op, lhs, rhs, words), tensor_of(op.result).element_type
        return sums if element == f32 else CastOp(sums, to=element)


def padded_by(op: ConvOp, value: SSAValue, number: int) -> SSAValue:
    """The input of a convolution, padded with a number other than 0."""
    if not any(op.pads):
        return value
    rank, around = len(op.pads) // 2, op.pads.data
    ends = [(0, 0, *around[:rank]), (0, 0, *around[rank:])]
    none = [0] * (rank + 2)
    return PadOp(value, low=ends[0], high=ends[1], interior=none, value=number).result


def _words_that_pay(op: AnyContraction, target: Target) -> Iterator[WordFormat]:
    """The machine's words for operands of small integers, best first."""
    for name in target.machine.words:
        words = WORDS[name]
        if words.is_integer and not words.in_pairs and fills_words(op, words, target.tuning):
            yield words


def _sums_in_words(
    op: AnyProduct, lhs: SSAValue, rhs: SSAValue, words: WordFormat, *, is_padded: bool = False
) -> Operand:
    """The contraction of words; `is_padded` if a convolution's input is padded already."""
    if isinstance(op, MatMulOp):
        return DotMatMulOp(lhs, rhs, words=words.name)
    if isinstance(op, ConvOp):
        return DotConvOp(lhs, rhs, words=words.name, **_options(op, is_padded=is_padded))
    options = op.options
    if isinstance(op, ConvInputGradOp):
        return DotConvInputGradOp(lhs, rhs, shape=op.shape.data, words=words.name, **options)
    return DotConvWeightGradOp(lhs, rhs, shape=op.shape.data, words=words.name, **options)


def _options(op: ConvOp, *, is_padded: bool) -> ConvolutionOptions:
    """The options of a convolution; without pads if its input is padded already."""
    options = op.options
    if is_padded:
        options["pads"] = [0] * len(op.pads)
    return options


def _extended(value: SSAValue, axis: int, missing: int) -> SSAValue:
    """Words with zeros after the last one along an axis."""
    if not missing:
        return value
    none, high = [0] * len(shape_of(value)), [0] * len(shape_of(value))
    high[axis] = missing
    return PadOp(value, low=none, high=high, interior=none, value=0).result


@dataclass(frozen=True)
class Shifted:
    """A factor before its zero is subtracted, plus `by`, so that words hold its numbers."""

    value: SSAValue
    zero: SSAValue | None = None
    by: int = 0

    @property
    def is_moved(self) -> bool:
        """Whether the sums need a correction for the zero or the shift."""
        return self.zero is not None or self.by != 0

    def numbers(self, words: WordFormat) -> SSAValue:
        """
        The shifted numbers; words keep their low bits.

        A cast to narrow integers is therefore skipped, unless other readers store its result.
        """
        wide = self.value.owner
        narrow = wide.x.owner if isinstance(wide, CastOp) else None
        bits = 8 * WORD.itemsize // words.count
        if self.by and isinstance(narrow, CastOp) and narrow.result.has_one_use():
            is_word = tensor_of(narrow.x).element_type == i32
            if is_word and dtype_of(narrow.result).bits >= bits:
                return self._moved(narrow.x)
        return self._moved(self.value)

    def whole_zero(self) -> SSAValue:
        """The value to subtract: the shifted zero."""
        if self.zero is None:
            return ConstantOp(DataAttr.of(np.array(self.by, WORD))).result
        return self._moved(self.zero)

    def _moved(self, value: SSAValue) -> SSAValue:
        wide = value if tensor_of(value).element_type == i32 else CastOp(value, to=i32).result
        return AddOp(wide, scalar(self.by, wide)).result if self.by else wide


def _sums_of(op: AnyContraction, times: SSAValue | None = None) -> Operand:
    """Sums of the right factor (times `times`) over its terms, broadcastable to the result."""
    rhs = op.operands[1]
    wide = rhs if tensor_of(rhs).element_type == i32 else CastOp(rhs, to=i32).result
    rank = len(shape_of(rhs))
    if times is not None:
        wide = MulOp(wide, ReshapeOp(times, shape=()).result).result
    if isinstance(op, MatMulOp):
        return ReduceSumOp(wide, axes=[rank - 2], keepdims=True)
    sums = ReduceSumOp(wide, axes=list(range(1, rank)), keepdims=False)
    return ReshapeOp(sums, shape=(shape_of(rhs)[0], *(1,) * (rank - 2)))


@dataclass(frozen=True)
class ContractInWords(Pass):
    """
    y = mat_mul a, b  ->  y = dot_mat_mul (words a), (words b), with 2 or 4 numbers in each word.

    Only for small integers and bf16, if the machine has a faster dot product of such words. The
    same for conv, and of bf16 for the gradients of conv.
    """

    name = "contract-in-words"
    LOSES = (WORDLESS,)
    AFTER = ("canonicalize", "fold-depth", "lower-precision")
    target: Target = Target()
    winograd: bool = True

    @classmethod
    def of(cls, options: Options) -> ContractInWords:
        return cls(options.target, options.winograd)

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        weights, target = compilation.weights, self.target
        halves = SumHalvesInWords(weights, target, winograd=self.winograd)
        apply_rules(module, [SumInWords(weights, target), halves, SumAsStored(weights, target)])
