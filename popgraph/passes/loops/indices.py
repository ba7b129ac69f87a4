"""Index arithmetic of kernels: read as linear forms, written in the loops of its counters."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects import arith, func, scf
from xdsl.dialects.builtin import IndexType
from xdsl.ir import Block, Operation, SSAValue

from popgraph.dialects.tile.loops.soundness import constant_of
from popgraph.passes.structured.to_loops.emit.create import create_same_type
from popgraph.passes.structured.to_loops.emit.index import Index

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
        self._forms = dict[SSAValue, Index]()
        for op in kernel.ops:
            if type(op) is arith.ConstantOp and isinstance(op.results[0].type, IndexType):
                number = constant_of(op.results[0])
                assert number is not None
                self._constants[number] = op

    def of(self, value: SSAValue) -> Index:
        """The linear form of a value, in loop counters and other values."""
        found = self._forms.get(value)
        if found is None:
            found = self._forms[value] = self._computed(value)
        return found

    def _computed(self, value: SSAValue) -> Index:
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
        Computes an index for use at an operation; terms of outer loops are added in these loops.
        """
        # Outer counters come first, as in the indices of loads (`Writer.value`): their sums are
        # found and shared.
        total: SSAValue | None = None
        anchor = self._kernel.first_op
        for value in sorted(index.terms, key=lambda value: _depth(block_of(value))):
            anchor, factor = ancestor(at, block_of(value)), index.terms[value]
            part = value
            if factor != 1:
                part = before(anchor, arith.MuliOp, value, self.constant(factor, at))
            total = part if total is None else before(anchor, arith.AddiOp, total, part)
        if total is None:
            return self.constant(index.constant, at)
        if not index.constant:
            return total
        assert anchor is not None
        return before(anchor, arith.AddiOp, total, self.constant(index.constant, at))

    def constant(self, number: int, at: Operation) -> SSAValue:
        """
        A constant at the top of the kernel.

        Constants are written before their first use: one that comes after `at` moves up.
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
    """The number of operations around a block."""
    count, op = 0, block.parent_op()
    while op is not None:
        count, op = count + 1, op.parent_op()
    return count


def ancestor(op: Operation, block: Block) -> Operation:
    """The operation of a block that contains `op`, or is `op`."""
    while op.parent is not block:
        parent = op.parent_op()
        assert parent is not None, "a value is used outside the block of its definition"
        op = parent
    return op


def before(anchor: Operation, kind: type[Arithmetic], lhs: SSAValue, rhs: SSAValue) -> SSAValue:
    """Inserts an operation before another one, unless the block has an equal one before it."""
    block = anchor.parent
    assert block is not None
    # Uses of an operand are few; a block has up to thousands of operations.
    for use in lhs.uses:
        op = use.operation
        same = type(op) is kind and op.operands[0] is lhs and op.operands[1] is rhs
        if same and op.parent is block and op.is_before_in_block(anchor):
            return SSAValue.get(op, type=IndexType)
    made = create_same_type(kind, lhs, rhs)
    block.insert_op_before(made, anchor)
    return made.results[0]


def enclosing(loop: Operation) -> Iterator[Operation]:
    """A loop and the operations around it, innermost first, inside the function."""
    op: Operation | None = loop
    while op is not None and not isinstance(op, func.FuncOp):
        yield op
        op = op.parent_op()


def loops_in(block: Block) -> list[scf.ForOp]:
    """All loops of a block, nested ones included."""
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
