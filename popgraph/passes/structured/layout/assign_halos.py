"""Replaces padding by halos around tensors, and concatenation by computing in place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import copysign

from xdsl.dialects import arith
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, ModuleOp, NoneAttr, TensorType
from xdsl.ir import Attribute, Block, Operation, OpResult, SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap

from popgraph.dialects import tile
from popgraph.dialects.program import graphs_of
from popgraph.dialects.program.interned import tensor_type
from popgraph.dialects.tile.affine import linear, simplified
from popgraph.dialects.tile.attributes import Halo, LayoutAttr, halo_of, layout_of
from popgraph.dialects.tile.structured.ops import is_identity, maps_attribute, yielded
from popgraph.dialects.value_types import set_type
from popgraph.passes.analysis.induction import holds
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.structured.analysis.inplace_concat import (
    can_write_into,
    escapes,
    is_contiguous_concat,
)
from popgraph.passes.structured.analysis.loops import tensor
from popgraph.passes.structured.analysis.operand_maps import (
    erase_unused,
    is_movement,
    through_view,
)
from popgraph.support.shapes import Shape, prod

Reader = tile.MapOp | tile.ReduceOp
"""What may read past the edge of an operand."""

Maker = tile.MapOp | tile.ReduceOp | tile.AssembleOp
"""What writes its result into any layout."""


@dataclass(frozen=True)
class AssignHalos(Pass):
    """
    Padding becomes a halo of the padded tensor, pieces of a concatenation parts of the whole.

    No kernel copies a tensor to put zeros around it or others beside it, and none has code for
    borders.
    """

    name = "assign-halos"

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        for graph in graphs_of(module):
            rectified = Rectified()
            for op in list(graph.block.ops):
                if isinstance(op, tile.AssembleOp) and op.parent is not None:
                    fold_padding(op, rectified)
            axes = dict[Operation, int | None]()
            for op in graph.block.ops:
                if isinstance(op, tile.AssembleOp):
                    axes[op] = concat_axis(op, axes)
                    _make_room(op, axes[op])
            for op, axis in reversed(axes.items()):
                assert isinstance(op, tile.AssembleOp)
                place_in_concat(op, axis)


# Padding


def fold_padding(op: tile.AssembleOp, rectified: Rectified) -> None:
    """
    y = assemble (x) offset 1; z = f(y[i])  ->  z = f(x[i - 1]), x with a halo of 1

    Only when x may have a halo and f takes its zeros for the fill.
    """
    if len(op.pieces) != 1 or set(op.steps.data) != {1}:
        return
    piece, shape = op.pieces[0], tensor(op.output).get_shape()
    offsets = op.offsets.data
    found = list(_readers(op))
    readers = [
        (reader, number, map_)
        for reader, number, map_ in found
        if isinstance(reader, Reader)
        and map_ is not None
        and _may_read(op, reader, map_, rectified)
    ]
    if not can_have_halo(piece) or not found or len(readers) < len(found):
        return
    size = tensor(piece).get_shape()
    high = [whole - low - own for whole, low, own in zip(shape, offsets, size, strict=True)]
    if give_halo(piece, offsets, high):
        for reader, number, map_ in readers:
            _read_past(reader, number, piece, map_, offsets)
        erase_unused(op)


def _readers(op: tile.AssembleOp) -> Iterator[tuple[Operation, int, AffineMap | None]]:
    """
    Who reads padding: (operation, number of the operand, map into the padded tensor).

    None for those that cannot read past an edge.
    """
    for use in op.output.uses:
        if isinstance(use.operation, tile.ViewOp):
            for seen in use.operation.output.uses:
                map_ = _map_of(seen.operation, seen.index)
                if map_ is not None and isinstance(seen.operation, Reader):
                    map_ = through_view(use.operation, map_, seen.operation.sizes)
                yield seen.operation, seen.index, map_
        else:
            yield use.operation, use.index, _map_of(use.operation, use.index)


def _map_of(op: Operation, number: int) -> AffineMap | None:
    """The index map of an operand that may be read past its edge."""
    if isinstance(op, Reader) and number < len(op.input_maps):
        return op.input_maps[number]
    return None


def _may_read(
    op: tile.AssembleOp, reader: Operation, map_: AffineMap, rectified: Rectified
) -> bool:
    """Whether a reader takes zeros for the fill."""
    if _is_zero(op.fill):
        return True
    return (
        isinstance(reader, tile.ReduceOp)
        and _is_maximum(reader)
        and _is_lowest(op.fill)
        and op.pieces[0] in rectified
        and _meets(map_, reader.sizes, reader.parallel_rank, op)
    )


def _is_zero(fill: Attribute) -> bool:
    """Whether a scalar is zero, and not the one below zero."""
    if not isinstance(fill, FloatAttr | IntegerAttr):
        return False
    return fill.value.data == 0 and copysign(1, fill.value.data) > 0


def _is_lowest(fill: Attribute) -> bool:
    return isinstance(fill, FloatAttr) and fill.value.data == float("-inf")


def _is_maximum(op: tile.ReduceOp) -> bool:
    """Whether a reduction keeps the largest of its one input."""
    first, *rest = op.body.block.ops
    return (
        isinstance(first, arith.MaximumfOp)
        and set(first.operands) == set(op.body.block.args)
        and len(rest) == 1
        and len(op.inputs) == 1
    )


class Rectified:
    """
    The values without an element below zero: what a rectifier made, or moved or pooled since.

    Padding that is folded meanwhile changes no element of any.
    """

    def __init__(self) -> None:
        self._known: dict[SSAValue, bool] = {}

    def __contains__(self, value: SSAValue) -> bool:
        return holds(value, self._known, _moved_from, self._is_never_negative)

    def _is_never_negative(self, value: SSAValue) -> bool:
        owner = value.owner
        match owner:
            case tile.MapOp() if _is_rectified(owner.body.block, value):
                return True
            case tile.ReduceOp() if _is_rectified(owner.epilogue.block, value):
                return True
            case tile.AssembleOp() if not _is_zero(owner.fill):
                return False
        sources = _moved_from(value)
        return bool(sources) and all(self._known[source] for source in sources)


def _moved_from(value: SSAValue) -> list[SSAValue]:
    """The values whose elements, and perhaps a fill, those of `value` are."""
    owner = value.owner
    match owner:
        case tile.MapOp() if is_movement(owner):
            return [owner.inputs[0]]
        case tile.ReduceOp() if _is_maximum(owner) and is_identity(owner.epilogue.block):
            return [owner.inputs[0]]
        case tile.AssembleOp():
            return list(owner.pieces)
        case tile.ViewOp():
            return [owner.source]
        case _:
            return []


def _is_rectified(block: Block, result: SSAValue) -> bool:
    """Whether a body makes a result of its operation as the larger of something and zero."""
    assert isinstance(result, OpResult)
    last = yielded(block)[result.index].owner
    if not isinstance(last, arith.MaximumfOp):
        return False
    constants = [value.owner for value in last.operands]
    return any(isinstance(op, arith.ConstantOp) and _is_zero(op.value) for op in constants)


def _meets(map_: AffineMap, sizes: Shape, parallel: int, op: tile.AssembleOp) -> bool:
    """Whether every window has an element that is not padding."""
    inner = tensor(op.pieces[0]).get_shape()
    for result, low, size in zip(map_.results, op.offsets.data, inner, strict=True):
        outer = [dim for dim in sorted(result.used_dims()) if dim < parallel]
        inside = [dim for dim in sorted(result.used_dims()) if dim >= parallel]
        if len(outer) > 1 or len(inside) > 1:
            return False
        form = linear(result, sizes)
        step = form.stride(outer[0]) if outer else 0
        dilation = form.stride(inside[0]) if inside else 0
        if step is None or dilation is None:
            return False
        for window in range(sizes[outer[0]] if outer else 1):
            start = form.constant + window * step - low
            places = range(sizes[inside[0]] if inside else 1)
            if not any(0 <= start + place * dilation < size for place in places):
                return False
    return True


def _read_past(
    reader: Reader, number: int, value: SSAValue, map_: AffineMap, offsets: Shape
) -> None:
    """Operand `number` becomes `value`, read through the map into its padded form."""
    results = tuple(
        result + AffineExpr.constant(-low)
        for result, low in zip(map_.results, offsets, strict=True)
    )
    maps = list(reader.input_maps)
    maps[number] = simplified(AffineMap(map_.num_dims, 0, results), reader.sizes)
    old = reader.operands[number].owner
    reader.operands[number] = value
    reader.properties["maps"] = maps_attribute(maps)
    if isinstance(old, tile.ViewOp):
        erase_unused(old)


# Halos


def can_have_halo(value: SSAValue) -> bool:
    """Whether whoever makes and reads a tensor lets it have a layout."""
    maker = value.owner
    if isinstance(maker, tile.ViewOp):  # The halo is around what is viewed, too.
        made = maker.source.has_one_use() and _can_be_made_with_halo(maker.source)
    else:
        made = _can_be_made_with_halo(value)
    return made and all(_reads_layouts(use.operation, use.index) for use in value.uses)


def _can_be_made_with_halo(value: SSAValue) -> bool:
    return (
        isinstance(value.owner, Maker)
        and len(value.owner.results) == 1
        and halo_of(tensor(value)) is not None
        and not escapes(value)
    )


def _reads_layouts(op: Operation, number: int) -> bool:
    if isinstance(op, tile.MapOp | tile.ScatterOp):
        return number < len(op.inputs)
    return isinstance(op, tile.ReduceOp | tile.AssembleOp)


def give_halo(value: SSAValue, low: Sequence[int], high: Sequence[int]) -> bool:
    """
    Puts at least so much memory around a tensor, and around what it is a view of.

    False when the view puts together, or takes apart, what would have a halo between.
    """
    maker = value.owner
    if isinstance(maker, tile.ViewOp):
        shapes = tensor(value).get_shape(), tensor(maker.source).get_shape()
        inner = [_carried(numbers, *shapes) for numbers in (low, high)]
        if inner[0] is None or inner[1] is None:
            return False
        _surround(maker.source, inner[0], inner[1])
    _surround(value, low, high)
    return True


def _surround(value: SSAValue, low: Sequence[int], high: Sequence[int]) -> None:
    set_type(value, _surrounded(tensor(value), tuple(low), tuple(high)))


@lru_cache(maxsize=1 << 10)
def _surrounded(type_: TensorType[Attribute], low: Shape, high: Shape) -> TensorType[Attribute]:
    """The type with so much memory around; remembered, as that of all layers of a size."""
    halo = halo_of(type_)
    assert halo is not None, "who may have a halo has one, if only of nothing"
    lows = list(map(max, halo.low, low))
    highs = list(map(max, halo.high, high))
    shape = type_.get_shape()
    sizes = [a + b + c for a, b, c in zip(lows, shape, highs, strict=True)]
    layout = LayoutAttr.moved(lows, sizes) if any(lows) or any(highs) else NoneAttr()
    return tensor_type(type_.element_type, shape, layout)


def _carried(numbers: Sequence[int], shape: Shape, other: Shape) -> list[int] | None:
    """
    Numbers for dimensions as those of a view; None when they are in the midst of others.

    So are those of one element beside others of one: nothing tells which of them is which. Nor
    does anything where there is no element, and as many come before one dimension as another.
    """
    found = [0] * len(other)
    for dim, number in enumerate(numbers):
        if number:
            place = shape[dim], prod(shape[:dim])
            alone = len(_standing(place, shape)) == len(_standing(place, other)) == 1
            if 0 in shape or not alone:
                return None
            found[_standing(place, other)[0]] = number
    return found


def _standing(place: tuple[int, int], shape: Shape) -> list[int]:
    """The dimensions of a size that come after so many elements."""
    return [dim for dim, size in enumerate(shape) if (size, prod(shape[:dim])) == place]


# Concatenation


def place_in_concat(op: tile.AssembleOp, axis: int | None) -> None:
    """
    Gives the pieces of a concatenation places in the memory of the whole, along its shared axis.

    Only when nothing is between them, nobody else takes them for a piece, and they do not stand
    there in one run anyway.
    """
    type_ = tensor(op.output)
    layout, halo = layout_of(type_), halo_of(type_)
    if axis is None or halo is None or (is_contiguous_concat(op) and layout is None):
        return
    physical = layout.physical.data if layout else type_.get_shape()
    for piece, offsets, _ in op.placements():
        low = [a + b for a, b in zip(halo.low, offsets, strict=True)]
        own = tensor(piece)
        part = LayoutAttr.moved(low, physical, axis)
        set_type(piece, TensorType(own.element_type, own.get_shape(), part))


def concat_axis(op: tile.AssembleOp, axes: Mapping[Operation, int | None]) -> int | None:
    """
    The axis along which the pieces of a concatenation can share memory; `axes` of earlier ones.

    Neither the whole nor a piece may have a halo along it: beside a piece stand its neighbours,
    where a halo of its own would have to be zero, and no piece reaches beyond its end, where one
    of the whole would.
    """
    axis = _axis(op)
    whole = halo_of(tensor(op.output))
    if axis is None or whole is None or whole.part not in (-1, axis) or escapes(op.output):
        return None
    if len(set(op.pieces)) != len(op.pieces) or not _ends_with(whole, axis):
        return None
    for piece in op.pieces:
        maker, halo = piece.owner, halo_of(tensor(piece))
        if (
            not can_have_halo(piece)
            or not can_write_into(piece, op)
            or halo is None
            or halo.part >= 0
        ):
            return None
        if not _ends_with(halo, axis):
            return None
        if isinstance(maker, tile.AssembleOp) and axes[maker] != axis:
            return None
    return axis


def _ends_with(halo: Halo, axis: int) -> bool:
    """Whether there is nothing beyond the elements along an axis that has to be zero."""
    return halo.part == axis or not (halo.low[axis] or halo.high[axis])


def _make_room(op: tile.AssembleOp, axis: int | None) -> None:
    """A whole that can be shared gets the halo that its pieces have."""
    if axis is not None:
        halos = [halo for piece in op.pieces if (halo := halo_of(tensor(piece)))]
        rank = range(tensor(op.output).get_num_dims())
        low = [0 if dim == axis else max(halo.low[dim] for halo in halos) for dim in rank]
        high = [0 if dim == axis else max(halo.high[dim] for halo in halos) for dim in rank]
        give_halo(op.output, low, high)


def _axis(op: tile.AssembleOp) -> int | None:
    """The axis along which the pieces follow each other; None when they do not."""
    shape = tensor(op.output).get_shape()
    end, axes = 0, set[int]()
    for piece, offsets, steps in op.placements():
        sizes = tensor(piece).get_shape()
        axes |= {dim for dim, size in enumerate(sizes) if size != shape[dim]}
        if set(steps) != {1} or len(axes) != 1:
            return None
        (axis,) = axes
        if offsets[axis] != end or any(at for dim, at in enumerate(offsets) if dim != axis):
            return None
        end += sizes[axis]
    return next(iter(axes)) if axes and end == shape[next(iter(axes))] else None
