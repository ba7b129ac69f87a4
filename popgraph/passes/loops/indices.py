"""Index arithmetic of written loops: read as linear forms, and written where it is cheapest."""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.dialects.builtin import IndexType, IntegerAttr
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
        self._constants = {
            op.value.value.data: op.result
            for op in kernel.ops
            if isinstance(op, arith.ConstantOp) and isinstance(op.result.type, IndexType)
            if isinstance(op.value, IntegerAttr)
        }
        self._first = set[int]()
        """The constants that are at the top of the kernel."""

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
                part = before(place, arith.MuliOp, value, self.constant(factor))
            total = part if total is None else before(place, arith.AddiOp, total, part)
        if total is None:
            return self.constant(index.constant)
        if not index.constant:
            return total
        assert place is not None
        return before(place, arith.AddiOp, total, self.constant(index.constant))

    def constant(self, number: int) -> SSAValue:
        """
        At the top of the kernel.

        One that is there already moves up: kernels have constants before their first use only.
        """
        first = self._kernel.first_op
        assert first is not None
        found = self._constants.get(number)
        if found is None:
            op = arith.ConstantOp.from_int_and_width(number, IndexType())
            found = self._constants[number] = op.result
            self._kernel.insert_op_before(op, first)
        elif number not in self._first and found.op is not first:
            found.op.detach()
            self._kernel.insert_op_before(found.op, first)
        self._first.add(number)
        return found


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
