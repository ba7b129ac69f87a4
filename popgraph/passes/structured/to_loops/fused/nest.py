"""Loops of a `tile.fused` whose operations share their leading loops."""

from __future__ import annotations

from xdsl.ir import SSAValue

from popgraph.dialects import tile
from popgraph.dialects.tile.affine import Linear, reads_whole
from popgraph.dialects.tile.structured.fused import keeps_leading, readings
from popgraph.dialects.tile.structured.ops import indexed_dims
from popgraph.passes.structured.analysis.loops import Group, group_loops, tensor
from popgraph.passes.structured.analysis.parallel_loops import Loop, loops_in_steps
from popgraph.passes.structured.to_loops.contraction.contract_part import ContractPart
from popgraph.passes.structured.to_loops.elementwise.maps import MapLoops
from popgraph.passes.structured.to_loops.emit.access import (
    Access,
    IterationPoint,
    Register,
    Source,
    volume,
)
from popgraph.passes.structured.to_loops.emit.emitter import Body, Emitter
from popgraph.passes.structured.to_loops.emit.index import Index
from popgraph.passes.structured.to_loops.emit.vectors import Run, run
from popgraph.passes.structured.to_loops.reduction.reduce import ReduceLoops
from popgraph.support.shapes import prod
from popgraph.support.tuning import Target

MemberLoops = MapLoops | ReduceLoops | ContractPart


class NestLoops(Emitter):
    """Writes the loops of one fused operation."""

    def __init__(self, op: tile.FusedOp, target: Target) -> None:
        super().__init__(op, target)
        self.op, self.inputs, self.outputs = op, op.inputs, op.outputs
        self.rank = len(op.sizes)
        self.step = op.steps.data[-1]
        rest = 1 if self.rank - 1 in self.running else op.sizes[-1] % self.step
        self.widths = tuple(dict.fromkeys(width for width in (self.step, rest) if width))
        self.members = {
            width: [self._member(inner, width, target) for inner in op.members]
            for width in self.widths
        }
        self.groups = self._groups()
        self.work = volume(self.groups) * sum(
            prod(inner.sizes[self.rank :]) for inner in op.members
        )

    def _member(self, inner: tile.Member, width: int, target: Target) -> MemberLoops:
        """The loops of one operation, as they run in an iteration of so many indices."""
        window = (*[1] * (self.rank - 1), width, *inner.sizes[self.rank :])
        match inner:
            case tile.MapOp():
                return MapLoops(inner, target, window)
            case tile.ContractOp() if inner.schedule:
                return ContractPart(inner, inner.schedule, target, window)
            case tile.ReduceOp() | tile.ContractOp():
                return ReduceLoops(inner, target, window)

    def _groups(self) -> list[Group]:
        """The shared loops; the last stays alone where iterations take several of its indices."""
        forms = [form for loops in self.members[self.step] for form in loops.forms]
        bodies = [region.block for inner in self.op.members for region in inner.regions]
        separate = frozenset[int]().union(*map(indexed_dims, bodies))
        if self.step > 1:
            separate |= {self.rank - 1}
        return group_loops(range(self.rank), self.op.sizes, forms, separate, self.running)

    @property
    def ends_at_sizes(self) -> bool:
        members = [one for members in self.members.values() for one in members]
        return super().ends_at_sizes and all(one.ends_at_sizes for one in members)

    @property
    def loops(self) -> tuple[Loop, ...]:
        """Threads share the iterations."""
        steps = [*[1] * len(self.groups[1:]), self.step][: len(self.groups)]
        return loops_in_steps(self.groups, steps)

    def write(self, body: Body) -> None:
        op, self.writer = self.op, body.writer
        memories = [*body.inputs, *body.outputs]
        self.memories = dict(zip([*op.body.block.args, *op.yielded], memories, strict=True))
        self.point = IterationPoint(self.writer, op.sizes)
        runs = [Run(group, part) for group, part in zip(self.groups, body.parts, strict=True)]
        if self.step > 1:
            runs[-1] = Run(self.groups[-1], body.parts[-1], self.widths)
        run(self.point, runs, self._iteration)

    @property
    def inplace(self) -> list[tuple[int, int]]:
        """Inputs whose elements are read for the last time where those of a result are written."""
        op = self.op
        return [
            (number, output)
            for number, argument in enumerate(op.body.block.args)
            for output, value in enumerate(op.yielded)
            if argument.type == value.type
            and list(op.inputs).count(op.inputs[number]) == 1
            and self._gives_way(argument, value)
        ]

    def _gives_way(self, argument: SSAValue, result: SSAValue) -> bool:
        """Whether an iteration reads its part of `argument` only before `result` is written."""
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

    # One iteration

    def _iteration(self, width: int, carried: list[SSAValue]) -> list[SSAValue]:
        made: dict[SSAValue, tuple[SSAValue, Index] | Register] = {}
        for inner, loops in zip(self.op.members, self.members[max(width, 1)], strict=True):
            point = IterationPoint(self.writer, inner.sizes)
            point.indices |= self.point.indices
            for value, form in zip(loops.values, loops.forms, strict=True):
                if value in inner.results and value not in self.memories:
                    made[value] = self._local(value, form, point, width)
            sources = [
                self._source(value, form, made)
                for value, form in zip(loops.values, loops.forms, strict=True)
            ]
            if isinstance(loops, MapLoops):
                assert isinstance(inner, tile.MapOp)
                loops.write_at(point, sources, [self.memories[table] for table in inner.tables])
            else:
                loops.write_at(point, sources)
        return carried

    def _local(
        self, value: SSAValue, form: Linear, point: IterationPoint, width: int
    ) -> tuple[SSAValue, Index] | Register:
        """Where an inner value lives during one iteration: in a register or in local memory."""
        type_ = tensor(value)
        size = width * prod(type_.get_shape()[self.rank :])
        if size == 1:
            return Register()
        return self.writer.local(type_.element_type, size), self._start(form, point)

    def _start(self, form: Linear, point: IterationPoint) -> Index:
        """Where the whole value would begin, so that this iteration's part begins local memory."""
        return point.index(form).scaled(-1)

    def _source(
        self,
        value: SSAValue,
        form: Linear,
        made: dict[SSAValue, tuple[SSAValue, Index] | Register],
    ) -> Source:
        if value in self.memories:
            return Access(self.memories[value], form)
        home = made[value]
        return home if isinstance(home, Register) else Access(home[0], form, home[1])
