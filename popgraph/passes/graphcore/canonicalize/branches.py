"""Canonicalization of branches: constant predicates, equal bodies, unused captures."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue
from xdsl.pattern_rewriter import PatternRewriter

from popgraph.dialects.graphcore.control import CondOp
from popgraph.dialects.program import ConstantOp
from popgraph.passes.graphcore.canonicalize.arithmetic import ChooseKnown
from popgraph.passes.graphcore.canonicalize.bodies import (
    BodyRule,
    CondDraft,
    first_of_equals,
    inlined,
    literal_inside,
)
from popgraph.support.laws import Proof


class ChooseBranch(BodyRule[CondOp]):
    """
    cond true { then } else { other }  ->  then;  cond p { x } else { x }  ->  x
    """

    ROOTS = (CondOp,)
    PROOF = Proof(ChooseKnown.LAWS)

    def values(self, op: CondOp, rewriter: PatternRewriter) -> Sequence[SSAValue | None] | None:
        known = self.array(op.predicate)
        if known is not None:
            chosen = op.then_body if known else op.else_body
        elif op.then_body.is_structurally_equivalent(op.else_body):
            chosen = op.then_body
        else:
            return None
        return inlined(chosen.block, op.captured, op)


class MoveConstantsIntoBranches(BodyRule[CondOp]):
    """
    cond captured (literal) { f x } else { g x }  ->  cond { f literal } else { g literal }
    """

    ROOTS = (CondOp,)
    PROOF = Proof(construction="the body reads the same literal")

    def values(self, op: CondOp, rewriter: PatternRewriter) -> Sequence[SSAValue | None] | None:
        if not any(isinstance(value.owner, ConstantOp) for value in op.captured):
            return None
        draft = CondDraft.of(op, rewriter)
        for each in list(draft.captured):
            if isinstance(each.operand.owner, ConstantOp):
                draft.captured.remove(each)
                for block, argument in zip(op.bodies(), each.arguments, strict=True):
                    inside = literal_inside(block, each.operand.owner, rewriter)
                    argument.replace_all_uses_with(inside)
        return draft.build()


class MergeEqualCaptures(BodyRule[CondOp]):
    """
    cond captured (x, x)  ->  cond captured (x)
    """

    ROOTS = (CondOp,)
    PROOF = Proof(construction="both arguments are the same value")

    def values(self, op: CondOp, rewriter: PatternRewriter) -> Sequence[SSAValue | None] | None:
        firsts = list(first_of_equals(op.captured))
        if firsts == list(range(len(firsts))):
            return None
        draft = CondDraft.of(op, rewriter)
        seen = list(draft.captured)
        for each, first in zip(seen, firsts, strict=True):
            if seen[first] is not each:
                draft.captured.remove(each)
                for old, new in zip(each.arguments, seen[first].arguments, strict=True):
                    old.replace_all_uses_with(new)
        return draft.build()


class DropUnusedOfBranches(BodyRule[CondOp]):
    """
    cond captured (x, y) { f x } else { g x }  ->  cond captured (x) { f x } else { g x }.

    Results without uses are dropped as well.
    """

    ROOTS = (CondOp,)
    PROOF = Proof(construction="nothing reads what is dropped")

    def values(self, op: CondOp, rewriter: PatternRewriter) -> Sequence[SSAValue | None] | None:
        draft = CondDraft.of(op, rewriter)
        outputs = [place for place in draft.outputs if op.outputs[place].first_use is not None]
        captured = [
            each
            for each in draft.captured
            if any(argument.first_use is not None for argument in each.arguments)
        ]
        if len(outputs) == len(draft.outputs) and len(captured) == len(draft.captured):
            return None
        draft.outputs = outputs
        draft.captured = captured
        return draft.build()


RULES = (
    ChooseBranch,
    MoveConstantsIntoBranches,
    MergeEqualCaptures,
    DropUnusedOfBranches,
)
