"""Kernel constants as parameters, so that kernels of other sizes share a C function."""

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

_Candidate: TypeAlias = tuple[Operation, scf.ForOp | None]
"""An operation that may be marked, and the innermost loop around it."""
_CANDIDATES = (scf.ForOp, arith.MuliOp, arith.MinSIOp)


@dataclass(frozen=True)
class HandNumbers(Pass):
    """
    Marks constants of kernels that callers pass, so that kernels of other sizes are equal C.

    scf.for %i = %zero to %c100  ->  the same {handed = [1]}

    Marked are bounds of loops around long loops, and strides and limits there. Further inside, the
    C compiler has to know trip counts and steps. There, only factors of quotients and strides of
    prefetches are marked. The choice depends on the loop structure (zero lower bounds, short trip
    counts), not on the values. Kernels with a short sum in a short sum, as over windows, get no
    parameters: they took up to a fifth longer.

    With ten lengths of a 4-layer encoder, a new one takes GCC 0.43 s of CPU instead of 0.54 s.

    The constants stay operands: checks of bounds and counts of work read a kernel without its
    calls, and C for readers (`popgraph emit`) has the numbers.
    """

    name = "hand-numbers"
    most: int = 40
    """Parameters of a kernel that gets any: C guarantees 127 in all (C11 5.2.4.1)."""
    short: int = 16
    """Iterations of a loop that a C compiler may unroll."""
    least: int = 100
    """Operations of a kernel, at least: a smaller one compiles fast, and may run briefly."""

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        for function in module.ops:
            if isinstance(function, func.FuncOp) and function.body.blocks:
                marks = list(self._handed(function))
                if sum(len(positions) for _, positions in marks) <= self.most:
                    for op, positions in marks:
                        hand(op, positions)

    def _handed(self, function: func.FuncOp) -> Iterator[tuple[Operation, list[int]]]:
        """The operations to mark, in order, with positions of operands."""
        found = list[_Candidate]()
        if _count_operations(function.body.block, None, found) < self.least:
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
            elif holder is None or holder in outer or _is_no_step(op):
                wanted = (1,)
            if positions := [at for at in wanted if natural(op.operands[at])]:
                yield op, positions

    def _outer(self, around: dict[scf.ForOp, scf.ForOp | None]) -> set[scf.ForOp]:
        """The loops around long loops; a compiler unrolls short ones, as over a window."""
        outer = set[scf.ForOp]()
        for loop, holder in reversed(around.items()):  # inner loops first
            if holder is not None and (loop in outer or not self._is_short(loop)):
                outer.add(holder)
        return outer

    def _is_short_sum(self, loop: scf.ForOp | None) -> bool:
        return loop is not None and len(loop.iter_args) > 0 and self._is_short(loop)

    def _is_short(self, loop: scf.ForOp) -> bool:
        low, high, step = (natural(bound) for bound in (loop.lb, loop.ub, loop.step))
        return low is not None and high is not None and high - low <= self.short * (step or 0)


def _count_operations(block: Block, around: scf.ForOp | None, found: list[_Candidate]) -> int:
    """Finds candidates, a loop before its contents, and returns the number of operations."""
    count, op = 0, block.first_op
    while op is not None:
        count += 1
        if type(op) in _CANDIDATES:
            found.append((op, around))
        for region in op.regions:
            for inner in region.blocks:
                count += _count_operations(
                    inner, op if isinstance(op, scf.ForOp) else around, found
                )
        op = op.next_op
    return count


def _is_no_step(op: Operation) -> bool:
    """Whether no loop steps by a factor: it multiplies a quotient or addresses prefetches."""
    if not isinstance(op, arith.MuliOp):
        return False
    return isinstance(op.lhs.owner, arith.DivSIOp | arith.RemSIOp) or _is_prefetched(op.result)


def _is_prefetched(index: SSAValue) -> bool:
    """Whether an index addresses only prefetches, which nothing waits for."""
    return all(
        isinstance(use.operation, PrefetchOp)
        or (isinstance(use.operation, arith.AddiOp) and _is_prefetched(use.operation.result))
        for use in index.uses
    )
