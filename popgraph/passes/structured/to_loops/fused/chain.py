"""Loops of a `tile.fused` of contractions that share the loop over channels."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Block, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.rewriter import Rewriter

from popgraph.dialects import tile
from popgraph.dialects.element_types import element_bytes
from popgraph.dialects.program.attributes import IntsAttr
from popgraph.dialects.tile.affine import offset
from popgraph.dialects.tile.attributes import physical_shape
from popgraph.passes.structured.analysis.local_images import narrowed
from popgraph.passes.structured.analysis.loops import (
    Group,
    part_stride,
    tensor,
)
from popgraph.passes.structured.analysis.parallel_loops import Loop, MemoryAccess
from popgraph.passes.structured.to_loops.contraction.contract import ContractLoops
from popgraph.passes.structured.to_loops.contraction.line_buffer import LineBufferLoops, Rows
from popgraph.passes.structured.to_loops.emit.access import IterationPoint, digits
from popgraph.passes.structured.to_loops.emit.emitter import Body, Emitter
from popgraph.passes.structured.to_loops.emit.index import Index
from popgraph.passes.structured.to_loops.emit.vectors import Run, run
from popgraph.passes.structured.to_loops.emit.zero_padding import (
    clear_box,
    halo_boxes,
)
from popgraph.support.shapes import Shape, prod
from popgraph.support.tuning import Target


class ChainLoops(Emitter):
    """
    Writes the loops of one fused operation.

    Threads share the iterations: each has its own copy of the tensors between the contractions.
    """

    def __init__(self, op: tile.FusedOp, target: Target) -> None:
        super().__init__(op, target)
        self.op, self.inputs, self.outputs = op, op.inputs, op.outputs
        self.step, self.geometry = op.steps.data[0], op.line_buffer
        self.panels = op.sizes[0] // self.step
        self.splits = op.splits.value.data if op.splits else 1
        self.chained = [one for one in op.members if isinstance(one, tile.ContractOp)]
        self.along = [loops[0] for loops in op.shared]
        self.groups = [Group((0,), self.panels * self.splits)]
        products = sum(prod(contraction.sizes) for contraction in self.chained)
        self.work = products // target.tuning.products_per_touch

    @property
    def loops(self) -> list[Loop]:
        return [Loop(self.panels * self.splits)]

    @property
    def touched(self) -> list[MemoryAccess]:
        op = self.op
        moved = []
        for contraction, along in zip(self.chained, self.along, strict=True):
            for value, map_ in contraction.mapped:
                if value in op.body.block.args or value in op.yielded:
                    stride = part_stride(value, map_, contraction.sizes, along, self.step)
                    moved.append(self._touched(value, stride))
        return moved

    def _touched(self, value: SSAValue, stride: int | None) -> MemoryAccess:
        """
        `value` is an argument of the body, or a result; panels of it are so far apart.

        Splits of a line buffer come before panels: threads share the rows then.
        """
        op, size = self.op, element_bytes(value.type)
        inside, around = (*op.body.block.args, *op.yielded), (*op.inputs, *op.outputs)
        outside = dict[SSAValue, SSAValue](zip(inside, around, strict=True))
        whole = prod(physical_shape(tensor(value))) * size
        span = None if stride is None else stride * self.panels * size
        return MemoryAccess(
            outside[value],
            whole,
            frozenset({0} if stride or self.splits > 1 else ()),
            (whole if self.splits > 1 else span,),
            written=value in op.yielded,
        )

    @property
    def ends_at_sizes(self) -> bool:
        """The loops that end at a size are those inside of contractions."""
        return all(
            one.schedule and ContractLoops(one, one.schedule, self.target).ends_at_sizes
            for one in self.chained
        )

    def write(self, body: Body) -> None:
        op, self.writer = self.op, body.writer
        memories = [*body.inputs, *body.outputs]
        self.memories = dict(zip([*op.body.block.args, *op.yielded], memories, strict=True))
        self.types: dict[SSAValue, TensorType[Attribute]] = {
            value: self._local_type(value, along)
            for contraction, along in zip(self.chained, self.along, strict=True)
            for value in contraction.outputs
            if value not in self.memories
        }
        self.local_memories = {
            value: self._local_memory(type_) for value, type_ in self.types.items()
        }
        (group,), (part,) = self.groups, body.parts
        point = IterationPoint(self.writer, (group.extent,))

        def iteration(_: int, carried: list[SSAValue]) -> list[SSAValue]:
            self._iteration(point.indices[0])
            return carried

        run(point, [Run(group, part)], iteration)

    def _local_type(self, value: SSAValue, along: int) -> TensorType[Attribute]:
        """The image of some channels; of the rows of one step, where there is a line buffer."""
        type_ = narrowed(tensor(value), along, self.step)
        if self.geometry is None:
            return type_
        return narrowed(type_, self.geometry.loops[0], self.geometry.buffer_rows, halo=False)

    def _local_memory(self, type_: TensorType[Attribute]) -> SSAValue:
        """Local memory for what is computed in between: its halo is cleared once, and stays so."""
        memory = self.writer.local(type_.element_type, prod(physical_shape(type_)))
        for start, sizes in halo_boxes(type_):
            clear_box(self.writer, type_, memory, start, sizes)
        return memory

    def _iteration(self, number: Index) -> None:
        for memory in self.local_memories.values():
            self.writer.written_here(memory)
        if self.geometry is None:
            self.panel = number
            for contraction in self.chained:
                self._contract(contraction)
            return
        part, self.panel = digits(self.writer, number, self.panels)
        first, second = self.chained
        (between,) = first.outputs
        assert second.schedule is not None
        LineBufferLoops(
            self.writer,
            self.geometry,
            self.splits,
            self.local_memories[between],
            self.types[between],
            second.schedule.lanes.data,
            lambda rows: self._contract(first, rows),
            lambda rows: self._contract(second, rows),
        ).write(part)

    def _contract(self, op: tile.ContractOp, rows: Rows | None = None) -> None:
        """The loops of one contraction for the channels of this iteration, or for some rows."""
        assert op.schedule is not None, "fused contractions have schedules"
        along = self.along[self.chained.index(op)]
        begin = [self._begin(value, map_, op.sizes, along, rows) for value, map_ in op.mapped]
        part = op.clone()
        part.operands = Block(arg_types=self._types(op.operands)).args
        window = list(op.sizes)
        window[along] = self.step
        if rows is not None:
            window[rows.loop] = rows.size
        part.properties["domain"] = IntsAttr.of(window)
        (type_,) = self._types(op.outputs)
        Rewriter.replace_value_with_new_type(part.outputs[0], type_)
        ContractLoops(part, op.schedule, self.target).write_at(self.writer, begin)
        part.erase()

    def _types(self, values: Sequence[SSAValue]) -> list[Attribute]:
        """The types of values as one iteration sees them."""
        return [self.types.get(value, tensor(value)) for value in values]

    def _begin(
        self, value: SSAValue, map_: AffineMap, sizes: Shape, along: int, rows: Rows | None
    ) -> tuple[SSAValue, Index]:
        """Which memory a value is in, and how far on the part of this iteration begins."""
        if value in self.local_memories:
            return self.local_memories[value], Index(rows.local if rows else 0)
        stride = part_stride(value, map_, sizes, along, self.step)
        assert stride is not None, "iterations are not evenly apart"
        start = self.panel.scaled(stride)
        if rows is not None:
            between = offset(tensor(value), map_, sizes).stride(rows.loop)
            assert between is not None, "rows are not evenly apart"
            start = start + rows.first.scaled(between)
        return self.memories[value], start
