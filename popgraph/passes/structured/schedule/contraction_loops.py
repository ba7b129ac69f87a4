"""The loops of a contraction as data: their sizes, and how operands and results are indexed."""

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
    The loops of a contraction, and its operands and results as these go over them.

    Operands come first, in their order, then results.
    """

    sizes: Shape
    parallel: int
    """How many loops go over results; the rest go over terms."""
    shapes: tuple[Shape, ...]
    maps: tuple[AffineMap, ...]
    laid_out: tuple[bool, ...]
    """What has a layout, and so keeps its shape."""
    has_fixed_results: bool
    """Whether a result has a layout: then the loops over results stay, also those of one step."""
    running: frozenset[int] = frozenset()
    """The loops that end at a size of the call."""

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
    """Gives a contraction these loops, by views of operands and results."""
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
    """Gives a result another shape, and its readers a view of the shape that it had."""
    type_, readers = tensor(result), tuple(result.uses)
    assert layout_of(type_) is None, "what has a layout keeps its loops"
    view = tile.ViewOp(result, type_.get_shape())
    _insert(view, op, InsertPoint.after(op))
    view.output.name_hint, result.name_hint = result.name_hint, None
    for use in readers:
        use.operation.operands[use.index] = view.output
    set_type(result, tensor_type(type_.element_type, shape))


def _insert(view: tile.ViewOp, op: Operation, at: InsertPoint) -> None:
    view.location = op.location
    Rewriter.insert_op(view, at)
