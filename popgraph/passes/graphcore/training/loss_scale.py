"""Automatic loss scaling: halved when many gradients are near the largest half."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects import element_types
from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import shape_of
from popgraph.dialects.graphcore.broadcasting import reshaped
from popgraph.dialects.graphcore.exchanges import ExchangeOp
from popgraph.passes.graphcore.training.terms import Term
from popgraph.passes.graphcore.training.variables import Variables
from popgraph.passes.graphcore.training.weight_context import ACCUMULATED, WeightContext
from popgraph.passes.optimizer_spec import FACTOR, LOSS_SCALE, OptimizerSpec
from popgraph.passes.options import GRADIENT
from popgraph.passes.replication import REPLICA
from popgraph.support import dtypes
from popgraph.support.ranks.communicator import ALL_REDUCE
from popgraph.support.shapes import prod

UPDATES = "Counter___lossScaleUpdate"
"""The number of updates since the last that could change the factor; -1 before the first."""
STATISTICS = "autoLossScaleStats"
"""With prefix `Accum___`: the numbers of small and large elements in micro-batches so far."""
COUNTS = "_statistics"
"""Suffix of a gradient's name: the numbers of its small and of its large elements."""
SUM, SUM_AS_FLOAT = "summedHistograms", "summedCastedHistograms"
"""Sums of these counts over all tracked gradients, as integers and in single precision."""

OF_REPLICA = frozenset({ACCUMULATED + STATISTICS, SUM, SUM_AS_FLOAT})
"""Statistics that each replica keeps for its own gradients."""

_FLOAT, _INTEGER = dtypes.BY_NAME["f32"], dtypes.BY_NAME["i32"]
_LARGEST_HALF = float(np.finfo(np.float16).max)
_LIMITS = {"FLOAT16": 2.0**15}
"""Upper bounds of the loss scale, by the loss's element type; `_LIMIT` for other types."""
_LIMIT = 2.0**126


