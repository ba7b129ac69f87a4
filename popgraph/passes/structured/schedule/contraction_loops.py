"""The loops of a contraction as data: sizes, and the index maps of operands and results."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from xdsl.ir import Operation, OpResult
from xdsl.ir.affine import AffineMap
from xdsl.rewriter import InsertPoint, Rewriter

from popgraph.dialects import tile
from popgraph.dialects.program import IntsAttr
from popgraph.dialects.program.interned import tensor_type, whole
from popgraph.dialects.tile.attributes import layout_of
from popgraph.dialects.tile.structured.ops import maps_attribute
from popgraph.dialects.value_types import set_type
from popgraph.passes.structured.analysis.loops import tensor
from popgraph.support.shapes import Shape


@dataclass(frozen=True)
class ContractionLoops:
    """
    The loops of a contraction with the shapes and index maps of its operands and results.

    Operands come first, then results.
    """

    sizes: Shape
    parallel: int
    """Number of loops over results; the rest are reductions."""
    shapes: tuple[Shape, ...]
    maps: tuple[AffineMap, ...]
    laid_out: tuple[bool, ...]
    """Whether each operand or result has a layout, and so keeps its shape."""
    has_fixed_results: bool
    """Whether a result has a layout, which fixes the loops over results, even of size 1."""
    running: frozenset[int] = frozenset()
    """Loops that end at a size of the call."""

    @staticmethod
    def of(op: tile.ReduceOp, running: Iterable[int] = ()) -> ContractionLoops:
        values, maps = zip(*op.mapped, strict=True)
        types = [tensor(value) for value in values]
        return ContractionLoops(
            op.sizes,
            op.parallel_rank,
            tuple(type_.get_shape() for type_ in types),
            tuple(maps),
            tuple(layout_of(type_) is not None for type_ in types),
            any(layout_of(tensor(value)) is not None for value in op.outputs),
            frozenset(running),
        )


def set_loops(op: tile.ReduceOp, new: ContractionLoops) -> None:
    """Sets the loops of a contraction, through views of its operands and results."""
    inputs = len(op.operands)
    for number, value in enumerate(op.operands):
        if tensor(value).get_shape() != new.shapes[number]:
            view = tile.ViewOp(value, new.shapes[number])
            _insert(view, op, InsertPoint.before(op))
            op.operands[number] = view.output
    op.properties["domain"] = IntsAttr.of(new.sizes)
    op.properties["parallel"] = whole(new.parallel)
    op.properties["maps"] = maps_attribute(new.maps[:2])
    op.properties["epilogue_maps"] = maps_attribute(new.maps[2:inputs])
    shape = new.sizes[: new.parallel]
    for result in reversed(op.outputs):
        if tensor(result).get_shape() != shape:
            _reshape_result(op, result, shape)


def _reshape_result(op: tile.ReduceOp, result: OpResult, shape: Shape) -> None:
    """Changes the shape of a result; its readers get a view with the old shape."""
    type_, readers = tensor(result), tuple(result.uses)
    assert layout_of(type_) is None, "a result with a layout keeps its loops"
    view = tile.ViewOp(result, type_.get_shape())
    _insert(view, op, InsertPoint.after(op))
    view.output.name_hint, result.name_hint = result.name_hint, None
    for use in readers:
        use.operation.operands[use.index] = view.output
    set_type(result, tensor_type(type_.element_type, shape))


def _insert(view: tile.ViewOp, op: Operation, at: InsertPoint) -> None:
    view.location = op.location
    Rewriter.insert_op(view, at)
