"""Rebuilds loops and branches around the same operations with other arguments and results."""

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
    A rule for an operation with bodies: replaces all of its results.

    Operations constructed under `before` are inserted before the operation.
    """

    @abstractmethod
    def values(
        self, op: ControlRoot, rewriter: PatternRewriter
    ) -> Sequence[SSAValue | None] | None:
        """
        Replacements of the results; None for a result without uses.

        None in place of all if the rule does not apply. It has changed nothing then.
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
        """Zeros with the type of `like`."""
        zero = self.literal(np.zeros((), dtype_of(like).numpy))
        return BroadcastOp(zero, shape=shape_of(like)).result


@contextmanager
def before(op: Operation) -> Iterator[None]:
    """Inserts operations that are constructed in this context before `op`."""
    with ImplicitBuilder(Builder(InsertPoint.before(op))):
        yield


def inlined(block: Block, given: Sequence[SSAValue], op: Control) -> Sequence[SSAValue]:
    """Moves the operations of a body before `op`; returns the values it yields for `given`."""
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
    A body with the operations of `block` and a selection of its arguments and yielded values.

    `places` are the indices of the yielded values that are kept.
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
class BodyOperand:
    """An operand of a loop, captured or scanned, and its argument in the body."""

    operand: SSAValue
    argument: BlockArgument


@dataclass
class Carried:
    """A value carried from one iteration of a loop to the next."""

    initial: SSAValue
    argument: BlockArgument
    place: int
    """Index of its next value in the body's yield."""
    final: SSAValue


@dataclass
class Stacked:
    """A result that stacks one row of each iteration."""

    place: int
    """Index of its row in the body's yield."""
    result: SSAValue


@dataclass
class LoopDraft:
    """A loop as mutable lists that a rule changes before the loop is rebuilt."""

    op: LoopOp
    rewriter: PatternRewriter
    trips: int
    go: SSAValue | None
    limit: SSAValue | None
    carried: list[Carried]
    scanned: list[BodyOperand]
    captured: list[BodyOperand]
    stacked: list[Stacked]
    instead: dict[SSAValue, SSAValue] = field(default_factory=dict)
    """Replacements of results that the new loop does not have."""

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
            [BodyOperand(*each) for each in zip(op.scanned, op.scanned_arguments, strict=True)],
            [BodyOperand(*each) for each in zip(op.captured, op.captured_arguments, strict=True)],
            [Stacked(*each) for each in zip(*stacked, strict=True)],
        )

    def capture(self, operand: SSAValue) -> BlockArgument:
        """Adds a captured operand; returns its argument in the body."""
        return self._argument(self.captured, operand, operand)

    def scan(self, operand: SSAValue, row: SSAValue) -> BlockArgument:
        """Adds a scanned operand; returns its argument in the body, with the type of `row`."""
        return self._argument(self.scanned, operand, row)

    def _argument(
        self, group: list[BodyOperand], operand: SSAValue, like: SSAValue
    ) -> BlockArgument:
        argument = self.op.block.insert_arg(like.type, len(self.op.block.args))
        group.append(BodyOperand(operand, argument))
        return argument

    def build(self) -> list[SSAValue | None]:
        """Inserts the new loop before the old one; returns replacements of the old results."""
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
class BranchCapture:
    """A captured operand of a branch, and its argument in each body."""

    operand: SSAValue
    arguments: tuple[BlockArgument, ...]


@dataclass
class CondDraft:
    """A branch as mutable lists that a rule changes before the branch is rebuilt."""

    op: CondOp
    rewriter: PatternRewriter
    captured: list[BranchCapture]
    outputs: list[int]
    """Indices of the results that are kept."""

    @classmethod
    def of(cls, op: CondOp, rewriter: PatternRewriter) -> CondDraft:
        arguments = zip(*(block.args for block in op.bodies()), strict=True)
        captured = [BranchCapture(*each) for each in zip(op.captured, arguments, strict=True)]
        return cls(op, rewriter, captured, list(range(len(op.outputs))))

    def build(self) -> list[SSAValue | None]:
        """Inserts the new branch before the old one; returns replacements of the old results."""
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
    """A copy of a literal as the first operation of a body."""
    made = ConstantOp(constant.literal)
    made.location = constant.location
    rewriter.insert(made, InsertPoint.at_start(block))
    return made.result


def first_of_equals(values: Iterable[SSAValue]) -> Iterator[int]:
    """For each value, the index of its first occurrence."""
    met: dict[SSAValue, int] = {}
    for place, value in enumerate(values):
        yield met.setdefault(value, place)
