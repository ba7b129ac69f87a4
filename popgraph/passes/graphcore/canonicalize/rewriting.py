"""The frame of rewrite rules: their base class, and the worklist that applies them."""

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
from popgraph.passes.analysis.notes import noted, notes, taken_in
from popgraph.support.arrays import Array
from popgraph.support.errors import PassError

Root = TypeVar("Root", bound=Operation)


class AnyRule(RewritePattern, ABC, Generic[Root]):
    """A rule about operations of some classes."""

    ROOTS: ClassVar[tuple[type[Operation], ...]]

    def __init__(self, weights: WeightStore) -> None:
        self.weights = weights

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


class Rule(AnyRule[Root]):
    """
    A rule that gives another value for the one result of an operation.

    What `rewrite` constructs is inserted before the operation; it must construct nothing if it
    gives None.
    """

    @abstractmethod
    def rewrite(self, op: Root) -> Operand | None:
        """The value to use instead; None when the rule does not apply."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        self.first_of([self], op, rewriter)

    @staticmethod
    def first_of(
        rules: Sequence[Rule[Any]], op: Operation, rewriter: PatternRewriter
    ) -> Rule[Any] | None:
        """The first of these rules that applies, which it is then; None if none does."""
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
        """Puts what was found, and is built behind `before`, in the place of an operation."""
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
            further = [text for one in taken_in(operands) for text in notes(one.location)]
            for one in made:
                one.location = noted(one.location, further)


def moved(value: Operand, movements: Sequence[Movement]) -> SSAValue:
    """A value after the movements of another one of its shape, whatever its elements are."""
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
    The same operation of other operands, with which its result has the same type.

    Place by place, not value by value: of two operands that are one value, each may become another.
    """
    return type(op).create(
        operands=operands,
        result_types=[result.type for result in op.results],
        properties=dict(op.properties),
        attributes=dict(op.attributes),
    )


REWRITES = 64
"""Of each operation that a module begins with, there are not more rewrites than this."""
ALWAYS = 1000
"""And these, so that small modules have room, too."""


class _PatternsByRoot(RewritePattern):
    """Offers each operation to the rules that are about its class, in their order."""

    def __init__(self, rules: Sequence[AnyRule[Any]], limit: int) -> None:
        self.rules = rules
        self.limit = limit
        self.of_class: dict[type[Operation], list[list[AnyRule[Any]]]] = {}
        self.applied: Counter[str] = Counter()
        """How often each rule changed something."""

    @property
    def exhausted(self) -> bool:
        return self.applied.total() >= self.limit

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if is_trivially_dead(op):
            rewriter.erase(op)
            return
        if self.exhausted:
            return
        for rules in self._about(type(op)):
            rule = _first_of(rules, op, rewriter)
            if rule is not None:
                self.applied[type(rule).__name__] += 1
                return

    def _about(self, kind: type[Operation]) -> list[list[AnyRule[Any]]]:
        """The rules about a class, in order; those that are built for side by side together."""
        if kind not in self.of_class:
            about = (rule for rule in self.rules if issubclass(kind, rule.ROOTS))
            groups = groupby(about, lambda rule: isinstance(rule, Rule))
            self.of_class[kind] = [list(group) for _, group in groups]
        return self.of_class[kind]


def _first_of(
    rules: Sequence[AnyRule[Any]], op: Operation, rewriter: PatternRewriter
) -> AnyRule[Any] | None:
    """The first rule that changes something, once it has."""
    if isinstance(rules[0], Rule):
        # One builder for all: to begin and end one costs more than most rules do.
        return Rule.first_of(cast(Sequence[Rule[Any]], rules), op, rewriter)
    for rule in rules:
        rule.match_and_rewrite(op, rewriter)
        if rewriter.has_done_action:
            return rule
    return None


def apply_rules(module: ModuleOp, rules: Sequence[AnyRule[Any]]) -> None:
    """
    Applies the rules until none changes anything; what nobody uses any more goes.

    Rules that undo each other, or one that repeats itself, would never end: what no sensible set of
    rules needs is too much.
    """
    by_root = _PatternsByRoot(rules, ALWAYS + REWRITES * sum(1 for _ in module.walk()))
    PatternRewriteWalker(by_root, walk_reverse=False).rewrite_module(module)
    if by_root.exhausted:
        raise PassError(
            f"rewriting does not come to an end: after {by_root.limit:,} rewrites there is still "
            f"one to do; applied were {_counted(by_root.applied)}",
            hint="this is a mistake of PopGraph, please report it with the model; until it is "
            "mended, compile with the pass left out (`Options(disabled=...)`)",
        )


def _counted(applied: Counter[str]) -> str:
    return ", ".join(f"{rule} ({count:,} times)" for rule, count in applied.most_common())
