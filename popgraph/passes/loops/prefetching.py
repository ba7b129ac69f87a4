"""Insertion of prefetches into one kernel, by the recipes on its loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects import arith, memref, scf, vector
from xdsl.dialects.builtin import MemRefType, VectorType
from xdsl.ir import Block, Operation, SSAValue

from popgraph.dialects.element_types import element_bytes
from popgraph.dialects.tile import PrefetchAheadAttr, PrefetchNextAttr, PrefetchOp
from popgraph.dialects.tile.loops.recipes import PREFETCH, argument_of
from popgraph.dialects.tile.loops.soundness import constant_of
from popgraph.passes.loops.indices import (
    Indices,
    ancestor,
    before,
    blocks_in,
    enclosing,
    loops_in,
)
from popgraph.passes.structured.to_loops.emit.index import Index
from popgraph.support.tuning import Target

Load = memref.LoadOp | vector.LoadOp
Store = memref.StoreOp | vector.StoreOp


def insert_prefetches(kernel: Block, target: Target) -> None:
    """Inserts the prefetches of a kernel, and removes their recipes."""
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


@dataclass(frozen=True)
class Inserter:
    """Inserts prefetches of one memory of a kernel; a cache line has `line` elements."""

    kernel: Block
    memory: SSAValue
    line: int
    indices: Indices

    def ahead(self, loop: scf.ForOp, by: int) -> None:
        """Requests every line that the loop accesses, `by` elements ahead."""
        # Requests past the end of the memory are harmless: a prefetch never faults.
        for block in blocks_in(loop.body.block):
            self._request_lines(self._loads(block), by)
            for op in [op for op in block.ops if isinstance(op, Store)]:
                if op.operands[1] is self.memory:
                    assert op.next_op is not None, "a block ends with a terminator"
                    index = self.indices.of(op.operands[2]) + by
                    self._request(index, op.next_op, written=True)

    def _request_lines(self, loads: Sequence[Load], by: int) -> None:
        """Requests the lines of these loads, each line once."""
        # Two vectors of 32 bytes share a line of 64: the second one requests nothing.
        indices = [self.indices.of(op.operands[1]) for op in loads]
        requested = dict[frozenset[tuple[SSAValue, int]], int]()
        for index, op in sorted(zip(indices, loads, strict=True), key=lambda one: one[0].constant):
            key, first = frozenset(index.terms.items()), index.constant
            at, end = max(first, requested.get(key, first)), first + _width(op)
            for line in range(at, end, self.line):
                self._request(Index(line + by, index.terms), loads[0])
                requested[key] = line + self.line

    def next_section(self, loop: scf.ForOp, recipe: PrefetchNextAttr) -> None:
        """Requests the share of one step of the innermost loop in the next section."""
        loads = self._loads(loop.body.block)
        if not loads:
            return
        around = list(enclosing(loop))
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
        """The index in the next section, advanced by a share per step of this one."""

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
        # The loop runs a section of its own bounds, such as a last chunk that is shorter: the next
        # section begins where this one ends.
        pitch = here.terms.get(_counter(outermost), 0)
        first, end = self.indices.of(outermost.lb), self.indices.of(outermost.ub)
        return index + end.scaled(pitch) + first.scaled(-in_shares(pitch))

    def _chunk_digit(self, recipe: PrefetchNextAttr, at: Operation) -> SSAValue:
        """The number of the chunk, or its digit that counts chunks of rows."""
        anchor = ancestor(at, self.kernel)
        number: SSAValue = self.kernel.args[0]
        if recipe["divisor"] > 1:
            divisor = self.indices.constant(recipe["divisor"], at)
            number = before(anchor, arith.DivSIOp, number, divisor)
        if recipe["modulo"]:
            number = before(
                anchor, arith.RemSIOp, number, self.indices.constant(recipe["modulo"], at)
            )
        return number

    def _loads(self, block: Block) -> list[Load]:
        """The loads of this memory in a block."""
        found = [op for op in block.ops if isinstance(op, Load)]
        return [op for op in found if op.operands[0] is self.memory]

    def _request(self, index: Index, before: Operation, *, written: bool = False) -> None:
        op = PrefetchOp(self.memory, self.indices.value(index, before), written=written)
        assert before.parent is not None
        before.parent.insert_op_before(op, before)


def _width(op: Load) -> int:
    """The number of elements that a load reads."""
    type_ = op.results[0].type
    return int(type_.get_shape()[0]) if isinstance(type_, VectorType) else 1


def _counter(loop: Operation) -> SSAValue:
    return loop.regions[0].blocks[0].args[0]
