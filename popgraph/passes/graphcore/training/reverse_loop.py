"""The gradient of a loop: a loop over the same iterations in reverse order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from xdsl.builder import Builder, ImplicitBuilder
from xdsl.ir import BlockArgument, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from popgraph.dialects.graphcore import AddOp, LoopOp
from popgraph.dialects.graphcore.broadcasting import scalar
from popgraph.dialects.graphcore.control import UNBOUNDED, yield_of
from popgraph.dialects.locations import origin
from popgraph.dialects.program import YieldOp
from popgraph.dialects.values import backward_slice
from popgraph.passes.graphcore.training.dependence import (
    dependent_in_loop,
    expand_on_path,
    needed,
)
from popgraph.passes.graphcore.training.loop_draft import LoopDraft
from popgraph.passes.graphcore.training.residuals import Residuals
from popgraph.passes.graphcore.training.reverse_mode import Gradients, ReverseMode, zeros
from popgraph.passes.graphcore.training.turn_sums import IterationSums
from popgraph.support.errors import DifferentiationError


def reverse_loop(outer: ReverseMode, loop: LoopOp, arriving: Gradients) -> Gradients:
    """
    Differentiates a loop: the reverse loop reads residuals that the forward loop stacks.

    Gradients of carried values are carried, gradients of scanned values are stacked, and
    gradients of captured values are summed over the iterations.
    """
    if loop.turns == UNBOUNDED:
        raise DifferentiationError(
            "the loss depends on a weight through a loop with an unbounded trip count",
            origin(loop),
            "give the trip count a static bound: the gradient keeps residuals of every iteration",
        )
    given = [None if one is None else SSAValue.get(one) for one in arriving]
    return _ReverseLoop(outer, loop, given).gradients()


@dataclass
class _ReverseLoop:
    outer: ReverseMode
    loop: LoopOp
    arriving: Sequence[SSAValue | None]

    draft: LoopDraft = field(default_factory=LoopDraft)
    temporary: list[tuple[BlockArgument, BlockArgument]] = field(default_factory=list)
    """
    Pairs of a gradient argument of the forward body and the draft's argument that replaces it.

    The reverse is built inside the forward body, where its values are visible, and then moved.
    """

    def __post_init__(self) -> None:
        results = lambda: yield_of(self.loop.block).values  # noqa: E731
        expand_on_path(self.loop.block, results, self._reached)
        self.dependent = self._reached()
        self.wanted = self._wanted()

    def _reached(self) -> set[SSAValue]:
        return dependent_in_loop(self.loop, self.outer.dependent)

    def _wanted(self) -> list[int]:
        """
        Indices of carried values whose gradients are carried from iteration to iteration.

        A fixed point: a value is live if a live result of the body depends on it.
        """
        loop, finals = self.loop, len(self.loop.finals)
        rows = zip(loop.yielded_rows, self.arriving[finals:], strict=True)
        roots = [row for row, gradient in rows if gradient is not None]
        live = {at for at, gradient in enumerate(self.arriving[:finals]) if gradient is not None}
        arguments, size = loop.carried_arguments, -1
        while size != len(live):
            size = len(live)
            used = backward_slice([*roots, *(loop.yielded_carried[at] for at in live)])
            live |= {at for at, argument in enumerate(arguments) if argument in used}
        return [at for at in sorted(live) if arguments[at] in self.dependent]

    def gradients(self) -> Gradients:
        added, found = self._backwards()
        leaving = self._move(added, found)
        kept, scanned = len(self.wanted), len(self.loop.scanned)
        self.draft.following += [one for one in leaving[:kept] if one is not None]
        places = [
            None if one is None else self.draft.row(one) for one in leaving[kept : kept + scanned]
        ]
        totals = IterationSums(self.outer, self.loop, self.draft).of(leaving[kept + scanned :])
        made = self._finish()
        with self.outer.building():
            captured = [None if total is None else total(made) for total in totals]
        finals = dict(zip(self.wanted, made.finals, strict=False))
        return [
            *(None for value in (self.loop.go, self.loop.limit) if value is not None),
            *(finals.get(at) for at in range(len(self.loop.carried))),
            *(None if at is None else made.stacked[at] for at in places),
            *captured,
        ]

    def _finish(self) -> LoopOp:
        count = self._count() if self.loop.ends_early else None
        with self.outer.building():
            reverse = self.loop.reverse is None
            return self.draft.finish(self.loop.turns, reverse=reverse, count=count)

    def _count(self) -> SSAValue:
        """The number of iterations that ran: a carried counter of the forward loop."""
        loop = self.loop
        with ImplicitBuilder(Builder(InsertPoint.before(loop))):
            none = scalar(0, loop.index)
        with ImplicitBuilder(Builder(InsertPoint.before(yield_of(loop.block)))):
            following = AddOp(loop.index, scalar(1, loop.index))
        return loop.carry(none.result, following.result)

    def _backwards(self) -> tuple[list[Operation], list[SSAValue | None]]:
        """
        Appends the reverse of the body to it; returns the new operations and the gradients found.

        The last operation yields these gradients. Inner loops are extended in place, so that this
        loop can stack their residuals.
        """
        block = self.loop.block
        end, last = yield_of(block), yield_of(block).prev_op
        inner = self.outer.of(block, self.dependent)
        with inner.building():
            for value, gradient in self._arrivals():
                if value in self.dependent:
                    inner.add(value, gradient)
        inner.walk(needed(end.values))
        with inner.building():
            found = self._leaving(inner)
            YieldOp([one for one in found if one is not None])
        inner.erase_unused()
        ops = list(block.ops)
        first = 0 if last is None else ops.index(last) + 1
        return ops[first:-1], found

    def _arrivals(self) -> list[tuple[SSAValue, SSAValue]]:
        """Values that the body yields, each with an argument for its gradient."""
        loop, finals = self.loop, len(self.loop.finals)
        carried = [(loop.yielded_carried[at], self._carry(at)) for at in self.wanted]
        rows = [
            (row, self._argument(self.draft.scan(gradient)))
            for row, gradient in zip(loop.yielded_rows, self.arriving[finals:], strict=True)
            if gradient is not None
        ]
        return [*carried, *rows]

    def _carry(self, at: int) -> SSAValue:
        gradient = self.arriving[at]
        if gradient is None:
            with self.outer.building():
                gradient = SSAValue.get(zeros(self.loop.carried[at]))
        return self._argument(self.draft.carry(gradient))

    def _argument(self, of_draft: BlockArgument) -> SSAValue:
        block = self.loop.block
        argument = block.insert_arg(of_draft.type, len(block.args))
        self.temporary.append((argument, of_draft))
        return argument

    def _leaving(self, inner: ReverseMode) -> list[SSAValue | None]:
        """Gradients of the wanted carried, all scanned and all captured arguments, in order."""
        loop = self.loop
        carried = (loop.carried_arguments[at] for at in self.wanted)
        others = (*loop.scanned_arguments, *loop.captured_arguments)
        return [
            *(inner.gradients.get(one) or SSAValue.get(zeros(one)) for one in carried),
            *(inner.gradients.get(one) for one in others),
        ]

    def _move(
        self, ops: list[Operation], found: Sequence[SSAValue | None]
    ) -> list[SSAValue | None]:
        """Moves operations and the residuals they use into the draft; returns `found` as moved."""
        for argument, of_draft in self.temporary:
            argument.replace_all_uses_with(of_draft)
        for argument, _ in reversed(self.temporary):  # last first: erasing shifts later indices
            self.loop.block.erase_arg(argument)
        owners = {*ops, self.draft.block}
        residuals = Residuals(self.loop, self.draft, self.outer.block)
        residuals.bring(
            operand for op in ops for operand in op.operands if operand.owner not in owners
        )
        for op in ops:
            op.detach()
            op.operands = [residuals.known.get(operand, operand) for operand in op.operands]
            self.draft.block.add_op(op)
        last = ops[-1]
        values = iter(list(last.operands))
        Rewriter.erase_op(last)
        return [None if one is None else next(values) for one in found]
