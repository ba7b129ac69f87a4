"""Sizes that callers hand to kernels as numbers, so that kernels of other sizes are the same C."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from xdsl.dialects import arith, func, scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from popgraph.dialects.tile import PrefetchOp
from popgraph.dialects.tile.loops.handed import hand, natural
from popgraph.passes.base import Compilation, Pass

_Found: TypeAlias = tuple[Operation, scf.ForOp | None]
"""An operation that may be handed numbers, and the innermost loop around it."""
_ASKED = (scf.ForOp, arith.MuliOp, arith.MinSIOp)


@dataclass(frozen=True)
class HandNumbers(Pass):
    """
    Marks constants of kernels that callers pass, so that kernels of other sizes are equal C.

    scf.for %i = %zero to %c100  ->  the same {handed = [1]}

    They are bounds of loops around long loops, and strides and limits there. Further inside, loops
    count to numbers that the C compiler knows, and step by them: handed is only what quotients are
    multiplied with, and strides of what is prefetched. Which they are hardly depends on the
    numbers: on where loops start at 0, and which are short. Kernels that sum over windows, with a
    short loop in a short one, get none: they took up to a fifth longer.

    The constants stay operands: checks of bounds and counts of work look at a kernel without its
    calls, and C that people read has the numbers.
    """

    name = "hand-numbers"
    most: int = 40
    """A kernel that would get more numbers gets none: C admits 127 parameters."""
    short: int = 16
    """Iterations of a loop that a compiler may write out."""
    least: int = 100
    """Operations of a kernel that takes a compiler long enough; a short one may not run long."""

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        for function in module.ops:
            if isinstance(function, func.FuncOp) and function.body.blocks:
                places = list(self._handed(function))
                for op, wanted in (
                    places if sum(len(each) for _, each in places) <= self.most else ()
                ):
                    hand(op, wanted)

    def _handed(self, function: func.FuncOp) -> Iterator[tuple[Operation, list[int]]]:
        """The operations that take numbers, in order, with the places of these operands."""
        found = list[_Found]()
        if _look_through(function.body.block, None, found) < self.least:
            return
        around = {op: holder for op, holder in found if isinstance(op, scf.ForOp)}
        if any(
            self._is_short_sum(loop) and self._is_short_sum(holder)
            for loop, holder in around.items()
        ):
            return
        outer = self._outer(around)
        for op, holder in found:
            wanted: tuple[int, ...] = ()
            if isinstance(op, scf.ForOp):
                wanted = (0, 1) if op in outer else ()
            elif holder is None or holder in outer or _is_apart(op):
                wanted = (1,)
            if places := [place for place in wanted if natural(op.operands[place])]:
                yield op, places

    def _outer(self, around: dict[scf.ForOp, scf.ForOp | None]) -> set[scf.ForOp]:
        """The loops around long ones: a compiler writes out short ones, as those of a window."""
        outer = set[scf.ForOp]()
        for loop, holder in reversed(around.items()):  # what is inside comes first
            if holder is not None and (loop in outer or not self._is_short(loop)):
                outer.add(holder)
        return outer

    def _is_short_sum(self, loop: scf.ForOp | None) -> bool:
        return loop is not None and len(loop.iter_args) > 0 and self._is_short(loop)

    def _is_short(self, loop: scf.ForOp) -> bool:
        low, high, step = (natural(bound) for bound in (loop.lb, loop.ub, loop.step))
        return low is not None and high is not None and high - low <= self.short * (step or 0)


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


def _is_apart(op: Operation) -> bool:
    """Whether nothing that a loop steps by is in a product."""
    if not isinstance(op, arith.MuliOp):
        return False
    return isinstance(op.lhs.owner, arith.DivSIOp | arith.RemSIOp) or _is_prefetched(op.result)


def _is_prefetched(index: SSAValue) -> bool:
    """Whether an index only tells what is needed soon: nothing waits for that."""
    return all(
        isinstance(use.operation, PrefetchOp)
        or (isinstance(use.operation, arith.AddiOp) and _is_prefetched(use.operation.result))
        for use in index.uses
    )
