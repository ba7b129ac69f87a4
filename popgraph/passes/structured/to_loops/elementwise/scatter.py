"""Loops of `tile.scatter`: initializes the result, then combines updates into its elements."""

from __future__ import annotations

from collections.abc import Container, Sequence
from contextlib import nullcontext
from dataclasses import replace

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import BlockArgument, OpResult, SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap

from popgraph.dialects import tile
from popgraph.dialects.tile.affine import Linear, linear, offset
from popgraph.dialects.tile.attributes import layout_of, physical_shape
from popgraph.dialects.tile.scalars import lane_bytes
from popgraph.passes.structured.analysis.loops import Group, tensor
from popgraph.passes.structured.analysis.parallel_loops import Loop
from popgraph.passes.structured.to_loops.emit.access import (
    IterationPoint,
    Span,
    accesses,
    element_index,
)
from popgraph.passes.structured.to_loops.emit.bodies import (
    inline,
    widest_lane,
    widest_lane_of_rows,
)
from popgraph.passes.structured.to_loops.emit.create import sum_of
from popgraph.passes.structured.to_loops.emit.emitter import Body, Emitter
from popgraph.passes.structured.to_loops.emit.index import Index
from popgraph.passes.structured.to_loops.emit.vectors import (
    NestLoop,
    fitting_lanes,
    in_lanes,
    read,
    write_nest,
)
from popgraph.passes.structured.to_loops.emit.writer import Writer
from popgraph.support.shapes import prod
from popgraph.support.tuning import Target


class ScatterLoops(Emitter):
    """Writes the initial result, then the updates; each chunk in its own range of the result."""

    covers_memory = True

    def __init__(self, op: tile.ScatterOp, target: Target) -> None:
        super().__init__(op, target)
        self.op, self.inputs, self.outputs = op, op.operands, [op.output]
        self.groups = [
            Group((dim,), size, self.running.get(dim)) for dim, size in enumerate(op.sizes)
        ]
        self.work = prod(op.sizes)

    @property
    def loops(self) -> list[Loop] | None:
        """Threads share the outermost loop, if it is the result's outermost dimension."""
        # Chunks then update disjoint rows; other loops may update any element.
        op, type_ = self.op, tensor(self.op.output)
        if layout_of(type_) or op.parallel_rank == 0 or op.sizes[0] != type_.get_shape()[0]:
            return None
        return [Loop(op.sizes[0])]

    @property
    def ends_at_sizes(self) -> bool:
        """Whether rows of the result end at a size, too; only the outermost loop can."""
        rows = self._running_rows
        return not rows or (self.loops is not None and rows == [0])

    @property
    def _running_rows(self) -> list[int]:
        return [dim for dim in self.running if dim < self.op.parallel_rank]

    @property
    def inplace(self) -> list[tuple[int, int]]:
        """
        The initial elements may share memory with the result.

        An input may be the same tensor if it is read just where its element is then written.
        """
        op = self.op
        if op.initial is None:
            return []
        written = _written_places(op)
        same = [
            number
            for number, (value, map_) in enumerate(zip(op.inputs, op.input_maps, strict=True))
            if value is op.initial and written == [linear(one, op.sizes) for one in map_.results]
        ]
        return [(number, 0) for number in (*same, len(op.inputs))]

    def write(self, body: Body) -> None:
        op, writer, sources, (result,) = self.op, body.writer, [*body.inputs], body.outputs
        initial = sources.pop() if op.initial is not None else None
        mine = body.parts[0] if self.cut or self._running_rows else None
        copied = nullcontext() if initial is None else writer.when(writer.apart(initial, result))
        with copied:  # In one memory, the result has its initial elements already.
            _start(writer, op, initial, result, mine)
        if 0 not in op.sizes:
            nest = [NestLoop(*pair) for pair in zip(self.groups, body.parts, strict=True)]
            _combine(writer, op, nest, sources, result)


def _written_places(op: tile.ScatterOp) -> list[Linear] | None:
    """The indices of the element that an iteration writes; None if data decide them."""
    assert op.body.block.last_op is not None
    *indices, _ = op.body.block.last_op.operands
    places = [_place(index) for index in indices]
    known = [linear(one, op.sizes) for one in places if one is not None]
    return known if len(known) == len(places) else None


def _place(index: SSAValue) -> AffineExpr | None:
    """An index of a body as an expression: a loop's, or that plus a constant."""
    match index.owner:
        case tile.IndexOp() as own:
            return AffineExpr.dimension(own.dim.value.data)
        case arith.AddiOp(lhs=loop, rhs=shift) if isinstance(shift.owner, arith.ConstantOp):
            place, number = _place(loop), shift.owner.value
            assert isinstance(number, IntegerAttr), "an index is an integer"
            return None if place is None else place + number.value.data
    return None


