"""Rewrite rules: their base classes, and the worklist that applies them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import Any, ClassVar, Generic, TypeVar, cast

import numpy as np
from xdsl.builder import ImplicitBuilder
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, PatternRewriteWalker, RewritePattern
from xdsl.transforms.dead_code_elimination import is_trivially_dead

from popgraph.dialects.graphcore.base import (
    GraphcoreOp,
    Movement,
    Operand,
    dtype_of,
    shape_of,
    tensor_of,
)
from popgraph.dialects.program import ConstantOp, WeightStore, constant_array
from popgraph.dialects.program.interned import tensor_type
from popgraph.passes.analysis.notes import absorbed, noted, notes
from popgraph.support.arrays import Array
from popgraph.support.errors import PassError
from popgraph.support.laws import FIRED, Proof

Root = TypeVar("Root", bound=Operation)


class AnyRule(RewritePattern, ABC, Generic[Root]):
    """A rule for operations of the classes in `ROOTS`."""

    ROOTS: ClassVar[tuple[type[Operation], ...]]
    PROOF: ClassVar[Proof]
    """The reason why the rule keeps the meaning; `popgraph passes --proofs` lists it."""

    def __init__(self, weights: WeightStore) -> None:
        self.weights = weights

    # Queries about values

    def array(self, value: SSAValue) -> Array | None:
        """The elements of a literal; None for other values."""
        return constant_array(value, self.weights)

    def is_all(self, value: SSAValue, number: float) -> bool:
        """Whether all elements of a literal equal this number; zeros must have its sign."""
        array = self.array(value)
        if array is None or array.size == 0:
            return False
        wanted = np.array(number).astype(array.dtype)
        if not (array.flat[0] == wanted and bool(np.all(array == wanted))):
            return False
        return not dtype_of(value).is_float or bool(np.all(np.signbit(array) == np.signbit(wanted)))

    def literal(self, array: Array) -> Operand:
        return ConstantOp(self.weights.attribute(array))


class Rule(AnyRule[Root]):
    """
    A rule that replaces the one result of an operation.

    Operations that `rewrite` constructs are inserted before the operation. It must construct none
    if it returns None.
    """

    @abstractmethod
    def rewrite(self, op: Root) -> Operand | None:
        """The replacement; None if the rule does not apply."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        self.first_of([self], op, rewriter)

    @staticmethod
    def first_of(
        rules: Sequence[Rule[Any]], op: Operation, rewriter: PatternRewriter
    ) -> Rule[Any] | None:
        """Applies the first of these rules that matches, and returns it; None if none does."""
        before = op.prev_op
        with ImplicitBuilder(rewriter):
            for rule in rules:
                found = rule.rewrite(op)
                if found is not None:
                    break
                assert op.prev_op is before, f"{type(rule).__name__} builds before it knows"
            else:
                return None
        rule.replace(op, found, before, rewriter)
        return rule

    def replace(
        self, op: Operation, found: Operand, before: Operation | None, rewriter: PatternRewriter
    ) -> None:
        """Replaces an operation by `found`; new operations, after `before`, get its location."""
        value = SSAValue.get(found)
        assert tensor_of(value) == tensor_of(op.results[0]), f"{type(self).__name__}: {value.type}"
        made: list[Operation] = []
        while (last := made[-1].prev_op if made else op.prev_op) is not before:
            assert last is not None
            last.location = op.location
            made.append(last)
        operands = list(op.operands)
        rewriter.replace(op, [], [value])
        if made and any(notes(made[0].location)):
            further = [text for one in absorbed(operands) for text in notes(one.location)]
            for one in made:
                one.location = noted(one.location, further)


def moved(value: Operand, movements: Sequence[Movement]) -> SSAValue:
    """Applies copies of movements to a value of the same shape and any element type."""
    made = SSAValue.get(value)
    for op in movements:
        type_ = tensor_type(tensor_of(made).element_type, shape_of(op.results[0]))
        again = type(op).create(
            operands=[made], result_types=[type_], properties=dict(op.properties)
        )
        made = again.results[0]
    return made


def with_operands(op: GraphcoreOp, operands: Sequence[SSAValue]) -> Operand:
    """
    A copy of an operation with other operands, for which its result types are the same.

    Operands are given by position, not by a mapping of values: in x + x, only one may be replaced.
    """
    return type(op).create(
        operands=operands,
        result_types=[result.type for result in op.results],
        properties=dict(op.properties),
        attributes=dict(op.attributes),
    )


REWRITES = 64
"""Maximum number of rewrites for each operation of the initial module."""
ALWAYS = 1000
"""Additional rewrites, so that small modules have room, too."""


class _PatternsByRoot(RewritePattern):
    """Offers each operation to the rules for its class, in their order."""

    def __init__(self, rules: Sequence[AnyRule[Any]], limit: int) -> None:
        self.rules = rules
        self.limit = limit
        self.of_class: dict[type[Operation], list[list[AnyRule[Any]]]] = {}
        self.applied: Counter[str] = Counter()
        """The number of rewrites of each rule."""
        self.left = limit
        """The number of rewrites that are still allowed."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if is_trivially_dead(op):  # not counted: erasing always terminates
            rewriter.erase(op)
            return
        if not self.left:
            return
        for rules in self._about(type(op)):
            rule = _first_of(rules, op, rewriter)
            if rule is not None:
                self.left -= 1
                self.applied[type(rule).__name__] += 1
                FIRED[type(rule).__name__] += 1
                return

    def _about(self, kind: type[Operation]) -> list[list[AnyRule[Any]]]:
        """The rules for a class in order, grouped into runs of `Rule` and of other rules."""
        if kind not in self.of_class:
            about = (rule for rule in self.rules if issubclass(kind, rule.ROOTS))
            groups = groupby(about, lambda rule: isinstance(rule, Rule))
            self.of_class[kind] = [list(group) for _, group in groups]
        return self.of_class[kind]


def _first_of(
    rules: Sequence[AnyRule[Any]], op: Operation, rewriter: PatternRewriter
) -> AnyRule[Any] | None:
    """Applies the first rule that matches, and returns it."""
    if isinstance(rules[0], Rule):
        # One builder for all rules: entering and leaving one costs more than most rules do.
        return Rule.first_of(cast(Sequence[Rule[Any]], rules), op, rewriter)
    for rule in rules:
        rule.match_and_rewrite(op, rewriter)
        if rewriter.has_done_action:
            return rule
    return None


def apply_rules(module: ModuleOp, rules: Sequence[AnyRule[Any]]) -> None:
    """
    Applies rules until none matches, and erases dead operations.

    The number of rewrites is limited: two rules that undo their rewrites would never end.
    """
    by_root = _PatternsByRoot(rules, ALWAYS + REWRITES * sum(1 for _ in module.walk()))
    PatternRewriteWalker(by_root, walk_reverse=False).rewrite_module(module)
    if not by_root.left:
        raise PassError(
            f"rewriting does not terminate: rules still match after {by_root.limit:,} rewrites; "
            f"applied: {_listed(by_root.applied)}",
            hint="this is a bug in PopGraph; please report it with the model, and until it is "
            "fixed, disable the pass (`Options(disabled=...)`)",
        )


def _listed(applied: Counter[str]) -> str:
    return ", ".join(f"{rule} ({count:,} times)" for rule, count in applied.most_common())
