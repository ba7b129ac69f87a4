"""Interchange of marked loops in one kernel: they move into the loops that they hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from xdsl.dialects import memref, scf, vector
from xdsl.dialects.builtin import IndexType
from xdsl.ir import Block, Operation, Region, SSAValue

from popgraph.dialects.tile.loops.recipes import INTERCHANGE
from popgraph.passes.loops.editor import copy_of
from popgraph.passes.loops.indices import loops_in
from popgraph.passes.loops.marked import is_pure
from popgraph.passes.structured.to_loops.emit.create import create_unchecked, fill, operands_of

Load = memref.LoadOp | vector.LoadOp
Store = memref.StoreOp | vector.StoreOp


def interchange(kernel: Block) -> None:
    """Moves the marked loops of a kernel; a nest that does not fit only loses its marks."""
    for loop in loops_in(kernel):
        if INTERCHANGE in loop.attributes:
            nest = MarkedNest.of(loop)
            for one in nest.loops:
                del one.attributes[INTERCHANGE]
            if nest.fits():
                _replace(nest)


def _replace(nest: MarkedNest) -> None:
    outermost = nest.loops[0]
    block = outermost.parent
    assert block is not None
    for op in Distribution(nest).of(nest.body, {}):
        block.insert_op_before(op, outermost)
    outermost.detach()
    outermost.erase()


@dataclass
class MarkedNest:
    """
    Marked loops, each in the one before, and what the values in them depend on.

    `depths` has, for a value in the nest, how many of its loops are needed to compute it: 0 for
    what is the same in all iterations. `segments` numbers the stretches between the loops of the
    body, in their order; an operation with side effects belongs to one.
    """

    loops: Sequence[scf.ForOp]
    depths: dict[SSAValue, int] = field(default_factory=dict)
    segments: dict[SSAValue, int] = field(default_factory=dict)
    stored: set[SSAValue] = field(default_factory=set)
    """The memory that the nest changes."""

    @staticmethod
    def of(outermost: scf.ForOp) -> MarkedNest:
        loops = [outermost]
        while inner := [op for op in loops[-1].body.block.ops if INTERCHANGE in op.attributes]:
            assert len(inner) == 1 and isinstance(inner[0], scf.ForOp), "a nest is one loop deep"
            loops.append(inner[0])
        nest = MarkedNest(loops)
        nest.stored.update(operands_of(op)[1] for op in outermost.walk() if isinstance(op, Store))
        for depth, loop in enumerate(loops, 1):
            nest.depths[loop.body.block.args[0]] = depth
        return nest

    @property
    def body(self) -> Block:
        return self.loops[-1].body.block

    def fits(self) -> bool:
        """
        Whether every value that one segment computes and another one needs can be computed again.

        Loops in the body have the same iterations for the whole nest, and carry no values.
        """
        outer = [op for one in self.loops[:-1] for op in one.body.block.ops]
        around = [op for op in outer if op not in self.loops and not isinstance(op, scf.YieldOp)]
        return (
            all(not loop.iter_args for loop in self.loops)
            and all(map(self.is_recomputed, around))
            and all(self._visit(op, 0) for op in around)
            and self._fits(self.body, 0) is not None
        )

    def is_recomputed(self, op: Operation) -> bool:
        """Whether an operation may run again: it is pure, or loads what the nest does not store."""
        return is_pure(op) or (isinstance(op, Load) and operands_of(op)[0] not in self.stored)

    def _fits(self, block: Block, segment: int) -> int | None:
        """The segment after a block that begins in this one; None if something does not fit."""
        for op in block.ops:
            if isinstance(op, scf.ForOp):
                if op.iter_args or any(self.depths.get(one, 0) for one in operands_of(op)):
                    return None
                self.depths[op.body.block.args[0]] = 0
                inside = self._fits(op.body.block, segment + 1)
                if inside is None:
                    return None
                segment = inside + 1
            elif not isinstance(op, scf.YieldOp) and not self._visit(op, segment):
                return None
        return segment

    def _visit(self, op: Operation, segment: int) -> bool:
        if op.regions or not (self.is_recomputed(op) or isinstance(op, Load | Store)):
            return False
        operands = operands_of(op)
        needed = {self.segments[one] for one in operands if one in self.segments}
        if not self.is_recomputed(op):
            needed.add(segment)
        depth = max((self.depths.get(one, 0) for one in operands), default=0)
        if len(needed) > 1:
            return False
        self.depths.update(dict.fromkeys(op.results, depth))
        for number in needed:
            self.segments.update(dict.fromkeys(op.results, number))
        return True


@dataclass
class Distribution:
    """The loops of a body around copies of the nest, one for each segment."""

    nest: MarkedNest

    def of(self, block: Block, outer: dict[SSAValue, SSAValue]) -> Iterator[Operation]:
        """The operations that replace a block; `outer` are the new values around the nest."""
        segment: list[Operation] = []
        for op in list(block.ops)[:-1]:  # All but scf.yield.
            if isinstance(op, scf.ForOp):
                yield from self._segment(segment, outer)
                segment = []
                yield from self._loop(op, outer)
            elif not self.nest.is_recomputed(op):
                segment.append(op)
            elif is_pure(op) and not self.nest.depths[op.results[0]]:
                yield from self._common(op, outer)
        yield from self._segment(segment, outer)

    def _common(self, op: Operation, outer: dict[SSAValue, SSAValue]) -> Iterator[Operation]:
        """What all iterations of the nest have in common, where its loops were."""
        copy = NestCopy(self.nest, outer)
        copy.add(op, 0)
        outer.update(zip(op.results, map(copy.value, op.results), strict=True))
        yield from copy.before

    def _loop(self, loop: scf.ForOp, outer: dict[SSAValue, SSAValue]) -> Iterator[Operation]:
        """A loop of the body, which is around the nest now."""
        copy = NestCopy(self.nest, outer)
        bounds = list(map(copy.value, operands_of(loop)))
        yield from copy.before
        block = Block(arg_types=[IndexType()])
        inner = {**outer, loop.body.block.args[0]: block.args[0]}
        fill(block, [*self.of(loop.body.block, inner), create_unchecked(scf.YieldOp)])
        made = create_unchecked(scf.ForOp, *bounds, regions=(Region(block),))
        made.attributes.update(loop.attributes)
        yield made

    def _segment(
        self, segment: Sequence[Operation], outer: dict[SSAValue, SSAValue]
    ) -> Iterator[Operation]:
        """A copy of the nest around some operations."""
        if segment:
            copy = NestCopy(self.nest, outer)
            for op in segment:
                copy.add(op, len(self.nest.loops))
            yield from copy.close()


class NestCopy:
    """A copy of a nest: what its operations need is computed again, as far out as it can be."""

    def __init__(self, nest: MarkedNest, outer: dict[SSAValue, SSAValue]) -> None:
        self._nest, self._outer = nest, outer
        self._blocks = [Block(arg_types=[IndexType()]) for _ in nest.loops]
        self._operations: list[list[Operation]] = [[] for _ in range(len(nest.loops) + 1)]
        self._values = dict(outer)
        for loop, block in zip(nest.loops, self._blocks, strict=True):
            self._values[loop.body.block.args[0]] = block.args[0]

    def add(self, op: Operation, depth: int) -> None:
        """A copy of an operation in so many loops of the nest."""
        made = copy_of(op, list(map(self.value, operands_of(op))))
        self._operations[depth].append(made)
        self._values.update(zip(op.results, made.results, strict=True))

    @property
    def before(self) -> list[Operation]:
        """What is the same in all iterations."""
        return self._operations[0]

    def close(self) -> list[Operation]:
        """What is before the nest, and the nest."""
        made: list[Operation] = []
        for loop, block, operations in reversed(
            list(zip(self._nest.loops, self._blocks, self._operations[1:], strict=True))
        ):
            fill(block, [*operations, *made, create_unchecked(scf.YieldOp)])
            copy = create_unchecked(scf.ForOp, *operands_of(loop), regions=(Region(block),))
            copy.attributes.update(loop.attributes)
            made = [copy]
        return [*self.before, *made]

    def value(self, old: SSAValue) -> SSAValue:
        found = self._values.get(old)
        if found is None:
            depth = self._nest.depths.get(old)
            if depth is None:
                return old
            op = old.owner
            assert isinstance(op, Operation)
            self.add(op, depth)
            found = self._values[old]
        if found is not old and self._nest.depths.get(old) == 0:
            self._outer[old] = found
        return found
