"""Canonicalizes slices of sums of products: only the part that is read is computed."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.ir import SSAValue

from popgraph.dialects.graphcore import ConvWeightGradOp, MatMulOp, ReduceSumOp, SliceOp
from popgraph.dialects.graphcore.base import Operand, flag, integer, shape_of
from popgraph.passes.graphcore.canonicalize.rewriting import Rule
from popgraph.support.laws import Proof
from popgraph.support.shapes import prod

Range = tuple[int, int, int]
"""Start, size and step along an axis."""

SAME_SUMS = Proof(
    approximate="each element is the sum of the same terms; "
    "sums of another size may add them in another order"
)


def _ranges(op: SliceOp) -> list[Range]:
    return list(zip(op.starts, op.sizes, op.steps, strict=True))


def _takes_less(op: SliceOp) -> bool:
    """Whether a slice that is not empty drops elements that nothing else reads."""
    return op.x.has_one_use() and 0 < prod(op.sizes) < prod(shape_of(op.x))


def _part(value: SSAValue, ranges: Mapping[int, Range]) -> Operand:
    """The elements in these ranges of axes; `value` itself if they are whole."""
    shape = shape_of(value)
    found = [ranges.get(axis, (0, size, 1)) for axis, size in enumerate(shape)]
    if found == [(0, size, 1) for size in shape]:
        return value
    starts, sizes, steps = zip(*found, strict=True)
    return SliceOp(value, starts=starts, sizes=sizes, steps=steps)


class SliceFactors(Rule[SliceOp]):
    """
    slice(x @ y)  ->  (slice x) @ (slice y)

    Only when nothing else reads the product.
    """

    ROOTS = (SliceOp,)
    PROOF = SAME_SUMS

    def rewrite(self, op: SliceOp) -> Operand | None:
        product = op.x.owner
        if not isinstance(product, MatMulOp) or not _takes_less(op):
            return None
        *batch, rows, columns = _ranges(op)
        factors = []
        for value, along, axis in ((product.lhs, rows, -2), (product.rhs, columns, -1)):
            shape = shape_of(value)
            outer = batch[len(batch) - (len(shape) - 2) :]
            ranges = {at: one for at, one in enumerate(outer) if shape[at] != 1}
            factors.append(_part(value, {**ranges, len(shape) + axis: along}))
        return MatMulOp(*factors)


class SliceChannels(Rule[SliceOp]):
    """
    slice(conv_weight_grad x, dy)  ->  slice(conv_weight_grad (slice x), (slice dy))

    Only when nothing else reads the gradient. With several groups of channels, only whole groups
    are sliced. A slice of the kernel stays.
    """

    ROOTS = (SliceOp,)
    PROOF = SAME_SUMS

    def rewrite(self, op: SliceOp) -> Operand | None:
        inner = op.x.owner
        if not isinstance(inner, ConvWeightGradOp) or not _takes_less(op):
            return None
        maps, channels, *kernel = _ranges(op)
        first, count, step = maps
        whole, depth, *space = inner.shape.data
        groups, rest = integer(inner.groups), dict(enumerate(kernel, 2))
        read = channels
        if groups > 1:
            own = whole // groups
            if step != 1 or first % own or count % own:
                return None
            groups, rest[1] = count // own, channels
            read = first // own * depth, groups * depth, 1
        elif channels[1] < depth:
            depth = channels[1]
        if (count, depth) == inner.shape.data[:2]:
            return None
        options = inner.options
        options["groups"] = groups
        gradient = ConvWeightGradOp(
            _part(inner.x, {1: read}),
            _part(inner.dy, {1: maps}),
            shape=(count, depth, *space),
            **options,
        )
        return _part(gradient.result, rest)


class SliceBeforeSum(Rule[SliceOp]):
    """
    slice(sum x)  ->  sum(slice x)

    Only when nothing else reads the sum.
    """

    ROOTS = (SliceOp,)
    PROOF = SAME_SUMS

    def rewrite(self, op: SliceOp) -> Operand | None:
        inner = op.x.owner
        if not isinstance(inner, ReduceSumOp) or not _takes_less(op):
            return None
        axes, keepdims = inner.axes.data, flag(inner.keepdims)
        rank = len(shape_of(inner.x))
        kept = [axis for axis in range(rank) if keepdims or axis not in axes]
        ranges = dict(zip(kept, _ranges(op), strict=True))
        taken = {axis: one for axis, one in ranges.items() if axis not in axes}
        return ReduceSumOp(_part(inner.x, taken), axes=axes, keepdims=keepdims)


RULES = (SliceFactors, SliceChannels, SliceBeforeSum)
