"""
Handed numbers: sizes that a kernel gets as arguments, so that other sizes are the same C.

A choice of spelling, and no pass: only C that caches keep is written so. C that people read or
build in (emit, export, the viewer) has the numbers, and is printed from the same program. As
arguments in the IR they would also be unknown to the checks of bounds and to counts of work, which
look at a kernel without its calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from xdsl.dialects import arith, func, scf
from xdsl.dialects.builtin import IndexType
from xdsl.ir import Block, Operation, SSAValue

from popgraph.backends.c.print.pointers import natural
from popgraph.dialects.tile import PrefetchOp

Place: TypeAlias = tuple[Operation, int]
"""An operation, and which operand."""
_Found: TypeAlias = tuple[Operation, scf.ForOp | None]
"""An operation that may be handed numbers, and the innermost loop around it."""
_ASKED = (scf.ForOp, arith.MuliOp, arith.MinSIOp)

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
    found = list[_Found]()
    if _look_through(function.body.block, None, found) < LEAST:
        return {}
    around = {op: holder for op, holder in found if isinstance(op, scf.ForOp)}
    if any(_is_short_sum(loop) and _is_short_sum(holder) for loop, holder in around.items()):
        return {}
    places = dict(_places(found, _outer(around)))
    return places if len(places) <= MOST else {}


def _look_through(block: Block, around: scf.ForOp | None, found: list[_Found]) -> int:
    """Finds such operations, those of a loop behind it; how many operations there are."""
    count, op = 0, block.first_op
    while op is not None:
        count += 1
        if type(op) in _ASKED:
            found.append((op, around))
        for region in op.regions:
            for inner in region.blocks:
                count += _look_through(inner, op if isinstance(op, scf.ForOp) else around, found)
        op = op.next_op
    return count


def _places(found: Iterable[_Found], outer: set[scf.ForOp]) -> Iterator[tuple[Place, int]]:
    for op, around in found:
        wanted: tuple[int, ...] = ()
        if isinstance(op, scf.ForOp):
            wanted = (0, 1) if op in outer else ()
        elif isinstance(op, arith.MuliOp | arith.MinSIOp):
            wanted = (1,) if around is None or around in outer or _is_apart(op) else ()
        for place in wanted:
            number = _number(op.operands[place])
            if number:
                yield (op, place), number


def _outer(around: dict[scf.ForOp, scf.ForOp | None]) -> set[scf.ForOp]:
    """The loops around long ones: a compiler writes out short ones, as those of a window."""
    outer = set[scf.ForOp]()
    for loop, holder in reversed(around.items()):  # what is inside comes first
        if holder is not None and (loop in outer or not _is_short(loop)):
            outer.add(holder)
    return outer


def _is_short_sum(loop: scf.ForOp | None) -> bool:
    return loop is not None and len(loop.iter_args) > 0 and _is_short(loop)


def _is_short(loop: scf.ForOp) -> bool:
    low, high, step = (_number(bound) for bound in (loop.lb, loop.ub, loop.step))
    return low is not None and high is not None and high - low <= SHORT * (step or 0)


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
