"""Interchange of marked loops in one kernel: they move into the loops inside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from xdsl.dialects import memref, scf, vector
from xdsl.dialects.builtin import IndexType
from xdsl.ir import Block, Operation, Region, SSAValue

from popgraph.dialects.tile.loops.recipes import INTERCHANGE
from popgraph.dialects.unchecked import copy_of, create_unchecked, fill, operands_of
from popgraph.passes.loops.indices import loops_in
from popgraph.passes.loops.marked import is_pure

LOADS, STORES = {memref.LoadOp, vector.LoadOp}, {memref.StoreOp, vector.StoreOp}


def interchange(kernel: Block) -> None:
    """Interchanges the marked nests of a kernel; a nest that does not fit only loses its marks."""
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
    A nest of marked loops, and the dependences of the values in it.

    `depths` maps a value to the number of marked loops that it depends on, outermost first; 0 for a
    value that all iterations share. `segments` numbers the operations between the inner loops of
    the body, in order; an operation with side effects belongs to one segment.
    """

    loops: Sequence[scf.ForOp]
    depths: dict[SSAValue, int] = field(default_factory=dict)
    segments: dict[SSAValue, int] = field(default_factory=dict)
    stored: set[SSAValue] = field(default_factory=set)
    """The memory that the nest stores to."""

    @staticmethod
    def of(outermost: scf.ForOp) -> MarkedNest:
        loops = [outermost]
        while inner := [op for op in loops[-1].body.block.ops if INTERCHANGE in op.attributes]:
            assert len(inner) == 1 and isinstance(inner[0], scf.ForOp), "a nest is one loop deep"
            loops.append(inner[0])
        nest = MarkedNest(loops)
        nest.stored.update(operands_of(op)[1] for op in outermost.walk() if type(op) in STORES)
        for depth, loop in enumerate(loops, 1):
            nest.depths[loop.body.block.args[0]] = depth
        return nest

    @property
    def body(self) -> Block:
        return self.loops[-1].body.block

    def fits(self) -> bool:
        """
        Whether each value that a segment uses from another one can be recomputed.

        Inner loops must have the same iterations in the whole nest, and carry no values.
        """
        # A sum carried by an inner loop would be one value for all rows and lanes of the nest.
        outer = [op for one in self.loops[:-1] for op in one.body.block.ops]
        around = [op for op in outer if op not in self.loops and type(op) is not scf.YieldOp]
        return (
            all(not loop.results for loop in self.loops)
            and all(map(self.is_recomputed, around))
            and all(self._visit(op, 0) for op in around)
            and self._fits(self.body, 0) is not None
        )

    def is_recomputed(self, op: Operation) -> bool:
        """Whether an operation may run again: pure, or a load of memory without stores here."""
        return is_pure(op) or (type(op) in LOADS and operands_of(op)[0] not in self.stored)

    def _fits(self, block: Block, segment: int) -> int | None:
        """The last segment of a block that begins in `segment`; None if it does not fit."""
        for op in block.ops:
            if type(op) is scf.ForOp:
                # A triangle, `for i: for k < i`, has bounds that depend on the nest.
                if op.results or any(self.depths.get(one, 0) for one in operands_of(op)):
                    return None
                self.depths[op.body.block.args[0]] = 0
                inside = self._fits(op.body.block, segment + 1)
                if inside is None:
                    return None
                segment = inside + 1
            elif type(op) is not scf.YieldOp and not self._visit(op, segment):
                return None
        return segment

    def _visit(self, op: Operation, segment: int) -> bool:
        recomputed = self.is_recomputed(op)
        if op.regions or not (recomputed or type(op) in LOADS | STORES):
            return False
        operands = operands_of(op)
        needed = {self.segments[one] for one in operands if one in self.segments}
        if not recomputed:
            needed.add(segment)
        depth = max((self.depths.get(one, 0) for one in operands), default=0)
        # Memory that the nest stores to cannot be reloaded later: a value loaded before an inner
        # loop may not be used after it.
        if len(needed) > 1:
            return False
        self.depths.update(dict.fromkeys(op.results, depth))
        for number in needed:
            self.segments.update(dict.fromkeys(op.results, number))
        return True


@dataclass
class Distribution:
    """Distributes the nest: the inner loops go around copies of it, one for each segment."""

    nest: MarkedNest

    def of(self, block: Block, outer: dict[SSAValue, SSAValue]) -> Iterator[Operation]:
        """The operations that replace a block; `outer` maps old values to new ones outside."""
        segment: list[Operation] = []
        # Recomputed values are copied where a segment needs them; values that all iterations share
        # come once, before the copies. The last operation is `scf.yield`.
        for op in list(block.ops)[:-1]:
            if type(op) is scf.ForOp:
                yield from self._segment(segment, outer)
                segment = []
                yield from self._loop(op, outer)
            elif not self.nest.is_recomputed(op):
                segment.append(op)
            elif is_pure(op) and not self.nest.depths[op.results[0]]:
                yield from self._common(op, outer)
        yield from self._segment(segment, outer)

    def _common(self, op: Operation, outer: dict[SSAValue, SSAValue]) -> Iterator[Operation]:
        """An operation that all iterations share, outside the copies of the nest."""
        copy = NestCopy(self.nest, outer)
        copy.add(op, 0)
        outer.update(zip(op.results, map(copy.value, op.results), strict=True))
        yield from copy.before

    def _loop(self, loop: scf.ForOp, outer: dict[SSAValue, SSAValue]) -> Iterator[Operation]:
        """An inner loop, which is now around copies of the nest."""
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
        """A copy of the nest around the operations of a segment."""
        if segment:
            copy = NestCopy(self.nest, outer)
            for op in segment:
                copy.add(op, len(self.nest.loops))
            yield from copy.close()


class NestCopy:
    """A copy of a nest; operands are recomputed in it, in the outermost loop that allows it."""

    def __init__(self, nest: MarkedNest, outer: dict[SSAValue, SSAValue]) -> None:
        self._nest, self._outer = nest, outer
        self._blocks = [Block(arg_types=[IndexType()]) for _ in nest.loops]
        self._operations: list[list[Operation]] = [[] for _ in range(len(nest.loops) + 1)]
        self._values = dict(outer)
        for loop, block in zip(nest.loops, self._blocks, strict=True):
            self._values[loop.body.block.args[0]] = block.args[0]

    def add(self, op: Operation, depth: int) -> None:
        """Adds a copy of an operation, inside the first `depth` loops of the nest."""
        made = copy_of(op, list(map(self.value, operands_of(op))))
        self._operations[depth].append(made)
        self._values.update(zip(op.results, made.results, strict=True))

    @property
    def before(self) -> list[Operation]:
        """The operations before the nest, which all iterations share."""
        return self._operations[0]

    def close(self) -> list[Operation]:
        """Closes the nest; returns the operations before it, and the nest."""
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
        # Values at depth 0 are outside the nest: later copies reuse them.
        if found is not old and self._nest.depths.get(old) == 0:
            self._outer[old] = found
        return found
