"""Reverse-mode differentiation of one block: last operation first, gradients accumulate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from xdsl.builder import Builder, ImplicitBuilder
from xdsl.dialects.builtin import UnknownLoc
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint

from popgraph.dialects.graphcore import AddOp, BroadcastOp, GraphcoreOp
from popgraph.dialects.graphcore.base import Operand, shape_of, tensor_of
from popgraph.dialects.graphcore.broadcasting import scalar
from popgraph.dialects.locations import origin
from popgraph.passes.analysis.replace import erase_dead
from popgraph.passes.analysis.stage_notes import of_gradients
from popgraph.support.errors import DifferentiationError

Gradients: TypeAlias = Sequence[Operand | None]
"""One gradient for each operand or result; None where no gradient flows."""

Rule: TypeAlias = Callable[["ReverseMode", Any, Gradients], Gradients]
"""Maps the gradients of an operation's results to the gradients of its operands."""


@dataclass
class ReverseMode:
    """The reverse walk of a block: gradients so far, and the operations that compute them."""

    block: Block
    dependent: Set[SSAValue]
    """The values that depend on a value whose gradient is requested."""
    rules: Mapping[type[Operation], Rule]
    """Gradients of operations with bodies."""
    gradients: dict[SSAValue, SSAValue] = field(default_factory=dict)
    made: list[Operation] = field(default_factory=list)

    def of(self, block: Block, dependent: Set[SSAValue]) -> ReverseMode:
        """A walk of another block with the same rules."""
        return ReverseMode(block, dependent, self.rules)

    @contextmanager
    def building(self) -> Iterator[None]:
        """Inserts operations that are constructed in this context at the end of the block."""
        assert self.block.last_op is not None, "blocks have an end"
        with ImplicitBuilder(Builder(InsertPoint.before(self.block.last_op))):
            yield

    def walk(self, needed: Set[Operation]) -> None:
        """Differentiates the operations in `needed`, last first."""
        for op in reversed(list(self.block.ops)):
            if op in needed and any(result in self.dependent for result in op.results):
                self._operation(op)

    def _operation(self, op: Operation) -> None:
        arriving = [self.gradients.get(result) for result in op.results]
        if not isinstance(op, GraphcoreOp) or all(one is None for one in arriving):
            return
        if not op.is_differentiable():
            raise DifferentiationError(
                f"{op.title} has no gradient, but the loss depends on a weight through it",
                origin(op),
                "detach its inputs, or remove it from the model that is trained",
            )
        end = self.block.last_op
        assert end is not None
        before = end.prev_op
        leaving = self._leaving(op, arriving)
        with self.building():
            for operand, gradient in zip(op.operands, leaving, strict=True):
                if gradient is not None and operand in self.dependent:
                    self.add(operand, SSAValue.get(gradient))
        new = before.next_op if before is not None else None
        while new is not None and new is not end:
            self._made(new, op)
            new = new.next_op

    def _leaving(self, op: GraphcoreOp, arriving: Gradients) -> Gradients:
        rule = self.rules.get(type(op))
        if rule is not None:
            return rule(self, op, arriving)
        with self.building():
            return op.gradient(*arriving)

    def _made(self, new: Operation, source: Operation) -> None:
        new.location = of_gradients(source.location)
        for inner in new.walk():
            if isinstance(inner.location, UnknownLoc):
                inner.location = source.location
        self.made.append(new)

    def add(self, value: SSAValue, gradient: SSAValue) -> None:
        """Accumulates the gradient of one more use of `value`."""
        wanted, given = tensor_of(value), tensor_of(gradient)
        assert wanted == given, f"the gradient of {wanted} cannot be {given}"
        known = self.gradients.get(value)
        self.gradients[value] = gradient if known is None else AddOp(known, gradient).result

    def erase_unused(self) -> None:
        """Erases gradients without uses, such as the gradient of the first layer's input."""
        erase_dead(self.made)


def zeros(like: SSAValue) -> Operand:
    """A zero gradient with the type of `like`."""
    zero, shape = scalar(0, like), shape_of(like)
    return BroadcastOp(zero, shape=shape) if shape else zero