def _start(
    writer: Writer,
    op: tile.ScatterOp,
    initial: SSAValue | None,
    target: SSAValue,
    part: Span | None,
) -> None:
    shape = physical_shape(tensor(op.output))
    kind = tensor(op.output).element_type
    nothing = None if initial is not None else writer.number(0, kind)
    slices = part or Span(0, 1, Index())
    rows, inside = (1, prod(shape)) if part is None else (shape[0], prod(shape[1:]))
    lanes = fitting_lanes(inside, writer.target.machine.vector_bytes, lane_bytes(kind))
    point = IterationPoint(writer, (rows, inside))
    row, columns = Group((0,), rows), Group((1,), inside)

    def move(width: int, carried: list[SSAValue]) -> list[SSAValue]:
        index, lanes = point.indices[0].scaled(inside) + point.indices[1], _lanes(width)
        value = in_lanes(writer, nothing, lanes) if nothing is not None else None
        if initial is not None:
            value = writer.get(initial, index, lanes)
        assert value is not None
        writer.put(value, target, index)
        return carried

    widths = (lanes, 1) if lanes else (1,)
    write_nest(point, [NestLoop(row, slices), NestLoop(columns, Span(0, inside), widths)], move)


def _lanes(width: int) -> int:
    """The lanes of a step of this width; 0 for scalars."""
    return width if width > 1 else 0


def _row_lanes(op: tile.ScatterOp, target: Target) -> int:
    """
    The number of lanes along the last dimension; 0 if it is not vectorized.

    Only if whole rows are updated, so that no two lanes of a vector update the same element.
    """
    # y[i[r], c] += x[r, c] has vectors along c. In y[i[r, c], c], lanes have rows of their own.
    last, result = len(op.sizes) - 1, tensor(op.output)
    shape, block = result.get_shape(), op.body.block
    assert block.last_op is not None
    *indices, _ = block.last_op.operands
    counter = indices[-1].owner
    if not (isinstance(counter, tile.IndexOp) and counter.dim.value.data == last):
        return 0
    form = offset(result, AffineMap.identity(len(shape)), shape)
    strides = [
        offset(tensor(value), map_, op.sizes).stride(last)
        for value, map_ in zip(op.inputs, op.input_maps, strict=True)
    ]
    if form.stride(len(shape) - 1) != 1 or not set(strides) <= {0, 1}:
        return 0
    moving = [stride != 0 for stride in strides]
    arguments = {one for one, moves in zip(block.args, moving, strict=True) if moves}
    if counter.result.uses.get_length() != 1 or _reads(indices, arguments):
        return 0
    kind = result.element_type
    widest = widest_lane_of_rows([kind], block, last, moving)
    combined = widest_lane([kind], *([] if op.combine is None else [op.combine.block]))
    most = max(widest, combined) if widest and combined else 0
    return fitting_lanes(op.sizes[last], target.machine.vector_bytes, most)


def _reads(values: Sequence[SSAValue], arguments: Container[SSAValue]) -> bool:
    """Whether values of a body depend on some of its arguments."""
    return any(
        value in arguments
        if isinstance(value, BlockArgument)
        else _reads(value.owner.operands, arguments)
        for value in values
        if isinstance(value, BlockArgument | OpResult)
    )


def _combine(
    writer: Writer,
    op: tile.ScatterOp,
    nest: list[NestLoop],
    sources: Sequence[SSAValue],
    target: SSAValue,
) -> None:
    point = IterationPoint(writer, op.sizes)
    values = accesses(sources, op.inputs, op.input_maps, op.sizes)
    kind, last = tensor(op.output).element_type, len(op.sizes) - 1
    sum_ = sum_of(kind)

    def combined(old: SSAValue, value: SSAValue) -> SSAValue:
        if op.combine is None:
            return writer.add(sum_(old, value))
        return inline(point, op.combine.block, [old, value])[0]

    def add(width: int, carried: list[SSAValue]) -> list[SSAValue]:
        lanes = _lanes(width)
        loaded = [read(point, access, last, lanes) for access in values]
        *indices, value = inline(point, op.body.block, loaded)
        index = element_index(writer, tensor(op.output), indices)
        old = writer.get(target, index, lanes)
        writer.put(combined(old, in_lanes(writer, value, lanes)), target, index)
        return carried

    if lanes := _row_lanes(op, writer.target):
        nest[-1] = replace(nest[-1], widths=(lanes, 1))
    write_nest(point, nest, add)
