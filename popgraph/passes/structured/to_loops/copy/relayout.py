"""Loops of `tile.pack` and `tile.unpack`: copies between dense and blocked layouts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute
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
from popgraph.dialects.tile.cut import chunks_of, cut_of
from popgraph.passes.structured.analysis.loops import tensor
from popgraph.passes.structured.analysis.parallel_loops import ParallelLoops
from popgraph.passes.structured.to_loops.copy.copies import Cut, Source, copy, cut_span, shared_out
from popgraph.passes.structured.to_loops.emit.writer import Writer
from popgraph.passes.structured.to_loops.emit.zero_padding import zero_unwritten
from popgraph.passes.tuning import Target
from popgraph.support.shapes import Shape


def relayout_kernel(
    op: tile.PackOp | tile.UnpackOp, target: Target, *, once: bool
) -> tile.KernelOp:
    """
    Every element from where the one layout has it to where the other has it.

    What runs `once`, when a program is loaded, takes longer to compile than to run: it is short.
    """
    digits, physical = _digits(op), physical_shape(tensor(op.output))
    if isinstance(op, tile.PackOp) and digits is not None:
        return _packed(op, digits, physical, target, once=once)
    source, output = tensor(op.source), tensor(op.output)
    shape = output.get_shape()
    kernel = tile.KernelOp([op.source], [output])
    writer = Writer(kernel.body.block, target)
    _, memory, result = kernel.body.block.args
    zero_unwritten(writer, [op.output], [result])
    identity = AffineMap.identity(len(shape))
    copy(
        writer,
        shape,
        Source(memory, offset(source, identity, shape)),
        (result, offset(output, identity, shape)),
        output.element_type,
        transposes=not once,
    )
    return kernel


@dataclass(frozen=True)
class Digit:
    """A physical dimension as part of a logical index: `factor` times what it counts."""

    dim: int
    factor: int
    size: int


def digits_of(layout: LayoutAttr, shape: Shape) -> list[Digit] | None:
    """
    What each physical dimension counts, where a layout only splits and reorders indices.

    Every logical index is one physical dimension, or two: its quotient and its remainder.
    """
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
    """A part of the physical memory: where it starts, how far it goes, whether it holds zeros."""

    start: Shape
    sizes: Shape
    empty: bool


def _boxes(digits: list[Digit], shape: Shape) -> Iterator[Box]:
    """Memory in parts that are elements or padding altogether."""
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
    """The memory that the elements of a box have, by these distances between neighbours."""
    terms = {AffineExpr.dimension(at): stride for at, stride in enumerate(strides) if stride}
    first = sum(stride * low for stride, low in zip(strides, start, strict=True))
    return Linear(first, terms)


def relayout_parallel_loops(
    op: tile.PackOp | tile.UnpackOp, target: Target
) -> ParallelLoops | None:
    """What threads may share of it."""
    output, digits = tensor(op.output), _digits(op)
    if digits is None:
        return None
    strides = _strides(digits, output.get_shape())
    loaded = {at for at, stride in enumerate(strides) if stride == 1}
    shared = _shared(list(_boxes(digits, output.get_shape())))
    return shared_out(shared, physical_shape(output), output.element_type, target, loaded)


def _digits(op: tile.PackOp | tile.UnpackOp) -> list[Digit] | None:
    """Where the packed axes come from, if elements stand as usual before."""
    shape, layout = tensor(op.output).get_shape(), layout_of(tensor(op.output))
    if isinstance(op, tile.UnpackOp) or layout is None or layout_of(tensor(op.source)) is not None:
        return None
    return None if 0 in shape else digits_of(layout, shape)


def _strides(digits: Sequence[Digit], shape: Shape) -> Shape:
    """How far apart, in the unpacked memory, neighbours along the packed axes are."""
    logical = row_major(shape)
    return tuple(logical[digit.dim] * digit.factor for digit in digits)


def _shared(boxes: Sequence[Box]) -> list[int]:
    """The axes along which all boxes are as long."""
    return [
        at
        for at in range(len(boxes[0].start))
        if len({(box.start[at], box.sizes[at]) for box in boxes}) == 1
    ]


def _packed(
    op: tile.PackOp, digits: list[Digit], physical: Shape, target: Target, *, once: bool
) -> tile.KernelOp:
    """Goes over the packed memory in order, which is written once; padding is written too."""
    output: TensorType[Attribute] = tensor(op.output)
    boxes = list(_boxes(digits, output.get_shape()))
    strides = _strides(digits, output.get_shape())
    cut = cut_of(op)
    kernel = tile.KernelOp([op.source], [output], chunks_of(cut))
    writer = Writer(kernel.body.block, target)
    chunk, memory, result = kernel.body.block.args
    mine = None
    if cut is not None:
        dim = _shared(boxes)[cut.only.loop]
        mine = Cut(dim, cut_span(writer, cut, physical[dim], chunk), loaded=True)
    for box in boxes:
        source = Source(memory, _form(strides, box.start))
        if box.empty:
            source = Source(writer.number(0, output.element_type))
        to = _form(row_major(physical), box.start)
        copy(
            writer,
            box.sizes,
            source,
            (result, to),
            output.element_type,
            mine,
            transposes=not once,
        )
    return kernel
