"""A loop under construction: values that its body requests become operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from xdsl.builder import ImplicitBuilder
from xdsl.ir import Block, BlockArgument, Region, SSAValue
from xdsl.transforms.dead_code_elimination import region_dce

from popgraph.dialects.graphcore import CompareOp, CondOp, LoopOp
from popgraph.dialects.graphcore.base import Operand
from popgraph.dialects.program import YieldOp
from popgraph.dialects.program.control_signatures import NUMBER, row_type
from popgraph.passes.graphcore.training.reverse_mode import zeros


def used_operands(
    bodies: Sequence[Block], operands: Sequence[SSAValue], first: int = 0
) -> list[SSAValue]:
    """
    The operands that a body uses; arguments of the others are erased.

    `first` is the index of the first operand's argument.
    """
    kept = []
    for at in reversed(range(first, first + len(operands))):
        if any(block.args[at].uses for block in bodies):
            kept.append(operands[at - first])
        else:
            for block in bodies:
                block.erase_arg(block.args[at])
    return kept[::-1]


@dataclass
class LoopDraft:
    """The body so far, its operands, and the values it will yield."""

    block: Block = field(default_factory=lambda: Block(arg_types=[NUMBER]))
    carried: list[SSAValue] = field(default_factory=list)
    scanned: list[SSAValue] = field(default_factory=list)
    captured: list[SSAValue] = field(default_factory=list)
    following: list[SSAValue] = field(default_factory=list)
    """Next values of the carried values, in their order."""
    rows: list[SSAValue] = field(default_factory=list)

    @property
    def index(self) -> BlockArgument:
        return self.block.args[0]

    def carry(self, first: SSAValue) -> BlockArgument:
        """Adds a carried value; returns its argument."""
        self.carried.append(first)
        return self.block.insert_arg(first.type, len(self.carried))

    def scan(self, operand: SSAValue) -> BlockArgument:
        """The argument that receives row i of an operand in iteration i."""
        first = 1 + len(self.carried)
        if operand in self.scanned:
            return self.block.args[first + self.scanned.index(operand)]
        self.scanned.append(operand)
        return self.block.insert_arg(row_type(operand), first + len(self.scanned) - 1)

    def capture(self, operand: SSAValue) -> BlockArgument:
        """The argument for a loop-invariant operand."""
        first = 1 + len(self.carried) + len(self.scanned)
        if operand in self.captured:
            return self.block.args[first + self.captured.index(operand)]
        self.captured.append(operand)
        return self.block.insert_arg(operand.type, len(self.block.args))

    def scanned_operand(self, value: SSAValue) -> SSAValue | None:
        """The scanned operand if a value of the body is its row."""
        return self._operand(value, 1 + len(self.carried), self.scanned)

    def captured_operand(self, value: SSAValue) -> SSAValue | None:
        """The captured operand if a value of the body is its argument."""
        first = 1 + len(self.carried) + len(self.scanned)
        return self._operand(value, first, self.captured)

    def _operand(self, value: SSAValue, first: int, group: list[SSAValue]) -> SSAValue | None:
        if not isinstance(value, BlockArgument) or value.block is not self.block:
            return None
        at = value.index - first
        return group[at] if 0 <= at < len(group) else None

    def row(self, value: SSAValue) -> int:
        """The index of the stacked result that holds `value` of every iteration."""
        if value not in self.rows:
            self.rows.append(value)
        return self.rows.index(value)

    def finish(self, trips: int, *, reverse: bool, count: SSAValue | None) -> LoopOp:
        """
        Builds the loop under an implicit builder; with `count`, only iterations before it run.

        The others keep carried values unchanged and stack rows of zeros.
        """
        with ImplicitBuilder(self.block):
            YieldOp([*self.following, *self.rows])
        body = Region(self.block)
        self._drop_unused(body)
        if count is not None:
            body = self._only_before(count, body)
        return LoopOp(
            trips,
            body,
            carried=self.carried,
            scanned=self.scanned,
            captured=self.captured,
            reverse=reverse,
        )

    def _drop_unused(self, body: Region) -> None:
        region_dce(body)
        first = 1 + len(self.carried)
        self.captured = used_operands([self.block], self.captured, first + len(self.scanned))
        self.scanned = used_operands([self.block], self.scanned, first)

    def _only_before(self, count: SSAValue, body: Region) -> Region:
        types = [argument.type for argument in self.block.args]
        self.block, passed = Block(arg_types=types), Block(arg_types=types)
        arguments = self.block.args
        limit = self.capture_last(count)
        with ImplicitBuilder(passed):
            YieldOp([*passed.args[1 : 1 + len(self.carried)], *_each(zeros, self.rows)])
        with ImplicitBuilder(self.block):
            runs = CompareOp(self.index, limit, "lt")
            YieldOp(CondOp(runs, arguments, body, Region(passed)).results)
        return Region(self.block)

    def capture_last(self, operand: SSAValue) -> BlockArgument:
        """A separate argument for an operand, even if it is captured already."""
        self.captured.append(operand)
        return self.block.insert_arg(operand.type, len(self.block.args))


def _each(function: Callable[[SSAValue], Operand], values: list[SSAValue]) -> list[SSAValue]:
    return [SSAValue.get(function(value)) for value in values]
