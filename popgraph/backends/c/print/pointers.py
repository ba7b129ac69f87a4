"""
Addressing: which indices with constant offsets are printed as one shared pointer.

An analysis that the printer asks, and no pass: it changes no IR. The level has no pointers, only
memory and indices into it. Elements behind a pointer would be memory of unknown size, whose bounds
nothing could check, and other backends have no use for a way around GCC's analysis of addresses.
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
"""What reads or writes an element, or a vector of them: which operand is the memory."""

_SUMS = frozenset(
    (arith.AddiOp, arith.MuliOp, arith.DivSIOp, arith.RemSIOp, arith.MinSIOp, arith.MaxSIOp)
)
# Types are compared, as the printer asks this of every operation of every kernel: `isinstance` asks
# the metaclass of another class, which takes four times as long.


def is_never_negative(op: Operation, known: set[SSAValue]) -> bool:
    """Whether the result is an index from zero on, as those that are `known` are."""
    return type(op) in _SUMS and known.issuperset(op.operands)


def number_behind(index: SSAValue) -> tuple[SSAValue, int] | None:
    """An index as another one and a number that is added to it, if it is such a sum."""
    add = index.owner
    if type(add) is not arith.AddiOp or type(index.type) is not IndexType:
        return None
    base, constant = add.operands
    number = natural(constant)
    return None if number is None else (base, number)


def memory_at(use: Use) -> SSAValue | None:
    """The memory that is read or written at an index, if this is what it is used for."""
    op = use.operation
    place = _MEMORY.get(type(op))
    if place is None or use.index != place + 1 or len(op.operands) != place + 2:
        return None
    return op.operands[place]


def reached_from(base: SSAValue) -> Iterator[SSAValue]:
    """The memories of which elements are sure to be used that stand so many behind `base`."""
    for use in base.uses:
        add = use.operation
        if type(add) is arith.AddiOp and use.index == 0 and number_behind(add.results[0]):
            for access in add.results[0].uses:
                memory = memory_at(access)
                if memory is not None and not _may_be_left_out(access.operation, base):
                    yield memory


def _may_be_left_out(op: Operation, value: SSAValue) -> bool:
    """Whether a condition may keep an operation from being done where `value` is known."""
    home = value.owner if isinstance(value.owner, Block) else value.owner.parent
    while op.parent is not home:
        holder = op.parent_op()
        if holder is None or isinstance(holder, scf.IfOp):
            return True
        op = holder
    return False
