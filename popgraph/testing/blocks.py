"""Strategy for blocked contractions whose right operand packs several parts per element."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st
from xdsl.dialects import arith
from xdsl.dialects.builtin import ArrayAttr, FloatAttr, ModuleOp, StringAttr, f32, i32
from xdsl.ir import Attribute, Operation, Region, SSAValue
from xdsl.ir.affine import AffineMap

from popgraph.dialects import tile
from popgraph.dialects.graphcore.base import tensor_of
from popgraph.support.shapes import Shape
from popgraph.testing.structured import (
    SIZES,
    Body,
    Operand,
    graph_of,
    literal,
    operands,
    sum_epilogue,
)

SPREAD = -1640531527
"""Multiplied by small integers, this sets bits everywhere."""


@dataclass(frozen=True)
class BlockSpec:
    """`y[m, n] = sum b: body(sum k, i: x[m, b, k, i] * part i of w[b, k, n], ...) + ...`"""

    sizes: Shape
    """Rows, columns, blocks, elements per block, parts per element."""
    bits: int
    words: str | None
    order: tuple[int, ...]
    """The axis of the right operand at each position."""
    joined: tuple[Operand, ...] | None = None
    """Factors of each block's sum; None without blocks."""
    epilogue_inputs: tuple[Operand, ...] = ()
    picks: bool = False
    """Whether parts are codes into a table of numbers."""
    kind: str = "f32"

    @property
    def parallel(self) -> int:
        return 2

    def module(self) -> ModuleOp:
        rows, columns, blocks, elements, count = self.sizes
        stored = [blocks, elements, columns]
        first = (rows, blocks, elements, count)
        inputs: list[tuple[Shape, Attribute]] = [(first, i32 if self.words else f32)]
        inputs.append((tuple(stored[axis] for axis in self.order), i32))
        inputs += [(one.shape(self.sizes[:2]), f32) for one in self.epilogue_inputs]
        inputs += [(one.shape(self.sizes[:3]), f32) for one in self.joined or ()]
        return graph_of(inputs, self._ops)

    def _ops(self, values: Sequence[SSAValue]) -> list[Operation]:
        spread = _spread(values[1])
        last = 2 + len(self.epilogue_inputs)
        lhs = AffineMap.from_callable(lambda m, _n, b, k, i: (m, b, k, i))
        indices = AffineMap.from_callable(lambda _m, n, b, k, _i: (b, k, n)).results
        rhs = AffineMap(5, 0, tuple(indices[axis] for axis in self.order))
        mask = sum(((1 << self.bits) - 1) << at for at in (0, 8, 16, 24)) if self.words else 0
        contract = tile.ReduceOp(
            [values[0], spread.outputs[0]],
            [lhs, rhs],
            self.sizes,
            2,
            [literal(0, i32 if self.words else f32)],
            self._product(mask or (1 << self.bits) - 1),
            self._epilogue(),
            [f32],
            values[2:last],
            [one.map(2) for one in self.epilogue_inputs],
            contracts=True,
            blocks=self._blocks(values[last:]),
        )
        return [spread, contract]

    def _product(self, mask: int) -> Region:
        """The product with a part of the right element, or with the number that it selects."""
        kind = i32 if self.words else f32
        body = Body(i32, [kind, i32, kind])
        lhs, rhs, total = body.block.args
        index = body.add(arith.IndexCastOp(body.add(tile.IndexOp(4)), i32))
        part = body.add(arith.ShRSIOp(rhs, body.product(index, body.number(self.bits))))
        if self.picks:
            codes = range(1 << self.bits)
            numbers = ArrayAttr([FloatAttr(code * code / 4 - 9, f32) for code in codes])
            part = body.add(tile.PickOp(numbers, part))
        else:
            part = body.add(arith.AndIOp(part, body.number(mask)))
        if self.words:
            return body.end(body.add(tile.DotOp(StringAttr(self.words), lhs, part, total)))
        if not self.picks:
            part = body.add(arith.SIToFPOp(part, f32))
        return body.end(body.add(arith.AddfOp(total, body.add(arith.MulfOp(lhs, part)))))

    def _blocks(self, read: Sequence[SSAValue]) -> tile.Blocks | None:
        if self.joined is None:
            return None
        kind = i32 if self.words else f32
        body = Body(f32, [kind, *[f32] * len(read)])
        total: SSAValue = body.block.args[0]
        if self.words:
            total = body.add(arith.SIToFPOp(total, f32))
        for factor in body.block.args[1:]:
            total = body.product(total, factor)
        return tile.Blocks(1, body.end(total), read, [one.map(3) for one in self.joined])

    def _epilogue(self) -> Region:
        extra = len(self.epilogue_inputs)
        if self.joined is not None or not self.words:
            return sum_epilogue(f32, 1, extra)
        body = Body(f32, [i32, *[f32] * extra])
        total = body.add(arith.SIToFPOp(body.block.args[0], f32))
        for other in body.block.args[1:]:
            total = body.sum(total, other)
        return body.end(total)


def _spread(value: SSAValue) -> tile.MapOp:
    """Multiplies by `SPREAD`, so that bits are set everywhere."""
    shape = tensor_of(value).get_shape()
    body = Body(i32, [i32])
    spread = body.product(body.block.args[0], body.number(SPREAD))
    return tile.MapOp([value], [AffineMap.identity(len(shape))], shape, body.end(spread), [i32])


@st.composite
def block_sums(draw: st.DrawFn) -> BlockSpec:
    """Blocked contractions of floats, or of packed small integers."""
    words = draw(st.sampled_from([None, "u8i8", "i8u8"]))
    count, bits = draw(st.sampled_from([(2, 4), (1, 4)] if words else [(8, 4), (4, 8), (3, 5)]))
    size = st.sampled_from(SIZES)
    joined = draw(st.none() | st.lists(operands(3), max_size=2).map(tuple))
    sizes = (draw(size), draw(st.sampled_from([*SIZES, 33, 40])), draw(size), draw(size), count)
    order = tuple(draw(st.permutations(range(3))))
    extra = tuple(draw(st.lists(operands(2), max_size=1)))
    picks = words is None and draw(st.booleans())
    return BlockSpec(sizes, bits, words, order, joined, extra, picks)
