"""Handed numbers: sizes that a kernel gets as arguments, so that other sizes are the same C."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from xdsl.dialects import arith, func, scf
from xdsl.dialects.builtin import IndexType
from xdsl.ir import Operation, SSAValue

from popgraph.backends.c.print.pointers import natural
from popgraph.dialects.tile import PrefetchOp

Place: TypeAlias = tuple[Operation, int]
"""An operation, and which operand."""

MOST = 40
"""A kernel that would get more numbers gets none: C admits 127 parameters."""
SHORT = 16
"""Turns of a loop that a compiler may write out."""
LEAST = 100
"""Operations of a kernel that takes a compiler long enough; a short one may not run long."""


def named(places: Iterable[Place]) -> dict[Operation, dict[int, str]]:
    """What C calls numbers that are handed: by the operation, and which operand it is."""
    names: dict[Operation, dict[int, str]] = {}
    for at, (op, place) in enumerate(places):
        names.setdefault(op, {})[place] = f"p{at}"
    return names


def handed(function: func.FuncOp) -> dict[Place, int]:
    """
    The constants of a kernel that its callers say, with their numbers, in order.

    They are bounds of loops around long loops, and strides and limits there. Further inside, loops
    count to numbers that the C compiler knows, and step by them: handed is only what quotients are
    multiplied with, and strides of what is prefetched. Which they are hardly depends on the
    numbers: on where loops start at 0, and which are short. Kernels that sum over windows, with a
    short loop in a short one, get none: they took up to a fifth longer.
    """
    operations = list(function.walk())
    if len(operations) < LEAST:
        return {}
    loops = [op for op in operations if isinstance(op, scf.ForOp)]
    outer = _outer(loops)
    if any(_is_short_sum(loop) and _is_short_sum(_loop_around(loop)) for loop in loops):
        return {}
    found = dict(_places(operations, outer))
    return found if len(found) <= MOST else {}


def _places(operations: Iterable[Operation], outer: set[scf.ForOp]) -> Iterator[tuple[Place, int]]:
    for op in operations:
        wanted: tuple[int, ...] = ()
        if isinstance(op, scf.ForOp):
            wanted = (0, 1) if op in outer else ()
        elif isinstance(op, arith.MuliOp | arith.MinSIOp):
            around = _loop_around(op)
            wanted = (1,) if around is None or around in outer or _is_apart(op) else ()
        for place in wanted:
            number = _number(op.operands[place])
            if number:
                yield (op, place), number


def _outer(loops: Sequence[scf.ForOp]) -> set[scf.ForOp]:
    """The loops around long ones: a compiler writes out short ones, as those of a window."""
    outer = set[scf.ForOp]()
    for loop in reversed(loops):  # what is inside comes first
        holder = _loop_around(loop)
        if holder is not None and (loop in outer or not _is_short(loop)):
            outer.add(holder)
    return outer


def _is_short_sum(loop: scf.ForOp | None) -> bool:
    return loop is not None and len(loop.iter_args) > 0 and _is_short(loop)


def _is_short(loop: scf.ForOp) -> bool:
    low, high, step = (_number(bound) for bound in (loop.lb, loop.ub, loop.step))
    return low is not None and high is not None and high - low <= SHORT * (step or 0)


def _loop_around(op: Operation) -> scf.ForOp | None:
    holder = op.parent_op()
    while holder is not None and not isinstance(holder, scf.ForOp):
        holder = holder.parent_op()
    return holder


def _number(value: SSAValue) -> int | None:
    """What an index is, if it is a constant that is not negative."""
    if not isinstance(value.type, IndexType) or not isinstance(value.owner, arith.ConstantOp):
        return None
    return natural(value.owner.properties["value"])


def _is_apart(op: arith.MuliOp | arith.MinSIOp) -> bool:
    """Whether nothing that a loop steps by is in a product."""
    is_quotient = isinstance(op.lhs.owner, arith.DivSIOp | arith.RemSIOp)
    return isinstance(op, arith.MuliOp) and (is_quotient or _is_prefetched(op.result))


def _is_prefetched(index: SSAValue) -> bool:
    """Whether an index only tells what is needed soon: nothing waits for that."""
    return all(
        isinstance(use.operation, PrefetchOp)
        or (isinstance(use.operation, arith.AddiOp) and _is_prefetched(use.operation.result))
        for use in index.uses
    )
