"""Residuals of a loop: forward values that the reverse loop reads or recomputes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from popgraph.dialects.graphcore import LoopOp
from popgraph.dialects.graphcore.base import Elementwise, Movement
from popgraph.dialects.program import ConstantOp
from popgraph.passes.graphcore.training.loop_draft import LoopDraft


def is_cheap(op: Operation) -> bool:
    """Whether recomputing is assumed to cost less than storing one row for each iteration."""
    return isinstance(op, Elementwise | Movement | ConstantOp)


@dataclass
class Residuals:
    """
    Provides the draft of a reverse loop with values of the forward body.

    Expensive and carried values are rows that the forward loop stacks, loop invariants are
    captured, cheap values are recomputed.
    """

    loop: LoopOp
    draft: LoopDraft
    end: Block
    """Loop invariants are computed once, at the end of this block."""
    known: dict[SSAValue, SSAValue] = field(default_factory=dict)
    """Values of the forward body, and their counterparts in the draft."""

    def __post_init__(self) -> None:
        self.invariant = self._invariant()

    def _invariant(self) -> dict[SSAValue, SSAValue | None]:
        """Loop-invariant values of the body, each with its value outside the loop if known."""
        loop = self.loop
        found: dict[SSAValue, SSAValue | None] = {}
        found.update(zip(loop.captured_arguments, loop.captured, strict=True))
        carried = zip(loop.carried_arguments, loop.yielded_carried, loop.carried, strict=True)
        found.update((argument, first) for argument, last, first in carried if last is argument)
        for op in loop.block.ops:
            if all(operand in found for operand in op.operands):
                found.update((result, None) for result in op.results)
        return found

    def bring(self, values: Iterable[SSAValue]) -> None:
        """Adds these values to `known`: as arguments of the draft, or as copies of operations."""
        again: set[Operation] = set()
        waiting = list(values)
        while waiting:
            value = waiting.pop()
            if value in self.known or value.owner in again:
                continue
            kept = self._kept(value)
            if kept is not None:
                self.known[value] = kept
            else:
                assert isinstance(value.owner, Operation)
                again.add(value.owner)
                waiting.extend(value.owner.operands)
        for op in [op for op in self.loop.block.ops if op in again]:
            self.draft.block.add_op(op.clone(self.known))

    def _kept(self, value: SSAValue) -> SSAValue | None:
        """The draft's argument that holds a value; None for a value to recompute."""
        loop, draft = self.loop, self.draft
        if value is loop.index:
            return draft.index
        if self.invariant.get(value) is not None:
            return draft.capture(self._outside(value))
        if isinstance(value, BlockArgument):
            operand = self._scanned(value)
            return draft.scan(loop.stack(value) if operand is None else operand)
        assert isinstance(value.owner, Operation)
        if isinstance(value.owner, ConstantOp):
            return None
        if any(row is value for row in loop.yielded_rows):
            return draft.scan(loop.stack(value))  # stacked already: costs no more memory
        if is_cheap(value.owner):
            return None
        if value in self.invariant:
            return draft.capture(self._outside(value))
        return draft.scan(loop.stack(value))

    def _scanned(self, argument: BlockArgument) -> SSAValue | None:
        pairs = zip(self.loop.scanned_arguments, self.loop.scanned, strict=True)
        return next((operand for mine, operand in pairs if mine is argument), None)

    def _outside(self, value: SSAValue) -> SSAValue:
        """A loop-invariant value, computed once after the forward loop."""
        for op in self._unknown_outside(value):
            outside = {
                operand: found for operand in op.operands if (found := self.invariant[operand])
            }
            made = op.clone(outside)
            last = self.end.last_op
            assert last is not None
            self.end.insert_op_before(made, last)
            self.invariant.update(zip(op.results, made.results, strict=True))
        found = self.invariant[value]
        assert found is not None
        return found

    def _unknown_outside(self, value: SSAValue) -> list[Operation]:
        """Operations that a loop invariant depends on and that have no copy outside, in order."""
        missing: set[Operation] = set()
        waiting = [value]
        while waiting:
            one = waiting.pop()
            if self.invariant[one] is None and one.owner not in missing:
                assert isinstance(one.owner, Operation)
                missing.add(one.owner)
                waiting.extend(one.owner.operands)
        return [op for op in self.loop.block.ops if op in missing]
