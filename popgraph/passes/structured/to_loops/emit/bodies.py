"""Inlines scalar bodies into kernels, on scalars or on vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.dialects.builtin import (
    DenseIntOrFPElementsAttr,
    FloatAttr,
    IntegerAttr,
    TensorType,
    VectorType,
)
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.traits import is_side_effect_free

from popgraph.dialects import tile
from popgraph.dialects.tile.affine import offset
from popgraph.dialects.tile.scalars import (
    SCALARS,
    is_trapping,
    lane_bytes,
    on_lanes,
)
from popgraph.dialects.tile.structured.ops import indexed_dims
from popgraph.dialects.unchecked import create_unchecked
from popgraph.passes.structured.to_loops.emit.access import IterationPoint, element_index
from popgraph.passes.structured.to_loops.emit.vectors import in_lanes, lanes_of
from popgraph.passes.structured.to_loops.emit.writer import INDEX, Writer


def widest_lane(types: Sequence[Attribute], *bodies: Block, along: int | None = None) -> int:
    """
    The size in bytes of the widest lane, if bodies compute these types of elements in vectors.

    0 if an operation has no vector form.
    """
    sizes = {lane_bytes(kind) for kind in types}
    for body in bodies:
        # An index is a scalar, common to all lanes, except along the vectorized dimension.
        alike = set() if along in indexed_dims(body) else {INDEX}
        for op in body.ops:
            if not _works_on_lanes(op):
                return 0
            kinds = {result.type for result in op.results} - alike
            sizes.update(map(lane_bytes, kinds))
    return 0 if 0 in sizes else max(sizes, default=0)


def _works_on_lanes(op: Operation) -> bool:
    return isinstance(op, tile.YieldOp | tile.IndexOp | arith.ConstantOp) or type(op) in SCALARS


def widest_lane_of_rows(
    types: Sequence[Attribute], block: Block, along: int, moving: Sequence[bool]
) -> int:
    """
    The widest lane, like `widest_lane`, of a body that looks up rows of tables along the lanes.

    `moving` marks the arguments that differ between lanes, `types` are the results. 0 also if lanes
    look up different rows, or the elements of a row are not contiguous.
    """
    # Lanes of different rows would be gathered. Lookups of rows by vectors make resizing between
    # convolutions 1.4 times as fast (300121f2).
    sizes = {lane_bytes(kind) for kind in types}
    differing = {one for one, moves in zip(block.args, moving, strict=False) if moves}
    sizes.update(lane_bytes(one.type) for one in differing)
    counters = {
        op.result for op in block.ops if isinstance(op, tile.IndexOp) and op.dim.value.data == along
    }
    for op in block.ops:
        operands = set(op.operands)
        if isinstance(op, tile.ElementOp):
            *others, last = op.indices
            if (differing | counters) & {*others} or last in differing:
                return 0
            if last not in counters:
                continue
            if not _has_rows(op):
                return 0
        elif not operands & (differing | counters) or isinstance(op, tile.YieldOp):
            continue
        elif operands & counters or not _works_on_lanes(op):
            return 0
        differing.update(op.results)
        sizes.update(lane_bytes(result.type) for result in op.results)
    return 0 if 0 in sizes else max(sizes, default=0)


def _has_rows(op: tile.ElementOp) -> bool:
    """Whether a table is contiguous along its last axis."""
    type_ = op.table.type
    assert isinstance(type_, TensorType)
    shape = type_.get_shape()
    last = len(shape) - 1
    return (
        shape[last] == 1 or offset(type_, AffineMap.identity(len(shape)), shape).stride(last) == 1
    )


@dataclass(frozen=True)
class VectorDim:
    """The vectorized dimension and the number of lanes."""

    dim: int
    lanes: int

    def index(self, writer: Writer, first: SSAValue) -> SSAValue:
        """The indices of all lanes: first, first + 1, ..."""
        if not self.lanes:
            return first
        type_ = VectorType(INDEX, [self.lanes])
        steps = DenseIntOrFPElementsAttr.from_list(type_, range(self.lanes))
        counted = writer.once(arith.ConstantOp(steps))
        return writer.once(arith.AddiOp(writer.broadcast(first, self.lanes), counted))


def inline(
    point: IterationPoint,
    block: Block,
    arguments: Sequence[SSAValue],
    along: VectorDim | None = None,
) -> list[SSAValue]:
    """
    Writes a body for these arguments and returns the values it yields.

    Operations with a vector operand compute vectors; others stay scalar and are hoisted.
    """
    writer = point.writer
    values: dict[SSAValue, SSAValue] = dict(zip(block.args, arguments, strict=True))
    for op in block.ops:
        operands = [values[operand] for operand in op.operands]
        match op:
            case tile.YieldOp():
                return operands
            case tile.IndexOp():
                dim = op.dim.value.data
                values[op.result] = writer.value(point.indices[dim])
                if along is not None and along.dim == dim and not _begins_rows(op):
                    values[op.result] = along.index(writer, values[op.result])
            case tile.ElementOp():
                memory, *indices = operands
                type_ = op.table.type
                assert isinstance(type_, TensorType)
                index = element_index(writer, type_, indices)
                if along is not None and along.lanes and _is_row(op, along.dim):
                    values[op.result] = writer.vector_load_input(memory, index, along.lanes)
                else:
                    values[op.result] = writer.load_input(memory, index)
            case arith.ConstantOp(value=IntegerAttr() | FloatAttr()):
                values[op.result] = writer.literal(op.value)
            case _:
                (result,) = op.results
                values[result] = _operation(writer, op, operands)
    raise AssertionError("a body ends with tile.yield")


def _begins_rows(op: tile.IndexOp) -> bool:
    """Whether an index only selects elements of tables, whose vectors need its first lane."""
    return all(isinstance(use.operation, tile.ElementOp) for use in op.result.uses)


def _is_row(op: tile.ElementOp, along: int) -> bool:
    last = op.indices[-1].owner
    return isinstance(last, tile.IndexOp) and last.dim.value.data == along


def _operation(writer: Writer, op: Operation, operands: Sequence[SSAValue]) -> SSAValue:
    lanes = max(map(lanes_of, operands), default=0)
    if lanes:
        made = on_lanes(op, [in_lanes(writer, value, lanes) for value in operands], lanes)
    else:
        types = [result.type for result in op.results]
        made = create_unchecked(type(op), *operands, types=types, regions=(), **op.properties)
        made.attributes.update(op.attributes)
    # A hoisted integer division would trap where the loop around it has no iterations.
    if is_side_effect_free(made) and not is_trapping(op):
        return writer.once(made)
    return writer.add(made)
