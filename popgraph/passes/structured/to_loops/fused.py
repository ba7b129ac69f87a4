"""Loops of `tile.fused`: its operations run together, for a few indices of shared loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.rewriter import Rewriter

from popgraph.dialects import tile
from popgraph.dialects.element_types import element_bytes
from popgraph.dialects.program.attributes import IntsAttr
from popgraph.dialects.tile.affine import Linear, offset, reads_whole
from popgraph.dialects.tile.attributes import ScheduleAttr, physical_shape
from popgraph.dialects.tile.structured.fused import LineBuffer, keeps_leading, readings
from popgraph.dialects.tile.structured.ops import indexed_dims
from popgraph.passes.structured.analysis.loops import (
    Group,
    group_loops,
    part_stride,
    tensor,
)
from popgraph.passes.structured.analysis.parallel_loops import Loop, MemoryAccess, loops_in_steps
from popgraph.passes.structured.to_loops.contraction.contract import ContractLoops
from popgraph.passes.structured.to_loops.contraction.line_buffer import LineBufferLoops, Rows
from popgraph.passes.structured.to_loops.elementwise.maps import MapLoops
from popgraph.passes.structured.to_loops.emit.access import (
    Access,
    IterationPoint,
    Register,
    Source,
    quotient_and_remainder,
)
from popgraph.passes.structured.to_loops.emit.emitter import Body, Emitter
from popgraph.passes.structured.to_loops.emit.index import Index
from popgraph.passes.structured.to_loops.emit.vectors import NestLoop, write_nest
from popgraph.passes.structured.to_loops.emit.writer import Writer
from popgraph.passes.structured.to_loops.emit.zero_padding import clear_box, halo_boxes
from popgraph.passes.structured.to_loops.reduction.reduce import ReduceLoops
from popgraph.support.shapes import Shape, prod
from popgraph.support.tuning import Target


class ContractPart:
    """
    Writes the loops of a contraction for a window of its domain.

    A window is a contraction of its own, of a smaller domain, whose operands begin later in memory.
    """

    def __init__(self, op: tile.ReduceOp, schedule: ScheduleAttr, target: Target) -> None:
        self.values = [value for value, _ in op.mapped]
        self.forms = [offset(tensor(value), map_, op.sizes) for value, map_ in op.mapped]
        self._op, self._schedule, self._target = op, schedule, target

    @property
    def _whole(self) -> ContractLoops:
        """The loops of the whole contraction."""
        return ContractLoops(self._op, self._schedule, self._target)

    @property
    def ends_at_sizes(self) -> bool:
        """Whether every loop that ends at a size of the call does so, none at its bound."""
        return self._whole.ends_at_sizes

    def write_at(
        self,
        writer: Writer,
        starts: Sequence[tuple[SSAValue, Index]],
        window: Shape,
        types: Mapping[SSAValue, TensorType[Attribute]],
    ) -> None:
        """
        Writes the loops.

        `starts` has the memory of each of `values` and where the window begins in it. `types` has
        the types of values that are local, whose memory holds one window.
        """
        # A clone: the contraction itself keeps its domain, from which the next window is cut.
        part = self._op.clone()
        part.operands = Block(
            arg_types=[types.get(value, value.type) for value in part.operands]
        ).args
        part.properties["domain"] = IntsAttr.of(window)
        for mine, value in zip(part.outputs, self._op.outputs, strict=True):
            if value in types:
                Rewriter.replace_value_with_new_type(mine, types[value])
        loops = ContractLoops(part, self._schedule, self._target)
        # A window begins anywhere in its operands: the last one ends where they do.
        loops.reads_on &= self._whole.reads_on
        loops.write_at(writer, starts)
        part.erase()


MemberLoops = MapLoops | ReduceLoops | ContractPart


class FusedLoops(Emitter):
    """
    Writes the loops of one fused operation.

    Threads share the iterations, each with local values of its own.
    """

    def __init__(self, op: tile.FusedOp, target: Target) -> None:
        super().__init__(op, target)
        self.op, self.inputs, self.outputs = op, op.inputs, op.outputs
        self.rank, self.steps = len(op.sizes), op.steps.data
        self.buffer, self.splits = op.line_buffer, op.splits.value.data if op.splits else 1
        self.shared = dict(zip(op.members, op.shared, strict=True))
        self.in_panels = op.loops is not None
        """Whether the operation names its shared loops: iterations are panels of channels."""
        self.panels = op.sizes[0] // self.steps[0]
        step = self.steps[-1]
        # A size of the call leaves any number of indices after full steps: they run one by one.
        rest = 1 if self.rank - 1 in self.running else op.sizes[-1] % step
        self.widths = tuple(dict.fromkeys(width for width in (step, rest) if width))
        self.members = {
            width: [self._member(inner, width) for inner in op.members] for width in self.widths
        }
        self.groups = self._groups()
        self.work = sum(self._work(inner) for inner in op.members)

    def _member(self, inner: tile.Member, width: int) -> MemberLoops:
        """The loops of one operation in an iteration of `width` indices."""
        match inner:
            case tile.MapOp():
                return MapLoops(inner, self.target, self._window(inner, width))
            case tile.ReduceOp() if inner.schedule:
                return ContractPart(inner, inner.schedule, self.target)
            case tile.ReduceOp():
                return ReduceLoops(inner, self.target, self._window(inner, width))
            case tile.TransformTilesOp():
                raise AssertionError("WinogradLoops writes transforms of tiles")

    def _window(self, inner: tile.Member, width: int, rows: Rows | None = None) -> Shape:
        """The number of iterations of each loop of an operation in one shared iteration."""
        sizes = list(inner.sizes)
        for loop, step in zip(self.shared[inner], (*self.steps[:-1], width), strict=True):
            sizes[loop] = step
        if rows is not None:
            sizes[rows.loop] = rows.size
        return tuple(sizes)

    def _groups(self) -> list[Group]:
        """The shared loops; the last is not joined if iterations take several of its indices."""
        # A joined loop has one counter: bodies could not read the index of a dimension, and steps
        # would cross from one row into the next.
        if self.in_panels:
            return [Group((0,), self.panels * self.splits)]
        forms = [form for loops in self.members[self.steps[-1]] for form in loops.forms]
        bodies = [region.block for inner in self.op.members for region in inner.regions]
        separate = frozenset[int]().union(*map(indexed_dims, bodies))
        if self.steps[-1] > 1:
            separate |= {self.rank - 1}
        return group_loops(range(self.rank), self.op.sizes, forms, separate, self.running)

    def _work(self, inner: tile.Member) -> int:
        products = self.target.tuning.products_per_touch if self.in_panels else 1
        return prod(inner.sizes) // products

    @property
    def ends_at_sizes(self) -> bool:
        members = [one for members in self.members.values() for one in members]
        return super().ends_at_sizes and all(one.ends_at_sizes for one in members)

    @property
    def loops(self) -> tuple[Loop, ...]:
        """Threads share the iterations."""
        last = 1 if self.in_panels else self.steps[-1]
        steps = [*[1] * len(self.groups[1:]), last][: len(self.groups)]
        return loops_in_steps(self.groups, steps)

    @property
    def touched(self) -> list[MemoryAccess]:
        if not self.in_panels:
            return []
        op = self.op
        inside, around = (*op.body.block.args, *op.yielded), (*op.inputs, *op.outputs)
        outside = dict[SSAValue, SSAValue](zip(inside, around, strict=True))
        return [
            self._touched(outside[value], self._stride(inner, value, map_, 0), value in op.yielded)
            for inner in op.members
            if tile.is_contraction(inner)
            for value, map_ in inner.mapped
            if value in outside
        ]

    def _touched(self, value: SSAValue, stride: int, written: bool) -> MemoryAccess:
        """
        The access of all iterations to a value with this stride between panels.

        With splits of a line buffer, the outer iterations are splits: threads share rows.
        """
        size = element_bytes(value.type)
        whole = prod(physical_shape(tensor(value))) * size
        span = whole if self.splits > 1 else stride * self.panels * size
        along = frozenset({0} if stride or self.splits > 1 else ())
        return MemoryAccess(value, whole, along, (span,), written)

    @property
    def inplace(self) -> list[tuple[int, int]]:
        """Pairs of an input and a result, if an iteration reads its part of the input first."""
        op = self.op
        if self.in_panels:
            return []
        return [
            (number, output)
            for number, argument in enumerate(op.body.block.args)
            for output, value in enumerate(op.yielded)
            if argument.type == value.type
            and list(op.inputs).count(op.inputs[number]) == 1
            and self._is_read_first(argument, value)
        ]

    def _is_read_first(self, argument: SSAValue, result: SSAValue) -> bool:
        """Whether an iteration reads its own part of `argument`, before it writes `result`."""
        # The operation that writes the result may read the argument only at the same index; one
        # before may read all of the iteration's part, one after would find results.
        members = self.op.members
        last = next(at for at, inner in enumerate(members) if result in inner.results)
        for at, inner in enumerate(members):
            for value, map_ in readings(inner):
                if value is not argument:
                    continue
                if at > last or not keeps_leading(map_, inner.sizes, self.rank):
                    return False
                aligned = map_ is not None and reads_whole(tensor(value), map_, inner.sizes)
                if at == last and not (isinstance(inner, tile.MapOp) and aligned):
                    return False
        return True

    # Writing

    def write(self, body: Body) -> None:
        op, self.writer = self.op, body.writer
        memories = [*body.inputs, *body.outputs]
        self.memories = dict(zip([*op.body.block.args, *op.yielded], memories, strict=True))
        self.point = IterationPoint(self.writer, op.sizes)
        nest = [NestLoop(group, part) for group, part in zip(self.groups, body.parts, strict=True)]
        if self.in_panels:
            self._begin(self.steps[-1])
            for inner, loops in self._member_loops:
                self._allocate_locals(inner, loops)
        elif self.steps[-1] > 1:
            nest[-1] = NestLoop(self.groups[-1], body.parts[-1], self.widths)
        write_nest(self.point, nest, self._iteration)

    def _begin(self, width: int) -> None:
        """Begins iterations of `width` indices, in which no local value has storage yet."""
        self.width, self.storages = width, dict[SSAValue, Source]()

    @property
    def _member_loops(self) -> list[tuple[tile.Member, MemberLoops]]:
        """The operations, with their loops in iterations of the current width."""
        return list(zip(self.op.members, self.members[self.width], strict=True))

    # One iteration

    def _iteration(self, width: int, carried: list[SSAValue]) -> list[SSAValue]:
        self.indices = [self.point.indices[at] for at in range(self.rank)]
        if not self.in_panels:
            self._begin(max(width, 1))
        # Each iteration overwrites local memory: its loads stay inside the iteration.
        for storage in self.storages.values():
            if isinstance(storage, Access):
                self.writer.written_here(storage.memory)
        if self.buffer is not None:
            self._with_line_buffer(self.buffer)
            return carried
        for inner, loops in self._member_loops:
            self._allocate_locals(inner, loops)
            self._write(inner, loops)
        return carried

    def _allocate_locals(self, inner: tile.Member, loops: MemberLoops) -> None:
        """Allocates the local values that an operation computes, unless they have storage."""
        for value, form in zip(loops.values, loops.forms, strict=True):
            if value in inner.results and value not in self.memories | self.storages:
                self.storages[value] = self._storage(value, form, self._point(inner))

    def _storage(self, value: SSAValue, form: Linear, point: IterationPoint) -> Source:
        """A register for a single element, else local memory with a cleared halo."""
        # No iteration writes the halo: zeroes from the start of the kernel stay. A contraction
        # accesses operands in memory only.
        type_ = self.op.region(value, self.width)
        size = prod(physical_shape(type_))
        if size == 1 and not any(
            map(_contracts, [value.owner, *(use.operation for use in value.uses)])
        ):
            return Register()
        memory = self.writer.local(type_.element_type, size)
        for start, sizes in halo_boxes(type_):
            clear_box(self.writer, type_, memory, start, sizes)
        return Access(memory, form, self._start(form, point))

    def _start(self, form: Linear, point: IterationPoint) -> Index:
        """The start of the whole value, if local memory begins with this iteration's part."""
        # Members index the whole value: row i at i * pitch. Local memory holds row i at 0, so its
        # start is -i * pitch. Element 0 follows the halo, here as there.
        return point.index(form).scaled(-1) + form.at_zero

    def _point(self, inner: tile.Member) -> IterationPoint:
        """The iteration point of an operation: the shared loops lead its own."""
        point = IterationPoint(self.writer, inner.sizes)
        point.indices |= self.point.indices
        return point

    def _with_line_buffer(self, buffer: LineBuffer) -> None:
        """Writes one panel of channels, for one split of the rows, with a line buffer."""
        first, second = self._member_loops
        part, panel = quotient_and_remainder(self.writer, self.indices[0], self.panels)
        self.indices = [panel]
        ((between, storage),) = self.storages.items()
        reader = second[0]
        assert tile.is_contraction(reader) and reader.schedule and isinstance(storage, Access)
        LineBufferLoops(
            self.writer,
            buffer,
            self.splits,
            storage.memory,
            self.op.region(between, self.width),
            reader.schedule.lanes.data,
            lambda rows: self._write(*first, rows),
            lambda rows: self._write(*second, rows),
        ).write(part)

    def _write(self, inner: tile.Member, loops: MemberLoops, rows: Rows | None = None) -> None:
        """Writes the loops of one operation for this iteration, or for some rows of it."""
        if isinstance(loops, ContractPart):
            local = [value for value in loops.values if value in self.storages]
            types = {value: self.op.region(value, self.width) for value in local}
            assert tile.is_contraction(inner)
            starts = [self._memory_at(inner, value, map_, rows) for value, map_ in inner.mapped]
            loops.write_at(self.writer, starts, self._window(inner, self.width, rows), types)
            return
        sources = [
            self._source(value, form) for value, form in zip(loops.values, loops.forms, strict=True)
        ]
        if isinstance(loops, MapLoops):
            assert isinstance(inner, tile.MapOp)
            tables = [self.memories[table] for table in inner.tables]
            loops.write_at(self._point(inner), sources, tables)
        else:
            loops.write_at(self._point(inner), sources)

    def _source(self, value: SSAValue, form: Linear) -> Source:
        """The source of a value for a map or a reduction."""
        if value in self.memories:
            return Access(self.memories[value], form)
        storage = self.storages[value]
        if isinstance(storage, Register):
            return storage
        return Access(storage.memory, form, storage.start)

    def _memory_at(
        self, inner: tile.ReduceOp, value: SSAValue, map_: AffineMap, rows: Rows | None
    ) -> tuple[SSAValue, Index]:
        """The memory of a value for a contraction, and the start of this iteration in it."""
        storage = self.storages.get(value)
        if storage is not None:
            assert isinstance(storage, Access), "contractions access memory, not registers"
            return storage.memory, Index(rows.local if rows else 0)
        if self.in_panels:
            start = Index()
            for at, index in enumerate(self.indices):
                start = start + index.scaled(self._stride(inner, value, map_, at))
        else:
            # The offset may be any function of a loop with steps of 1: heads that share keys.
            form = offset(tensor(value), map_, inner.sizes)
            start = self._point(inner).index(form) + -form.at_zero
        if rows is not None:
            start = start + rows.first.scaled(even_stride(value, map_, inner.sizes, rows.loop))
        return self.memories[value], start

    def _stride(self, inner: tile.ReduceOp, value: SSAValue, map_: AffineMap, at: int) -> int:
        """The stride between panels along a shared loop in a value."""
        return even_stride(value, map_, inner.sizes, self.shared[inner][at], self.steps[at])


def _contracts(op: Operation | Block) -> bool:
    """Whether an operation is a scheduled contraction, whose operands are in memory."""
    return isinstance(op, tile.ReduceOp) and op.schedule is not None


def even_stride(value: SSAValue, map_: AffineMap, sizes: Shape, loop: int, step: int = 1) -> int:
    stride = part_stride(value, map_, sizes, loop, step)
    assert stride is not None, f"iterations along loop {loop} have no constant stride"
    return stride
