"""What a reverse loop takes from the turns of the loop that ran forward, and what it recomputes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from popgraph.dialects.graphcore import LoopOp
from popgraph.dialects.graphcore.base import Elementwise, Movement
from popgraph.dialects.program import ConstantOp
from popgraph.passes.graphcore.training.loop_draft import LoopDraft


def is_cheap(op: Operation) -> bool:
    """Whether computing again costs less than keeping."""
    return isinstance(op, Elementwise | Movement | ConstantOp)


@dataclass
class Residuals:
    """
    Gives a draft of the reverse loop the values of the forward body that it asks for.

    Dear ones come as rows that the forward loop stacks, as do carried values; what does not depend
    on the turn is captured; what is cheap is computed again.
    """

    loop: LoopOp
    draft: LoopDraft
    end: Block
    """Where values can be computed once for all turns: before the end of this block."""
    known: dict[SSAValue, SSAValue] = field(default_factory=dict)
    """The values of the forward body that the draft has."""

    def __post_init__(self) -> None:
        self.invariant = self._invariant()

    def _invariant(self) -> dict[SSAValue, SSAValue | None]:
        """The values that are the same in all turns, with what they are outside, if known."""
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
        """Makes these values known to the draft."""
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
        """The argument that holds a value; None for one that is better computed again."""
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
            return draft.scan(loop.stack(value))
        if is_cheap(value.owner):
            return None
        if value in self.invariant:
            return draft.capture(self._outside(value))
        return draft.scan(loop.stack(value))

    def _scanned(self, argument: BlockArgument) -> SSAValue | None:
        pairs = zip(self.loop.scanned_arguments, self.loop.scanned, strict=True)
        return next((operand for mine, operand in pairs if mine is argument), None)

    def _outside(self, value: SSAValue) -> SSAValue:
        """What is the same in all turns, computed once after the loop."""
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
        """The operations behind a value that do not stand outside yet, in their order."""
        behind: set[Operation] = set()
        waiting = [value]
        while waiting:
            one = waiting.pop()
            if self.invariant[one] is None and one.owner not in behind:
                assert isinstance(one.owner, Operation)
                behind.add(one.owner)
                waiting.extend(one.owner.operands)
        return [op for op in self.loop.block.ops if op in behind]
