"""Adds outputs that report out-of-range indices which data brings at run time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from xdsl.builder import Builder, ImplicitBuilder
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from popgraph.dialects import element_types
from popgraph.dialects.graphcore import (
    AddOp,
    CastOp,
    CheckIndicesOp,
    CompareOp,
    GatherGradOp,
    GatherOp,
    MaxOp,
    ReduceMaxOp,
    ReshapeOp,
    SliceOp,
    WhereOp,
)
from popgraph.dialects.graphcore.base import Operand, dtype_of, integer, shape_of
from popgraph.dialects.program import ConstantOp, DataAttr, GraphOp, ReturnOp, graphs_of
from popgraph.passes.base import Compilation, Pass
from popgraph.support import dtypes
from popgraph.support.dtypes import DType
from popgraph.support.index_checks import IndexCheck
from popgraph.support.shapes import prod

WIDE = dtypes.BY_NAME["i64"]
"""The type in which all indices can be compared."""

UNSIGNED = dtypes.BY_NAME["u64"]
"""The type in which what lies before the first lies behind the last."""

BESIDE = 32
"""So many numbers side by side are a few vectors of every machine."""


@dataclass(frozen=True)
class CheckIndices(Pass):
    """
    Indices that data brings are used as they are; an output tells whether they are in range.

    y = gather(x, check_indices(i))  ->
    y = gather(x, unsigned(where(i < 0, i + size, i))), output reduce_max(unsigned(i - low))

    Unsigned indices are kept in memory by one minimum. Only of a run that the output ends may
    outputs change: indices before the first then mean the last.
    """

    name = "check-indices"

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        for graph in graphs_of(module):
            for op in [op for op in graph.block.ops if isinstance(op, CheckIndicesOp)]:
                _move_to_outputs(graph, op)


def _move_to_outputs(graph: GraphOp, op: CheckIndicesOp) -> None:
    before, outputs = graph.return_op, graph.outputs
    checks: list[IndexCheck] = [*before.index_checks]
    if 0 not in shape_of(op.indices):  # Where there are none, none is out of range.
        check = op.check(_free_name(op, outputs.keys()))
        with ImplicitBuilder(Builder(InsertPoint.before(op))):
            outputs[check.output] = largest(op)
        checks.append(check)
        _use_places(op)
    op.result.replace_all_uses_with(op.indices)
    outputs = {name: op.indices if value is op.result else value for name, value in outputs.items()}
    Rewriter.erase_op(before)
    graph.block.add_op(ReturnOp(list(outputs.values()), list(outputs), checks))
    Rewriter.erase_op(op)


def _use_places(op: CheckIndicesOp) -> None:
    """Lets lookups take places, counted from the start, for indices that are in range."""
    lookups = [use for use in op.result.uses if isinstance(use.operation, GatherOp | GatherGradOp)]
    if not lookups or op.ignored is not None or len(op.low) > 1:
        return
    with ImplicitBuilder(Builder(InsertPoint.before(op))):
        places = _places(op.indices, -op.low.data[0])
    for use in lookups:
        use.operation.operands[use.index] = places


def _places(indices: Operand, size: int) -> SSAValue:
    """Legal indices counted from the start, as unsigned numbers; others are `size` at least."""
    if size:
        wide = _cast(indices, WIDE)
        negative = CompareOp(wide, _literal(0, WIDE), "lt")
        indices = WhereOp(negative, AddOp(wide, _literal(size, WIDE)), wide)
    return _cast(indices, UNSIGNED)


def _cast(value: Operand, dtype: DType) -> SSAValue:
    """The value in another element type, or itself."""
    if dtype_of(value) == dtype:
        return SSAValue.get(value)
    return CastOp(value, to=element_types.to_ir(dtype)).result


def _free_name(op: CheckIndicesOp, taken: object) -> str:
    """A name that no output has."""
    assert hasattr(taken, "__contains__")
    name = f"check of {op.place.text}"
    while name in taken:
        name += "'"
    return name


def largest(op: CheckIndicesOp) -> SSAValue:
    """For each of the bounds, the largest of `index - low` as an unsigned number."""
    rank = len(shape_of(op.indices))
    if len(op.low) > 1 and rank > 1:
        return _largest_of_columns(op)
    distances = _distances(op, op.indices)
    if len(op.low) > 1 or not rank:
        return distances
    return ReduceMaxOp(distances, axes=range(rank), keepdims=False).result


def _largest_of_columns(op: CheckIndicesOp) -> SSAValue:
    """
    Of each number of the rows along the last axis, the largest.

    A few rows side by side fill vectors, which a short row does not; those left over come after.
    """
    *outer, columns = shape_of(op.indices)
    rows, beside = prod(outer), max(1, BESIDE // columns)
    flat = op.indices if len(outer) == 1 else ReshapeOp(op.indices, shape=(rows, columns)).result
    many = rows - rows % beside
    if beside == 1 or many < 2 * beside:
        return _largest_row(_distances(op, flat))
    wide = ReshapeOp(_some_rows(flat, 0, many), shape=(many // beside, beside * columns))
    best = _largest_row(_distances(op, wide, beside))
    largest = _largest_row(ReshapeOp(best, shape=(beside, columns)))
    if many == rows:
        return largest
    left = _distances(op, _some_rows(flat, many, rows - many))
    return MaxOp(largest, _largest_row(left)).result


def _distances(op: CheckIndicesOp, indices: Operand, beside: int = 1) -> SSAValue:
    """`index - low` as an unsigned number, for so many rows of indices side by side."""
    exact = op.ignored is None and dtype_of(indices).name == "i32"
    if not exact:
        indices = _cast(indices, WIDE)
    if op.ignored is not None:
        counts = CompareOp(indices, _literal(integer(op.ignored), WIDE), "ne")
        indices = WhereOp(counts, indices, _literal(op.low.data[0], WIDE))
    unsigned = dtypes.BY_NAME["u32"] if exact else UNSIGNED
    distances = _cast(indices, unsigned)
    steps = [-low for low in op.low.data] * beside
    if not any(steps):
        return distances
    by = _literal(steps[0] if len(steps) == 1 else steps, unsigned)
    return AddOp(distances, by).result


def _largest_row(places: Operand) -> SSAValue:
    return ReduceMaxOp(places, axes=[0], keepdims=False).result


def _some_rows(places: Operand, start: int, count: int) -> Operand:
    rows, columns = shape_of(places)
    if count == rows:
        return places
    return SliceOp(places, starts=(start, 0), sizes=(count, columns), steps=(1, 1))


def _literal(numbers: int | list[int], dtype: DType) -> ConstantOp:
    """Whole numbers as the type has them, which may be what they wrap around to."""
    return ConstantOp(DataAttr.of(np.asarray(np.array(numbers, np.int64).astype(dtype.numpy))))
