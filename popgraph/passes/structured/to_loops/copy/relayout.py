"""Loops of `tile.pack`: copies between dense and blocked layouts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from xdsl.ir import SSAValue
from xdsl.ir.affine import (
    AffineBinaryOpExpr,
    AffineBinaryOpKind,
    AffineConstantExpr,
    AffineDimExpr,
    AffineExpr,
    AffineMap,
)

from popgraph.dialects import tile
from popgraph.dialects.tile.affine import Linear, offset, row_major
from popgraph.dialects.tile.attributes import LayoutAttr, layout_of, physical_shape
from popgraph.dialects.tile.running import Extent
from popgraph.passes.structured.analysis.loops import Group, tensor
from popgraph.passes.structured.analysis.parallel_loops import Loop
from popgraph.passes.structured.to_loops.copy.copies import (
    CopySource,
    copy,
    cut_of_chunk,
    loops_of_box,
    shared_loops,
)
from popgraph.passes.structured.to_loops.emit.emitter import Body, Emitter
from popgraph.support.shapes import Shape, prod
from popgraph.support.tuning import Target


class RelayoutLoops(Emitter):
    """
    Writes the copy of a tensor to another layout.

    If the layout only splits and reorders indices, packed memory is written in order, with its
    padding. A copy that runs `once`, at load, does not transpose in registers: it would take longer
    to compile than to run.
    """

    def __init__(self, op: tile.PackOp, target: Target, *, once: bool) -> None:
        super().__init__(op, target)
        self.op, self.once, self.inputs, self.outputs = op, once, [op.source], [op.output]
        self.type = tensor(op.output)
        self.shape, self.physical = self.type.get_shape(), physical_shape(self.type)
        self.digits, self.work = _digits(op), prod(self.physical)
        self.covers_memory = self.digits is not None
        if self.digits is not None:
            self.boxes = list(_boxes(self.digits, self.shape))
            self.strides = _strides(self.digits, self.shape)
            self.groups = [
                Group((dim,), self.physical[dim], self._end(self.digits[dim]))
                for dim in _shared(self.boxes)
            ]

    @property
    def loops(self) -> list[Loop] | None:
        if self.digits is None:
            return None
        loaded = {at for at, stride in enumerate(self.strides) if stride == 1}
        dims = [group.last for group in self.groups]
        kind = self.type.element_type
        loops = loops_of_box(dims, self.physical, kind, self.target, loaded)
        return shared_loops(self.groups, loops)

    def _end(self, digit: Digit) -> Extent | None:
        """The end of a physical dimension in a call, if it is a whole logical one."""
        return self.running.get(digit.dim) if digit.size == self.shape[digit.dim] else None

    def write(self, body: Body) -> None:
        (memory,), (result,) = body.inputs, body.outputs
        if self.digits is None:
            identity = AffineMap.identity(len(self.shape))
            source = CopySource(memory, offset(tensor(self.op.source), identity, self.shape))
            form = offset(self.type, identity, self.shape)
            self._copy(body, self.shape, source, (result, form))
            return
        for box in self.boxes:
            source = CopySource(memory, _form(self.strides, box.start))
            # Padding is written, too: `covers_memory` states that nothing zeroes it before.
            if box.empty:
                source = CopySource(body.writer.number(0, self.type.element_type))
            form = _form(row_major(self.physical), box.start)
            self._copy(body, box.sizes, source, (result, form))

    def _copy(
        self, body: Body, sizes: Shape, source: CopySource, target: tuple[SSAValue, Linear]
    ) -> None:
        mine, kind = cut_of_chunk(self, body, loaded=True), self.type.element_type
        copy(body.writer, sizes, source, target, kind, mine, transposes=not self.once)


@dataclass(frozen=True)
class Digit:
    """A physical dimension of `size`, as a digit of a logical index, of weight `factor`."""

    dim: int
    factor: int
    size: int


def digits_of(layout: LayoutAttr, shape: Shape) -> list[Digit] | None:
    """
    The digit of each physical dimension, if a layout only splits and reorders indices.

    Each logical index is one physical dimension, or two: quotient and remainder by a block.
    """
    # `(d1 floordiv 8, d0, d1 mod 8)`: digits (d1, 8), (d0, 1) and (d1, 1).
    digits = [
        _digit(result, size)
        for result, size in zip(layout.map.data.results, layout.physical.data, strict=True)
    ]
    found = [digit for digit in digits if digit is not None]
    if len(found) < len(digits):
        return None
    for dim, size in enumerate(shape):
        own = sorted((d for d in found if d.dim == dim), key=lambda digit: digit.factor)
        match own:
            case [Digit(factor=1, size=whole)] if whole == size:
                continue
            case [Digit(factor=1, size=low), Digit(factor=block, size=high)]:
                if low == block and high == -(-size // block):
                    continue
        return None
    return found


def _digit(result: AffineExpr, size: int) -> Digit | None:
    match result:
        case AffineDimExpr():
            return Digit(result.position, 1, size)
        case AffineBinaryOpExpr(lhs=AffineDimExpr() as dim, rhs=AffineConstantExpr() as by):
            if result.kind == AffineBinaryOpKind.FloorDiv:
                return Digit(dim.position, by.value, size)
            if result.kind == AffineBinaryOpKind.Mod and by.value == size:
                return Digit(dim.position, 1, size)
    return None


@dataclass(frozen=True)
class Box:
    """A box of physical memory: elements, or padding (`empty`)."""

    start: Shape
    sizes: Shape
    empty: bool


def _boxes(digits: list[Digit], shape: Shape) -> Iterator[Box]:
    """Splits physical memory into boxes of elements or of padding only."""
    # 20 channels in blocks of 16: block 0; lanes 0..4 of block 1; its lanes 4..16, which are zero.
    rank = len(digits)
    choices: list[list[dict[int, tuple[int, int, bool]]]] = []
    for dim, size in enumerate(shape):
        own = {digit.factor: at for at, digit in enumerate(digits) if digit.dim == dim}
        block = max(own)
        full, rest = divmod(size, block)
        if block == 1 or not rest:
            choices.append([{}])
            continue
        high, low = own[block], own[1]
        last = (full, 1, False)
        choices.append(
            [
                {high: (0, full, False)},
                {high: last, low: (0, rest, False)},
                {high: last, low: (rest, block - rest, True)},
            ]
        )
    for combination in product(*choices):
        parts = [(0, digit.size, False) for digit in digits]
        for part in combination:
            for at, chosen in part.items():
                parts[at] = chosen
        starts, sizes, empty = zip(*parts, strict=True) if rank else ((), (), ())
        yield Box(tuple(starts), tuple(sizes), any(empty))


def _form(strides: Shape, start: Shape) -> Linear:
    """The offsets of the elements of a box in memory with these strides."""
    terms = {AffineExpr.dimension(at): stride for at, stride in enumerate(strides) if stride}
    first = sum(stride * low for stride, low in zip(strides, start, strict=True))
    return Linear(first, terms)


def _digits(op: tile.PackOp) -> list[Digit] | None:
    """The digits of a packed layout; None for other layouts, or if the source has one."""
    shape, layout = tensor(op.output).get_shape(), layout_of(tensor(op.output))
    if layout is None or layout_of(tensor(op.source)) is not None:
        return None
    return None if 0 in shape else digits_of(layout, shape)


def _strides(digits: Sequence[Digit], shape: Shape) -> Shape:
    """The strides of the packed axes in unpacked memory."""
    logical = row_major(shape)
    return tuple(logical[digit.dim] * digit.factor for digit in digits)


def _shared(boxes: Sequence[Box]) -> list[int]:
    """The axes along which all boxes have the same range, so that chunks may share them."""
    return [
        at
        for at in range(len(boxes[0].start))
        if len({(box.start[at], box.sizes[at]) for box in boxes}) == 1
    ]
