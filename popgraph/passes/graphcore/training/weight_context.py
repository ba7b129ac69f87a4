"""One weight in training: its value, gradient, scalars and optimizer state."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects.graphcore.base import dtype_of, shape_of
from popgraph.dialects.graphcore.movement import InsertOp, boxed
from popgraph.dialects.program import VariableOp
from popgraph.dialects.program.ops import Literal
from popgraph.passes.graphcore.training.terms import Term
from popgraph.passes.graphcore.training.variables import Variables
from popgraph.passes.optimizer_spec import FACTOR, OF_WEIGHT, Compound, OptimizerSpec
from popgraph.support import dtypes
from popgraph.support.boxes import Box
from popgraph.support.dtypes import DType
from popgraph.support.shapes import Shape, prod

ACCUMULATED = "Accum___"
"""Prefix of the accumulator of a weight's gradients."""


class WeightContext:
    """One weight in training: its value, gradient, scalars and state, all in one element type."""

    def __init__(
        self,
        spec: OptimizerSpec,
        variables: Variables,
        op: VariableOp,
        gradient: SSAValue,
        *,
        is_shard: bool = False,
        box: Box | None = None,
    ) -> None:
        """
        `is_shard`: the variable holds only this rank's shard of the weight. `box`: the only part of
        it that is trained; `gradient` is that of the box.
        """
        self.name = op.variable.text
        self.literal = op.literal
        self.dtype = dtype_of(op.result)
        self.compute = state_dtype(self.dtype)
        self.spec = spec.for_weight(self.name)
        self.compounds = spec.compounds(self.name, self.dtype)
        self.variables = variables
        self.box, self.variable = box, op.result
        trained = op.result if box is None else boxed(op.result, box)
        self.weight = variables.term(trained).cast(self.compute)
        self.gradient = variables.term(gradient).cast(self.compute)
        self.shape: Shape = shape_of(trained)
        self.count = prod(shape_of(gradient))
        self.last: SSAValue | None = None
        """Whether a batch is complete; None if every run is a whole batch."""
        self.finite: SSAValue | None = None
        """Whether the update is applied; None if always."""
        self.whole: Term | None = None
        """The whole weight if this rank updates a shard of it, else None."""
        self.is_shard = is_shard
        self.is_exchanged = False
        """Whether the gradient is already reduced over all ranks."""

    @property
    def has_shard(self) -> bool:
        """Whether this rank updates only a shard of the weight."""
        return self.is_shard or self.whole is not None

    def average(self) -> None:
        """Divides by replicas in one run times ranks: the later sum is their mean."""
        self.gradient = self.gradient * (1.0 / (self.spec.at_once * self.spec.ranks))

    def accumulate(self, before: Term, last: SSAValue) -> None:
        """
        Replaces the gradient by the sum, or mean, over the micro-batches so far.
        Weights and state then change only with the last micro-batch.
        """
        self.last = last
        averaged = before if self.spec.keeps_means else None
        held = state_dtype(self.dtype, self.spec.state_type(ACCUMULATED))
        zeros = self.variables.full(shape_of(self.gradient.operand), held)
        so_far = self.variables.get(ACCUMULATED + self.name, zeros).cast(self.compute)
        kept = accumulated(so_far, self.gradient, averaged).cast(held)
        self.report(ACCUMULATED, kept)
        self.variables.set(ACCUMULATED + self.name, kept.known(0.0).where(last, kept))
        self.gradient = kept.cast(self.compute)

    def updated(self, weight: Term) -> Term:
        """The weight after the step, when a batch is complete."""
        return self.at_end(weight, self.weight).cast(self.dtype)

    def inserted(self, updated: Term) -> Term:
        """The whole variable after the step, from what is trained of it."""
        if self.box is None:
            return updated
        whole = InsertOp(self.variable, updated.operand, starts=self.box.starts)
        return self.variables.term(whole.result)

    @property
    def accumulates(self) -> bool:
        return self.last is not None

    def scalar(self, prefix: str) -> Term:
        compound = self.compounds[prefix]
        if compound.constant:
            return self.weight.known(compound.value)
        return self._streamed(compound).cast(self.compute)

    def _streamed(self, compound: Compound) -> Term:
        value = self.variables.get(compound.variable, compound.array)
        if not compound.unscales or FACTOR not in self.variables.now:
            return value
        return value / self.variables.term(self.variables.now[FACTOR]).cast(compound.dtype)

    def unscaling(self) -> dict[str, Term]:
        """The scalars that remove the loss scale from gradients, by name."""
        scalars = (one for one in self.compounds.values() if one.unscales and not one.constant)
        return {
            one.variable: self._streamed(one)
            for one in scalars
            if not one.prefix.startswith("nesterov")
        }

    def report_scalars(self, wanted: Collection[str]) -> None:
        """Reports the scalars in `wanted` that are streamed but unused by this optimizer."""
        for compound in self.compounds.values():
            if compound.is_off and compound.variable in wanted:
                value = self.weight.known(compound.value).cast(compound.dtype)
                self.variables.reported[compound.variable] = self.variables.term(value.operand)

    def first(self, prefix: str) -> float:
        return self.compounds[prefix].value

    def state(self, prefix: str, first: float = 0.0, of_weight: bool = False) -> Term:
        kept = state_dtype(self.dtype, self.spec.state_type(prefix))
        literal = self._first_state(first, of_weight, kept)
        return self.variables.get(prefix + self.name, literal).cast(self.compute)

    def _first_state(self, first: float, of_weight: bool, kept: DType) -> Literal:
        store, dtype = self.variables.weights, kept.numpy
        if of_weight and first != 0:
            weight = store.array(self.literal).astype(dtype)
            weight = weight if self.box is None else weight[self.box.places]
            return store.attribute(weight * np.array(first, dtype))
        return self.variables.full(self.shape, kept, first)

    def keep(self, prefix: str, value: Term) -> None:
        old = self.variables.term(self.variables.now[prefix + self.name])
        self.set_at_update(prefix + self.name, self.at_end(value.cast(old.dtype), old))

    def set_at_update(self, name: str, value: Term) -> None:
        """
        Updates a variable that changes only with complete batches.

        An output of its name shows the value before the update: PopART updates after the anchors
        of all micro-batches have been read.
        """
        self.variables.set(name, value)
        if self.spec.accumulates:
            self.variables.reported.setdefault(name, self.variables.term(self.variables.now[name]))

    def report(self, prefix: str, value: Term) -> None:
        self.variables.reported[prefix + self.name] = value

    def at_end(self, new: Term, old: Term) -> Term:
        """`new` if the batch is complete and not skipped, else `old`."""
        if self.finite is not None:
            new = new.where(self.finite, old)
        return new if self.last is None else new.where(self.last, old)

    def step(self) -> Term:
        name = "Step___" + self.name
        count = self.variables.get(name, np.array(0, self.compute.numpy))
        new = count + 1.0
        self.set_at_update(name, self.at_end(new, count))
        return new


def accumulated(total: Term, gradient: Term, before: Term | None) -> Term:
    """
    total + gradient; with the number `before` of earlier gradients, their running mean.

    The mean is total * (1 - 1/n) + gradient / n with n = before + 1.
    """
    if before is None:
        return total + gradient
    counted = before.cast(total.dtype) + 1.0
    part = counted.known(1.0) / counted
    return total * (1.0 - part) + gradient * part


def state_dtype(weight: DType, asked: str = "") -> DType:
    """The requested element type of a state; by default, f32 for f16 and bf16 weights."""
    if asked:
        return weight if asked == OF_WEIGHT else dtypes.BY_NAME[asked]
    return dtypes.BY_NAME["f32"] if weight.name in ("f16", "bf16") else weight
