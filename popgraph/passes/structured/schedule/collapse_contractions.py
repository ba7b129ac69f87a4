"""Collapses neighbouring loops of a contraction that every operand walks as one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute
from xdsl.ir.affine import AffineDimExpr, AffineExpr, AffineMap
from xdsl.rewriter import InsertPoint

from popgraph.dialects import tile
from popgraph.dialects.program import IntsAttr
from popgraph.dialects.program.interned import tensor_type, whole
from popgraph.dialects.tile.affine import selection, simplified, with_dims
from popgraph.dialects.tile.attributes import layout_of
from popgraph.dialects.tile.structured.ops import maps_attribute
from popgraph.passes.analysis.replace import insert_made_for
from popgraph.passes.structured.analysis.loops import tensor
from popgraph.passes.structured.analysis.operand_maps import set_type_in_place
from popgraph.support.shapes import Shape


class Operand:
    """An operand with its index map, both changing as loops are joined."""

    def __init__(self, type_: TensorType[Attribute], map_: AffineMap, sizes: Shape) -> None:
        self.shape: Shape = type_.get_shape()
        self.fixed = layout_of(type_) is not None
        self.map = simplified(map_, sizes[: map_.num_dims])

    def pair(self, dim: int, sizes: Shape) -> int | None:
        """Where `dim` and the next stand side by side, whole and alone; -1 if neither is used."""
        results = self.map.results
        users = [at for at, result in enumerate(results) if {dim, dim + 1} & result.used_dims()]
        if not users:
            return -1
        first = users[0]
        alone = users == [first, first + 1] and not self.fixed
        if not alone or [_dim(results[at]) for at in users] != [dim, dim + 1]:
            return None
        return first if self.shape[first : first + 2] == sizes[dim : dim + 2] else None

    def join(self, dim: int, at: int) -> None:
        """`dim` and the next, which stand at `at`, become one."""
        rank, results = self.map.num_dims, self.map.results
        if at >= 0:
            size = self.shape[at] * self.shape[at + 1]
            self.shape = (*self.shape[:at], size, *self.shape[at + 2 :])
            results = (*results[: at + 1], *results[at + 2 :])
        earlier = selection([old - (old > dim) for old in range(rank)]).results
        left = rank - (dim + 1 < rank)
        self.map = with_dims(AffineMap(rank, 0, results), earlier, left)


def _dim(result: AffineExpr) -> int | None:
    return result.position if isinstance(result, AffineDimExpr) else None


@dataclass(frozen=True)
class Reshaped:
    """Other loops for a contraction, and its operands and results as these go over them."""

    sizes: Shape
    parallel: int
    shapes: tuple[Shape, ...]
    maps: tuple[AffineMap, ...]


@lru_cache(maxsize=1 << 10)
def _joined(
    types: tuple[TensorType[Attribute], ...],
    maps: tuple[AffineMap, ...],
    sizes: Shape,
    parallel: int,
    first: int,
) -> Reshaped:
    """
    Joins what can be joined from loop `first` on.

    Remembered: most contractions of a network are of a few forms.
    """
    operands = [Operand(type_, map_, sizes) for type_, map_ in zip(types, maps, strict=True)]
    dim = first
    while dim + 1 < len(sizes):
        places = [operand.pair(dim, sizes) for operand in operands]
        if dim + 1 == parallel or None in places:
            dim += 1
            continue
        for operand, at in zip(operands, places, strict=True):
            assert at is not None
            operand.join(dim, at)
        sizes = (*sizes[:dim], sizes[dim] * sizes[dim + 1], *sizes[dim + 2 :])
        parallel -= dim + 1 < parallel
    return Reshaped(
        sizes,
        parallel,
        tuple(operand.shape for operand in operands),
        tuple(operand.map for operand in operands),
    )


def collapse(op: tile.ContractOp) -> None:
    """
    Joins loops that every operand walks through as one, by views of operands and results.

    A 1x1 convolution over 56 rows of 56 pixels becomes a product over 3136 pixels.
    """
    parallel = op.parallel_rank
    types = tuple(tensor(value) for value, _ in op.mapped)
    maps = tuple(map_ for _, map_ in op.mapped)
    laid_out = any(layout_of(tensor(value)) for value in op.outputs)
    joined = _joined(types, maps, op.sizes, parallel, parallel if laid_out else 0)
    if joined.sizes != op.sizes:
        reshape(op, joined)


def reshape(op: tile.ContractOp, new: Reshaped) -> None:
    """Gives a contraction these loops, by views of operands and results."""
    inputs = len(op.operands)
    for number, value in enumerate(op.operands):
        if tensor(value).get_shape() != new.shapes[number]:
            view = tile.ViewOp(value, new.shapes[number])
            insert_made_for(op, view)
            op.operands[number] = view.output
    op.properties["domain"] = IntsAttr.of(new.sizes)
    op.properties["parallel"] = whole(new.parallel)
    op.properties["maps"] = maps_attribute(new.maps[:2])
    op.properties["epilogue_maps"] = maps_attribute(new.maps[2:inputs])
    for result in reversed(op.outputs):
        type_, readers = tensor(result), tuple(result.uses)
        view = tile.ViewOp(result, type_.get_shape())
        insert_made_for(op, view, at=InsertPoint.after(op))
        view.output.name_hint, result.name_hint = result.name_hint, None
        for use in readers:
            use.operation.operands[use.index] = view.output
        if layout_of(type_):  # Its dimensions are as they were.
            set_type_in_place(view.output, type_)
        else:
            set_type_in_place(result, tensor_type(type_.element_type, new.sizes[: new.parallel]))
