"""
Addressing: indices with constant offsets from one base share a pointer in C.

An analysis of the printer, not a pass: it changes no IR. The level has no pointers, only memory and
indices into it. Memory that a pointer refers to would have an unknown size, so that bounds could
not be checked. Other backends need no way around GCC's analysis of addresses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from xdsl.dialects import arith, memref, scf, vector
from xdsl.dialects.builtin import IndexType
from xdsl.ir import Block, Operation, SSAValue, Use

from popgraph.dialects.tile.loops.handed import natural

_MEMORY: Mapping[type[Operation], int] = {
    memref.LoadOp: 0,
    memref.StoreOp: 1,
    vector.LoadOp: 0,
    vector.StoreOp: 1,
}
"""The position of the memory among the operands of each load and store."""

_SUMS = frozenset(
    (arith.AddiOp, arith.MuliOp, arith.DivSIOp, arith.RemSIOp, arith.MinSIOp, arith.MaxSIOp)
)
# Types are compared, as this runs for every operation of every kernel: `isinstance` calls the
# metaclass of another class, which takes four times as long.


def is_never_negative(op: Operation, known: set[SSAValue]) -> bool:
    """Whether the result is an index >= 0, given the values `known` to be >= 0."""
    return type(op) in _SUMS and known.issuperset(op.operands)


def constant_offset(index: SSAValue) -> tuple[SSAValue, int] | None:
    """The terms of an index `base + constant`, constant >= 0; None for other indices."""
    add = index.owner
    if type(add) is not arith.AddiOp or type(index.type) is not IndexType:
        return None
    base, constant = add.operands
    number = natural(constant)
    return None if number is None else (base, number)


def memory_at(use: Use) -> SSAValue | None:
    """The memory that is accessed at an index, if the use is the only index there."""
    op = use.operation
    place = _MEMORY.get(type(op))
    if place is None or use.index != place + 1 or len(op.operands) != place + 2:
        return None
    return op.operands[place]


def memories_at_offsets(base: SSAValue) -> Iterator[SSAValue]:
    """The memories that are unconditionally accessed at constant offsets from `base`."""
    for use in base.uses:
        add = use.operation
        if type(add) is arith.AddiOp and use.index == 0 and constant_offset(add.results[0]):
            for access in add.results[0].uses:
                memory = memory_at(access)
                # An address that a branch avoids may be beyond the memory, which is undefined.
                if memory is not None and not _is_conditional(access.operation, base):
                    yield memory


def _is_conditional(op: Operation, value: SSAValue) -> bool:
    """Whether an operation is in a branch inside of the block where `value` is defined."""
    home = value.owner if isinstance(value.owner, Block) else value.owner.parent
    while op.parent is not home:
        holder = op.parent_op()
        if holder is None or isinstance(holder, scf.IfOp):
            return True
        op = holder
    return False
