"""How is one rewrite rule of graphcore written, and how are many applied?"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, TypeVar, cast

import numpy as np
from xdsl.builder import ImplicitBuilder
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import (
    GreedyRewritePatternApplier,
    PatternRewriter,
    PatternRewriteWalker,
    RewritePattern,
)

from popgraph.dialects.graphcore.base import GraphcoreOp, Operand, dtype_of, tensor_of
from popgraph.dialects.program import ConstantOp, WeightStore
from popgraph.passes.fold_constants import constant_array
from popgraph.support.arrays import Array

Root = TypeVar("Root", bound=Operation)


class Rule(RewritePattern, ABC, Generic[Root]):
    """
    A rule that gives another value for the one result of an operation.

    What `rewrite` constructs is inserted before the operation; it must construct nothing if it
    gives None.
    """

    ROOTS: ClassVar[tuple[type[Operation], ...]]

    def __init__(self, weights: WeightStore) -> None:
        self.weights = weights

    @abstractmethod
    def rewrite(self, op: Root) -> Operand | None:
        """The value to use instead; None when the rule does not apply."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        before = op.prev_op
        with ImplicitBuilder(rewriter):
            found = self.rewrite(cast(Root, op))
        if found is None:
            assert op.prev_op is before, f"{type(self).__name__} builds before it knows"
            return
        value = SSAValue.get(found)
        assert tensor_of(value) == tensor_of(op.results[0]), f"{type(self).__name__}: {value.type}"
        made = op.prev_op
        while made is not None and made is not before:
            made.location = op.location
            made = made.prev_op
        rewriter.replace(op, [], [value])

    # What rules ask

    def array(self, value: SSAValue) -> Array | None:
        """The elements of a literal."""
        return constant_array(value, self.weights)

    def is_all(self, value: SSAValue, number: float) -> bool:
        """Whether a literal holds this number only; zeros must have the same sign."""
        array = self.array(value)
        if array is None or array.size == 0:
            return False
        wanted = np.array(number).astype(array.dtype)
        if not (array.flat[0] == wanted and bool(np.all(array == wanted))):
            return False
        return not dtype_of(value).is_float or bool(np.all(np.signbit(array) == np.signbit(wanted)))

    def literal(self, array: Array) -> Operand:
        return ConstantOp(self.weights.attribute(array))


def with_operands(op: GraphcoreOp, operands: Sequence[SSAValue]) -> Operand:
    """The same operation of other operands, with which its result has the same type."""
    mapping = dict(zip(op.operands, operands, strict=True))
    return op.clone(mapping)


class _ByRoot(RewritePattern):
    """Offers each operation to the rules that are about its class, in their order."""

    def __init__(self, rules: Sequence[Rule[Any]]) -> None:
        self.rules = rules
        self.of_class: dict[type[Operation], RewritePattern] = {}

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        fitting = self.of_class.get(type(op))
        if fitting is None:
            rules = [rule for rule in self.rules if isinstance(op, rule.ROOTS)]
            fitting = self.of_class[type(op)] = GreedyRewritePatternApplier([*rules])
        fitting.match_and_rewrite(op, rewriter)


def apply_rules(module: ModuleOp, rules: Sequence[Rule[Any]]) -> None:
    """Applies the rules until none changes anything; what nobody uses any more goes."""
    PatternRewriteWalker(_ByRoot(rules), walk_reverse=False).rewrite_module(module)
