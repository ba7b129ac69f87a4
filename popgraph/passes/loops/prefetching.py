"""Prefetches of one kernel, as the recipes on its loops request them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from xdsl.dialects import arith, func, memref, scf, vector
from xdsl.dialects.builtin import IndexType, MemRefType, VectorType
from xdsl.ir import Block, Operation, SSAValue

from popgraph.dialects.element_types import element_bytes
from popgraph.dialects.tile import PrefetchAheadAttr, PrefetchNextAttr, PrefetchOp
from popgraph.dialects.tile.loops.recipes import PREFETCH, argument_of
from popgraph.dialects.tile.loops.soundness import constant_of
from popgraph.passes.structured.to_loops.emit.create import create_same_type
from popgraph.passes.structured.to_loops.emit.index import Index
from popgraph.support.tuning import Target

Load = memref.LoadOp | vector.LoadOp
Store = memref.StoreOp | vector.StoreOp


def insert_prefetches(kernel: Block, target: Target) -> None:
    """Follows the recipes of a kernel, which are gone then."""
    marked = [op for op in loops_in(kernel) if PREFETCH in op.attributes]
    if not marked:
        return
    indices = Indices(kernel)
    for loop in marked:
        recipe = loop.attributes.pop(PREFETCH)
        assert isinstance(recipe, PrefetchAheadAttr | PrefetchNextAttr)
        memory = kernel.args[argument_of(recipe)]
        assert isinstance(memory.type, MemRefType)
        line = target.machine.line_elements(element_bytes(memory.type))
        inserter = Inserter(kernel, memory, line, indices)
        if isinstance(recipe, PrefetchNextAttr):
            inserter.next_section(loop, recipe)
        else:
            inserter.ahead(loop, recipe.by.data)


def loops_in(block: Block) -> list[scf.ForOp]:
    """All loops of a block, those inside of others, too."""
    parents = [inner.parent_op() for inner in blocks_in(block)]
    return [op for op in parents if isinstance(op, scf.ForOp)]


def blocks_in(block: Block) -> list[Block]:
    """A block and all blocks inside; `walk` resumes a generator per enclosing loop for each op."""
    found = [block]
    for one in found:
        op = one.first_op
        while op is not None:
            if op.regions:
                found += [inner for region in op.regions for inner in region.blocks]
            op = op.next_op
    return found


@dataclass(frozen=True)
class Inserter:
    """Inserts prefetches of one memory of a kernel, of which `line` elements are a cache line."""

    kernel: Block
    memory: SSAValue
    line: int
    indices: Indices

    def ahead(self, loop: scf.ForOp, by: int) -> None:
        """Requests every line that the loop accesses, `by` elements ahead."""
        for block in blocks_in(loop.body.block):
            self._request_lines(self._loads(block), by)
            for op in [op for op in block.ops if isinstance(op, Store)]:
                if op.operands[1] is self.memory:
                    assert op.next_op is not None, "a block ends with a terminator"
                    index = self.indices.of(op.operands[2]) + by
                    self._request(index, op.next_op, written=True)

    def _request_lines(self, loads: Sequence[Load], by: int) -> None:
        """Vectors that are neighbours may share a line, which is requested once."""
        indices = [self.indices.of(op.operands[1]) for op in loads]
        requested = dict[frozenset[tuple[SSAValue, int]], int]()
        for index, op in sorted(zip(indices, loads, strict=True), key=lambda one: one[0].constant):
            key, first = frozenset(index.terms.items()), index.constant
            at, end = max(first, requested.get(key, first)), first + _width(op)
            for line in range(at, end, self.line):
                self._request(Index(line + by, index.terms), loads[0])
                requested[key] = line + self.line

    def next_section(self, loop: scf.ForOp, recipe: PrefetchNextAttr) -> None:
        """Requests the share that one step of the innermost loop has of the next section."""
        loads = self._loads(loop.body.block)
        if not loads:
            return
        around = list(_around(loop))
        inner, outer = around[: recipe["loops"]], around[recipe["loops"] :]
        here = self.indices.of(loads[0].operands[1])
        index = self._in_next(inner, here, recipe) + recipe["first"]
        for op, skipped in zip(outer, recipe.again, strict=False):
            if skipped:
                index += Index.of(_counter(op), skipped)
        if recipe["chunk"]:
            index += Index.of(self._chunk_digit(recipe, loads[0]), recipe["chunk"])
        for line in range(recipe["lines"]):
            self._request(index + line * self.line, loads[0])

    def _in_next(self, inner: Sequence[Operation], here: Index, recipe: PrefetchNextAttr) -> Index:
        """As far into the next section, in shares, as `here` is into this one, in steps."""

        def in_shares(elements: int) -> int:
            return elements // recipe["lanes"] * recipe["share"]

        inside = {_counter(op) for op in inner}
        scaled = {
            value: in_shares(factor) if value in inside else factor
            for value, factor in here.terms.items()
        }
        index, outermost = Index(here.constant, scaled), inner[-1]
        assert isinstance(outermost, scf.ForOp)
        if constant_of(outermost.lb) is not None:
            return index + recipe["elements"]
        pitch = here.terms.get(_counter(outermost), 0)  # The section is what this loop runs.
        first, end = self.indices.of(outermost.lb), self.indices.of(outermost.ub)
        return index + end.scaled(pitch) + first.scaled(-in_shares(pitch))

    def _chunk_digit(self, recipe: PrefetchNextAttr, at: Operation) -> SSAValue:
        """The number of a chunk, or the digit of it that counts chunks of rows."""
        place = ancestor(at, self.kernel)
        number: SSAValue = self.kernel.args[0]
        if recipe["divisor"] > 1:
            divisor = self.indices.constant(recipe["divisor"], at)
            number = before(place, arith.DivSIOp, number, divisor)
        if recipe["modulo"]:
            number = before(
                place, arith.RemSIOp, number, self.indices.constant(recipe["modulo"], at)
            )
        return number

    def _loads(self, block: Block) -> list[Load]:
        """The loads of the memory in a block."""
        found = [op for op in block.ops if isinstance(op, Load)]
        return [op for op in found if op.operands[0] is self.memory]

    def _request(self, index: Index, before: Operation, *, written: bool = False) -> None:
        op = PrefetchOp(self.memory, self.indices.value(index, before), written=written)
        assert before.parent is not None
        before.parent.insert_op_before(op, before)


def _width(op: Load) -> int:
    """The number of elements that are loaded."""
    type_ = op.results[0].type
    return int(type_.get_shape()[0]) if isinstance(type_, VectorType) else 1


def _around(loop: scf.ForOp) -> Iterator[Operation]:
    """A loop and the operations around it, innermost first, up to the function."""
    op: Operation | None = loop
    while op is not None and not isinstance(op, func.FuncOp):
        yield op
        op = op.parent_op()


def _counter(loop: Operation) -> SSAValue:
    return loop.regions[0].blocks[0].args[0]


# Index arithmetic

Arithmetic = arith.AddiOp | arith.MuliOp | arith.DivSIOp | arith.RemSIOp


def block_of(value: SSAValue) -> Block:
    """The block that a value is defined in."""
    found = value.owner if isinstance(value.owner, Block) else value.owner.parent
    assert found is not None
    return found


class Indices:
    """The indices of one kernel."""

    def __init__(self, kernel: Block) -> None:
        self._kernel = kernel
        self._constants = dict[int, arith.ConstantOp]()
        for op in kernel.ops:
            if type(op) is arith.ConstantOp and isinstance(op.results[0].type, IndexType):
                number = constant_of(op.results[0])
                assert number is not None
                self._constants[number] = op

    def of(self, value: SSAValue) -> Index:
        """A value as a sum of multiples of loop counters and of values that are no such sums."""
        number = constant_of(value)
        if number is not None:
            return Index(number)
        op = value.owner
        if isinstance(op, arith.AddiOp):
            return self.of(op.lhs) + self.of(op.rhs)
        if isinstance(op, arith.MuliOp):
            factor = constant_of(op.rhs)
            if factor is not None:
                return self.of(op.lhs).scaled(factor)
        return Index.of(value)

    def value(self, index: Index, at: Operation) -> SSAValue:
        """
        An index before an operation; what belongs to a loop around is computed in that loop.

        Sums are of outer counters first, as those of loads are: what is known is used again.
        """
        total: SSAValue | None = None
        place = self._kernel.first_op
        for value in sorted(index.terms, key=lambda value: _depth(block_of(value))):
            place, factor = ancestor(at, block_of(value)), index.terms[value]
            part = value
            if factor != 1:
                part = before(place, arith.MuliOp, value, self.constant(factor, at))
            total = part if total is None else before(place, arith.AddiOp, total, part)
        if total is None:
            return self.constant(index.constant, at)
        if not index.constant:
            return total
        assert place is not None
        return before(place, arith.AddiOp, total, self.constant(index.constant, at))

    def constant(self, number: int, at: Operation) -> SSAValue:
        """
        At the top of the kernel.

        Kernels have constants before their first use: one that comes after `at` moves up.
        """
        op, first = self._constants.get(number), self._kernel.first_op
        assert first is not None
        if op is None:
            op = self._constants[number] = arith.ConstantOp.from_int_and_width(number, IndexType())
            self._kernel.insert_op_before(op, first)
        elif not op.is_before_in_block(ancestor(at, self._kernel)):
            op.detach()
            self._kernel.insert_op_before(op, first)
        return op.result


def _depth(block: Block) -> int:
    """How many operations are around a block."""
    count, op = 0, block.parent_op()
    while op is not None:
        count, op = count + 1, op.parent_op()
    return count


def ancestor(op: Operation, block: Block) -> Operation:
    """The operation of a block that another one is in."""
    while op.parent is not block:
        parent = op.parent_op()
        assert parent is not None, "a value is used where it is not known"
        op = parent
    return op


def before(place: Operation, kind: type[Arithmetic], lhs: SSAValue, rhs: SSAValue) -> SSAValue:
    """An operation before another one; one of the block that computes the same is used again."""
    block = place.parent
    assert block is not None
    for use in lhs.uses:
        op = use.operation
        same = type(op) is kind and op.operands[0] is lhs and op.operands[1] is rhs
        if same and op.parent is block and op.is_before_in_block(place):
            return SSAValue.get(op, type=IndexType)
    made = create_same_type(kind, lhs, rhs)
    block.insert_op_before(made, place)
    return made.results[0]