@dataclass
class LossScale:
    """
    The factor of the user's loss scale, decided by tracked gradients.

    An element is large if |g| >= `scale_edge` * largest half. With l small and u large elements
    in all micro-batches and replicas of an update and t = `scale_threshold`,
    factor <- factor / 2 if u > l * t / (1 - t) else factor * 2.
    The first of every `scale_period` updates decides.
    """

    spec: OptimizerSpec
    variables: Variables
    last: SSAValue | None
    """Whether this is the last micro-batch of an update; None if each one is."""

    def follow(self, gradients: Mapping[str, SSAValue]) -> None:
        """Counts the elements of gradients, by name, and updates the factor."""
        decides = self._decides()
        copies: dict[str, list[Term]] = {}
        for name, gradient in gradients.items():
            tensor, mark, replica = name.partition(REPLICA)
            counts = self._counts(gradient)
            if decides is not None:
                counts = counts.where(decides, 0.0)
            self._report(GRADIENT + tensor + COUNTS + mark + replica, _unsigned(counts))
            copies.setdefault(mark + replica, []).append(counts)
        sums = {copy: reduce(add, counts) for copy, counts in copies.items()}
        for copy, total in sums.items():
            self._report(SUM + copy, _unsigned(total))
            self._report(SUM_AS_FLOAT + copy, total.cast(_FLOAT))
        counted = reduce(add, (one.cast(_FLOAT) for one in sums.values()))
        self._update(self._of_all(self._accumulated(counted)), decides)

    def _report(self, name: str, value: Term) -> None:
        self.variables.reported[name] = value

    def _counts(self, gradient: SSAValue) -> Term:
        """The numbers of small elements and of all others: NaN counts as large."""
        size = self.variables.term(gradient).cast(_FLOAT).abs()
        edge = size.known(self.spec.scale_edge * _LARGEST_HALF).operand
        small = gc.CompareOp(size.operand, edge, predicate="lt").result
        integer = gc.CastOp(small, to=element_types.to_ir(_INTEGER)).result
        lower = self.variables.term(integer).sum()
        upper = lower.known(float(prod(shape_of(gradient)))) - lower
        return self._pair(lower, upper)

    def _pair(self, lower: Term, upper: Term) -> Term:
        rows = [reshaped(one.operand, (1,)) for one in (lower, upper)]
        return self.variables.term(gc.ConcatOp(rows, axis=0).result)

    def _decides(self) -> SSAValue | None:
        """Whether this update changes the factor; None if every update does."""
        period = self.spec.scale_period
        if period == 1:
            return None
        before = self.variables.get(UPDATES, np.array(-1, np.int32))
        counted = before + 1.0
        now = counted.known(0.0).where(counted.equals(float(period)), counted)
        self.variables.set(UPDATES, self._at_end(now, before))
        return now.equals(0.0)

    def _accumulated(self, counted: Term) -> Term:
        """Adds the counts of earlier micro-batches."""
        if self.last is None:
            return counted
        name = ACCUMULATED + STATISTICS
        so_far = self.variables.get(name, np.zeros(2, np.float32))
        total = so_far + counted
        self.variables.set(name, total.known(0.0).where(self.last, total))
        self._report(name, total)
        return total

    def _of_all(self, counted: Term) -> Term:
        """Adds the counts of other ranks."""
        ranks = self.spec.ranks
        if ranks > 1:
            total = ExchangeOp(counted.operand, self.last, kind=ALL_REDUCE, size=ranks)
            counted = self.variables.term(total.result)
        if self.spec.replicas > 1:
            self._report(f"{SUM}_reduced", counted)
        return counted

    def _update(self, counted: Term, decides: SSAValue | None) -> None:
        factor = self.variables.term(self.variables.now[FACTOR])
        name = next(one for one in self.variables.now if one.startswith(LOSS_SCALE))
        scale = self.variables.term(self.variables.now[name])
        lower, upper = (self._element(counted, place) for place in (0, 1))
        threshold = self.spec.scale_threshold
        odds = threshold / (1 - threshold) if threshold < 1 else math.inf
        many = _compare(upper, lower * odds, "gt")
        doubled, limit = (
            factor * 2.0,
            scale.known(_LIMITS.get(name.removeprefix(LOSS_SCALE), _LIMIT)),
        )
        fits = _compare((doubled * scale).abs(), limit, "le")
        moved = (factor * 0.5).where(many, doubled.where(fits, factor))
        if decides is not None:
            moved = moved.where(decides, factor)
        new = self._at_end(moved, factor)
        self.variables.set(FACTOR, new)
        if self.spec.accumulates or decides is None:
            self._report(FACTOR, factor)  # PopART reads these anchors before the update
        self._report(f"{FACTOR}_updated", new)
        self._report("finalLossScale", scale * factor)

    def _element(self, pair: Term, place: int) -> Term:
        element = gc.SliceOp(pair.operand, starts=[place], sizes=[1], steps=[1])
        return self.variables.term(SSAValue.get(reshaped(element, ())))

    def _at_end(self, new: Term, old: Term) -> Term:
        return new if self.last is None else new.where(self.last, old)

    def report_inverse(self, contexts: Iterable[WeightContext]) -> None:
        """Reports the scalars that divide by the loss scale, numbered in order of their names."""
        scalars = {name: one for context in contexts for name, one in context.unscaling().items()}
        for number, name in enumerate(sorted(scalars)):
            self._report(f"finalInverseLossScale_{number}", scalars[name])


def gradients_of(tracked: Sequence[str], outputs: Mapping[str, SSAValue]) -> dict[str, SSAValue]:
    """Gradient outputs of tensors; one for each replica if the program contains several."""
    found = {}
    for tensor in tracked:
        name = GRADIENT + tensor
        copies = [one for one in outputs if one.startswith(name + REPLICA)]
        for one in copies or [name] * (name in outputs):
            found[one.removeprefix(GRADIENT)] = outputs[one]
    return found


def _unsigned(counts: Term) -> Term:
    return counts.cast(dtypes.BY_NAME["u32"])


def _compare(left: Term, right: Term, predicate: str) -> SSAValue:
    return gc.CompareOp(left.operand, right.operand, predicate=predicate).result
