"""Canonicalization of loops: invariants are hoisted, unused values and known bounds dropped."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.ir import BlockArgument, Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.rewriter import InsertPoint

from popgraph.dialects.graphcore import (
    AddOp,
    CheckIndicesOp,
    Elementwise,
    IotaOp,
    Movement,
    ReshapeOp,
)
from popgraph.dialects.graphcore.base import GraphcoreOp, shape_of
from popgraph.dialects.graphcore.control import UNBOUNDED, LoopOp
from popgraph.dialects.program import ConstantOp
from popgraph.dialects.program.control_signatures import NUMBER
from popgraph.passes.analysis.invariants import hoist, invariants
from popgraph.passes.graphcore.canonicalize.bodies import (
    BodyOperand,
    BodyRule,
    Carried,
    LoopDraft,
    before,
    first_of_equals,
    inlined,
    literal_inside,
)
from popgraph.passes.graphcore.fold_constants import bytes_of
from popgraph.support.index_laws import AT, UNIT, M, N, index_law
from popgraph.support.laws import FALSE, TRUE, Law, Proof, function, variable

X, COUNTER = map(variable, ("x", "c"))
ALWAYS_TRUE = (Law(function("and", TRUE, X), X, types=frozenset({"bool"})),)
_MANY = function("le", 0, AT) & function("le", 0, N)
FEWER_TRIPS = (
    index_law((AT < N) & (AT < M), function("min", N, function("max", 0, M)) > AT, given=_MANY),
)
"""Iteration i runs if it is below the trip count n and the limit m."""
NO_TRIP = (index_law(AT < 0, FALSE, given=_MANY),)
COUNTED = (
    Law(0 + COUNTER, COUNTER, types=frozenset({"i64"})),
    Law((X + COUNTER) + 1, (X + 1) + COUNTER, types=frozenset({"i64"})),
)
"""The first value of a counter c, and the step from iteration x to the next."""


class CaptureUnchanged(BodyRule[LoopOp]):
    """
    loop carried (x) { yield x }  ->  loop captured (x)

    Only when the body yields its argument unchanged; the final value is then the initial one.
    """

    ROOTS = (LoopOp,)
    PROOF = Proof(construction="each iteration passes the initial value on")

    def values(self, op: LoopOp, rewriter: PatternRewriter) -> Sequence[SSAValue | None] | None:
        draft = LoopDraft.of(op, rewriter)
        pairs = zip(draft.carried, op.yielded_carried, strict=True)
        unchanged = [each for each, following in pairs if following is each.argument]
        if not unchanged:
            return None
        for each in unchanged:
            draft.carried.remove(each)
            draft.captured.append(BodyOperand(each.initial, each.argument))
            draft.instead[each.final] = each.initial
        return draft.build()


class MoveConstantsIn(BodyRule[LoopOp]):
    """
    loop captured (literal) { f x }  ->  loop { f literal }
    """

    ROOTS = (LoopOp,)
    PROOF = Proof(construction="the body reads the same literal")

    def values(self, op: LoopOp, rewriter: PatternRewriter) -> Sequence[SSAValue | None] | None:
        if not any(isinstance(value.owner, ConstantOp) for value in op.captured):
            return None
        draft = LoopDraft.of(op, rewriter)
        for each in list(draft.captured):
            if isinstance(each.operand.owner, ConstantOp):
                draft.captured.remove(each)
                inside = literal_inside(op.block, each.operand.owner, rewriter)
                each.argument.replace_all_uses_with(inside)
        return draft.build()


class MergeEqual(BodyRule[LoopOp]):
    """
    loop captured (x, x)  ->  loop captured (x), and the same for scanned operands
    """

    ROOTS = (LoopOp,)
    PROOF = Proof(construction="both arguments are the same value")

    def values(self, op: LoopOp, rewriter: PatternRewriter) -> Sequence[SSAValue | None] | None:
        if all(len(set(group)) == len(group) for group in (op.captured, op.scanned)):
            return None
        draft = LoopDraft.of(op, rewriter)
        draft.captured, draft.scanned = map(_merged, (draft.captured, draft.scanned))
        return draft.build()


def _merged(group: list[BodyOperand]) -> list[BodyOperand]:
    kept = []
    for each, first in zip(group, first_of_equals(one.operand for one in group), strict=True):
        if group[first] is each:
            kept.append(each)
        else:
            each.argument.replace_all_uses_with(group[first].argument)
    return kept


class DropUnneeded(BodyRule[LoopOp]):
    """
    loop carried (x, y) { f x, g x y }  ->  loop carried (x) { f x }

    Only for values that no used result depends on. They may be carried, captured, scanned or
    stacked.
    """

    ROOTS = (LoopOp,)
    PROOF = Proof(construction="no used result depends on what is dropped")

    def values(self, op: LoopOp, rewriter: PatternRewriter) -> Sequence[SSAValue | None] | None:
        needed = _needed(op)
        wanted = [result for result in op.stacked if result.first_use is not None]
        if len(wanted) == len(op.stacked) and needed.issuperset(op.block.args[1:]):
            return None
        draft = LoopDraft.of(op, rewriter)
        draft.carried = [
            each for each in draft.carried if each.argument in needed or each.final.first_use
        ]
        draft.scanned = [each for each in draft.scanned if each.argument in needed]
        draft.captured = [each for each in draft.captured if each.argument in needed]
        draft.stacked = [each for each in draft.stacked if each.result in wanted]
        return draft.build()


def _needed(op: LoopOp) -> set[SSAValue]:
    """
    Values of the body that a used result depends on in any iteration.

    A carried argument is one of them if its final value is used: iterations pass it on.
    """
    following = dict(zip(op.carried_arguments, op.yielded_carried, strict=True))
    waiting = [] if op.yielded_go is None else [op.yielded_go]
    for argument, final in zip(op.carried_arguments, op.finals, strict=True):
        if final.first_use is not None:
            waiting.append(argument)
    for row, result in zip(op.yielded_rows, op.stacked, strict=True):
        if result.first_use is not None:
            waiting.append(row)
    needed: set[SSAValue] = set()
    while waiting:
        value = waiting.pop()
        if value in needed:
            continue
        needed.add(value)
        if isinstance(value, BlockArgument):
            waiting += [following[value]] if value in following else []
        elif isinstance(value.owner, Operation):
            waiting += value.owner.operands
    return needed


class HoistInvariants(BodyRule[LoopOp]):
    """
    loop captured (x) { f x }  ->  y = f x; loop captured (y)

    Only for loop invariants: operations of captured values and literals. Elementwise operations
    and movements whose results are larger than their operands, such as broadcasts, are recomputed.
    """

    ROOTS = (LoopOp,)
    PROOF = Proof(construction="operations are pure, so each iteration computes the same value")

    def values(self, op: LoopOp, rewriter: PatternRewriter) -> Sequence[SSAValue | None] | None:
        chosen = invariants(op.block, op.captured_arguments, _may_move)
        if not chosen:
            return None
        draft = LoopDraft.of(op, rewriter)
        outer: dict[SSAValue, SSAValue] = {each.argument: each.operand for each in draft.captured}
        hoist(
            chosen,
            outer,
            lambda moved: rewriter.insert(moved, InsertPoint.before(op)),
            lambda _, value: draft.capture(value),
            rewriter.erase,
        )
        return draft.build()


def _may_move(op: Operation) -> bool:
    return isinstance(op, GraphcoreOp) and not _checks(op) and not _is_cheap_to_repeat(op)


def _checks(op: Operation) -> bool:
    """Whether an operation checks indices: hoisted, it would fail in loops without iterations."""
    return any(isinstance(inner, CheckIndicesOp) for inner in op.walk())


def _is_cheap_to_repeat(op: GraphcoreOp) -> bool:
    """Whether reading the results costs more than computing them: they have more bytes."""
    made, read = sum(map(bytes_of, op.results)), sum(map(bytes_of, op.operands))
    return isinstance(op, Elementwise | Movement | IotaOp) and made > read


class DropGo(BodyRule[LoopOp]):
    """
    loop while (true) { yield true }  ->  loop

    Only when the trip count or the limit still ends the loop. A single iteration may yield any go.
    """

    ROOTS = (LoopOp,)
    PROOF = Proof(ALWAYS_TRUE)

    def values(self, op: LoopOp, rewriter: PatternRewriter) -> Sequence[SSAValue | None] | None:
        if op.go is None or op.yielded_go is None:
            return None
        if op.turns == UNBOUNDED and op.limit is None:
            return None
        if not self.is_all(op.go, 1) or (op.turns > 1 and not self.is_all(op.yielded_go, 1)):
            return None
        draft = LoopDraft.of(op, rewriter)
        draft.go = None
        return draft.build()


class DropLimit(BodyRule[LoopOp]):
    """
    loop trips 4 limit (9)  ->  loop trips 4;  loop trips 9 limit (4)  ->  loop trips 4

    The latter only when nothing is scanned or stacked: trips count rows.
    """

    ROOTS = (LoopOp,)
    PROOF = Proof(FEWER_TRIPS)

    def values(self, op: LoopOp, rewriter: PatternRewriter) -> Sequence[SSAValue | None] | None:
        limit = None if op.limit is None else self.array(op.limit)
        if limit is None or (int(limit) < op.turns and (op.scanned or op.stacked)):
            return None
        draft = LoopDraft.of(op, rewriter)
        draft.limit, draft.trips = None, min(op.turns, max(0, int(limit)))
        return draft.build()


class SkipLoop(BodyRule[LoopOp]):
    """
    loop trips 0 carried (x)  ->  x

    The same if the condition or the limit is constant and admits no iteration. Rows are zeros.
    """

    ROOTS = (LoopOp,)
    PROOF = Proof(NO_TRIP)

    def values(self, op: LoopOp, rewriter: PatternRewriter) -> Sequence[SSAValue | None] | None:
        limit = None if op.limit is None else self.array(op.limit)
        stops = op.go is not None and self.is_all(op.go, 0)
        if op.turns and not stops and (limit is None or int(limit) > 0):
            return None
        with before(op):
            return [*op.carried, *map(self.zeros, op.stacked)]


class InlineSingleTrip(BodyRule[LoopOp]):
    """
    loop trips 1 { body }  ->  body

    Only when no condition or limit can end the loop before its first iteration.
    """

    ROOTS = (LoopOp,)
    PROOF = Proof(UNIT)

    def values(self, op: LoopOp, rewriter: PatternRewriter) -> Sequence[SSAValue | None] | None:
        if op.turns != 1 or op.ends_early:
            return None
        shapes = list(map(shape_of, op.scanned_arguments))
        with before(op):
            index = self.literal(np.zeros((), np.int64))
            rows = [
                ReshapeOp(value, shape=shape).result
                for value, shape in zip(op.scanned, shapes, strict=True)
            ]
        given = [SSAValue.get(index), *op.carried, *rows, *op.captured]
        kept, values = len(op.carried), inlined(op.block, given, op)
        with before(op):
            stacked = [ReshapeOp(row, shape=(1, *shape_of(row))).result for row in values[kept:]]
        return [*values[:kept], *stacked]


class CountByIndex(BodyRule[LoopOp]):
    """
    loop carried (c) { f c; yield c + 1 }  ->  loop captured (c) { f (index + c) }

    Only for forward loops. If the final value is used, the trip count must be exact.
    """

    ROOTS = (LoopOp,)
    PROOF = Proof(COUNTED)

    def values(self, op: LoopOp, rewriter: PatternRewriter) -> Sequence[SSAValue | None] | None:
        if op.reverse is not None or not any(value.type == NUMBER for value in op.carried):
            return None
        draft = LoopDraft.of(op, rewriter)
        pairs = zip(draft.carried, op.yielded_carried, strict=True)
        counters = [each for each, following in pairs if self._counts(each, following, op)]
        if not counters:
            return None
        for each in counters:
            draft.carried.remove(each)
            made = AddOp(op.index, draft.capture(each.initial))
            rewriter.insert(made, InsertPoint.at_start(op.block))
            each.argument.replace_all_uses_with(made.result)
            if each.final.first_use is not None:
                with before(op):
                    trips = self.literal(np.array(op.turns, np.int64))
                    draft.instead[each.final] = AddOp(each.initial, trips).result
        return draft.build()

    def _counts(self, each: Carried, following: SSAValue, op: LoopOp) -> bool:
        made = following.owner
        if each.initial.type != NUMBER or not isinstance(made, AddOp):
            return False
        if each.final.first_use is not None and op.ends_early:
            return False
        others = [value for value in made.operands if value is not each.argument]
        return len(others) == 1 and self.is_all(others[0], 1)


RULES = (
    SkipLoop,
    InlineSingleTrip,
    CaptureUnchanged,
    MergeEqual,
    MoveConstantsIn,
    DropUnneeded,
    DropGo,
    DropLimit,
    CountByIndex,
    HoistInvariants,
)
