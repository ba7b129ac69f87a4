"""Changing what bodies take and yield: a loop or a branch is made anew around its operations."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar, cast

import numpy as np
from xdsl.builder import Builder, ImplicitBuilder
from xdsl.dialects.builtin import UnknownLoc
from xdsl.ir import Block, BlockArgument, Operation, Region, SSAValue
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.rewriter import InsertPoint
from xdsl.transforms.dead_code_elimination import is_trivially_dead

from popgraph.dialects.graphcore import BroadcastOp
from popgraph.dialects.graphcore.base import dtype_of, shape_of
from popgraph.dialects.graphcore.control import CondOp, Control, LoopOp, yield_of
from popgraph.dialects.program import ConstantOp, YieldOp
from popgraph.passes.graphcore.canonicalize.rewriting import AnyRule

ControlRoot = TypeVar("ControlRoot", bound=Control)


class BodyRule(AnyRule[ControlRoot], Generic[ControlRoot]):
    """
    A rule about an operation with bodies: gives other values for all of its results.

    What it constructs with `before` stands before the operation.
    """

    @abstractmethod
    def values(
        self, op: ControlRoot, rewriter: PatternRewriter
    ) -> Sequence[SSAValue | None] | None:
        """
        The values to use instead, None for those that nobody uses.

        None when the rule does not apply; then nothing has been changed.
        """

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        first = op.prev_op
        found = self.values(cast(ControlRoot, op), rewriter)
        if found is None:
            assert not rewriter.has_done_action, f"{type(self).__name__} acts before it knows"
            return
        made = op.prev_op
        while made is not None and made is not first:
            if isinstance(made.location, UnknownLoc):
                made.location = op.location
            made = made.prev_op
        rewriter.replace(op, [], found)

    def zeros(self, like: SSAValue) -> SSAValue:
        """A tensor of zeros, of the type of another."""
        zero = self.literal(np.zeros((), dtype_of(like).numpy))
        return BroadcastOp(zero, shape=shape_of(like)).result


@contextmanager
def before(op: Operation) -> Iterator[None]:
    """What is constructed under it is inserted before an operation."""
    with ImplicitBuilder(Builder(InsertPoint.before(op))):
        yield


def inlined(block: Block, given: Sequence[SSAValue], op: Control) -> Sequence[SSAValue]:
    """What a body yields of these arguments; its operations stand before `op` afterwards."""
    for argument, value in zip(block.args, given, strict=True):
        argument.replace_all_uses_with(value)
    outer = op.parent_block()
    assert outer is not None
    for inner in list(block.ops):
        if not isinstance(inner, YieldOp):
            inner.detach()
            outer.insert_op_before(inner, op)
    return yield_of(block).values


def _reseated(
    block: Block,
    arguments: Sequence[BlockArgument],
    places: Sequence[int],
    rewriter: PatternRewriter,
) -> Region:
    """
    A body of the same operations that takes these of its arguments, in this order.

    Of what it yields, the values at these places stay.
    """
    end = yield_of(block)
    values = [end.values[place] for place in places]
    rewriter.erase(end)
    made = Block(arg_types=[argument.type for argument in arguments])
    for inner in list(block.ops):
        inner.detach()
        made.add_op(inner)
    made.add_op(YieldOp(values))
    for inner in reversed(list(made.ops)):
        if is_trivially_dead(inner):
            rewriter.erase(inner)
    for old, new in zip(arguments, made.args, strict=True):
        old.replace_all_uses_with(new)
    return Region(made)


@dataclass
class Passed:
    """What a body sees of its surroundings: a value, whole or row by row."""

    operand: SSAValue
    argument: BlockArgument


@dataclass
class Carried:
    """What one turn of a loop hands to the next."""

    initial: SSAValue
    argument: BlockArgument
    place: int
    """Where it stands among what the body yields."""
    final: SSAValue


@dataclass
class Stacked:
    """The rows of a result, one of each turn."""

    place: int
    """Where its row stands among what the body yields."""
    result: SSAValue


@dataclass
class LoopDraft:
    """A loop as lists that a rule changes, before it is made anew."""

    op: LoopOp
    rewriter: PatternRewriter
    trips: int
    go: SSAValue | None
    limit: SSAValue | None
    carried: list[Carried]
    scanned: list[Passed]
    captured: list[Passed]
    stacked: list[Stacked]
    instead: dict[SSAValue, SSAValue] = field(default_factory=dict)
    """What takes the place of results that the loop has no longer."""

    @classmethod
    def of(cls, op: LoopOp, rewriter: PatternRewriter) -> LoopDraft:
        first = int(op.go is not None)
        rows = first + len(op.carried)
        carried = op.carried, op.carried_arguments, range(first, rows), op.finals
        stacked = range(rows, rows + len(op.stacked)), op.stacked
        return cls(
            op,
            rewriter,
            op.turns,
            op.go,
            op.limit,
            [Carried(*each) for each in zip(*carried, strict=True)],
            [Passed(*each) for each in zip(op.scanned, op.scanned_arguments, strict=True)],
            [Passed(*each) for each in zip(op.captured, op.captured_arguments, strict=True)],
            [Stacked(*each) for each in zip(*stacked, strict=True)],
        )

    def capture(self, operand: SSAValue) -> BlockArgument:
        """What the body calls a value that it is to see."""
        return self._argument(self.captured, operand, operand)

    def scan(self, operand: SSAValue, row: SSAValue) -> BlockArgument:
        """What the body calls the row of a tensor that it is to scan; like `row`."""
        return self._argument(self.scanned, operand, row)

    def _argument(self, group: list[Passed], operand: SSAValue, like: SSAValue) -> BlockArgument:
        argument = self.op.block.insert_arg(like.type, len(self.op.block.args))
        group.append(Passed(operand, argument))
        return argument

    def build(self) -> list[SSAValue | None]:
        """The loop anew, before the old one; values for the results of the old one."""
        op, kept = self.op, [self.op.index, *(each.argument for each in self.carried)]
        kept += [each.argument for each in (*self.scanned, *self.captured)]
        places = [] if self.go is None else [0]
        places += [each.place for each in self.carried]
        places += [each.place for each in self.stacked]
        body = _reseated(op.block, kept, places, self.rewriter)
        made = LoopOp(
            self.trips,
            body,
            carried=[each.initial for each in self.carried],
            scanned=[each.operand for each in self.scanned],
            captured=[each.operand for each in self.captured],
            go=self.go,
            limit=self.limit,
            reverse=op.reverse is not None,
        )
        made.attributes |= op.attributes
        self.rewriter.insert(made, InsertPoint.before(op))
        olds = [*(each.final for each in self.carried), *(each.result for each in self.stacked)]
        known = self.instead | dict(zip(olds, made.results, strict=True))
        return [known.get(result) for result in op.results]


@dataclass
class Seen:
    """What the bodies of a branch see: a value, and what each of them calls it."""

    operand: SSAValue
    arguments: tuple[BlockArgument, ...]


@dataclass
class CondDraft:
    """A branch as lists that a rule changes, before it is made anew."""

    op: CondOp
    rewriter: PatternRewriter
    captured: list[Seen]
    outputs: list[int]
    """Which of the results stay."""

    @classmethod
    def of(cls, op: CondOp, rewriter: PatternRewriter) -> CondDraft:
        arguments = zip(*(block.args for block in op.bodies()), strict=True)
        captured = [Seen(*each) for each in zip(op.captured, arguments, strict=True)]
        return cls(op, rewriter, captured, list(range(len(op.outputs))))

    def build(self) -> list[SSAValue | None]:
        """The branch anew, before the old one; values for the results of the old one."""
        bodies = [
            _reseated(
                block,
                [each.arguments[place] for each in self.captured],
                self.outputs,
                self.rewriter,
            )
            for place, block in enumerate(self.op.bodies())
        ]
        operands = [each.operand for each in self.captured]
        made = CondOp(self.op.predicate, operands, *bodies)
        made.attributes |= self.op.attributes
        self.rewriter.insert(made, InsertPoint.before(self.op))
        known = dict(zip(self.outputs, made.results, strict=True))
        return [known.get(place) for place in range(len(self.op.outputs))]


def literal_inside(block: Block, constant: ConstantOp, rewriter: PatternRewriter) -> SSAValue:
    """The same literal, as the first operation of a body."""
    made = ConstantOp(constant.literal)
    made.location = constant.location
    rewriter.insert(made, InsertPoint.at_start(block))
    return made.result


def first_of_equals(values: Iterable[SSAValue]) -> Iterator[int]:
    """For each value the place where it is met first."""
    met: dict[SSAValue, int] = {}
    for place, value in enumerate(values):
        yield met.setdefault(value, place)
