"""One weight while it is trained: its value, its gradient, its scalars and its states."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects.graphcore.base import dtype_of, shape_of
from popgraph.dialects.program import VariableOp
from popgraph.dialects.program.ops import Literal
from popgraph.passes.graphcore.training.terms import Term
from popgraph.passes.graphcore.training.variables import Variables
from popgraph.passes.optimizer_spec import FACTOR, OF_WEIGHT, Compound, OptimizerSpec
from popgraph.support import dtypes
from popgraph.support.dtypes import DType
from popgraph.support.shapes import Shape, prod

ACCUMULATED = "Accum___"
"""With a weight's name: its gradients so far."""


class WeightContext:
    """One weight that is trained: its value, gradient, scalars and state, all in one type."""

    def __init__(
        self,
        spec: OptimizerSpec,
        variables: Variables,
        op: VariableOp,
        gradient: SSAValue,
        *,
        is_share: bool = False,
    ) -> None:
        """Of the weight, this rank has only a share, or all of it."""
        self.name = op.variable.text
        self.literal = op.literal
        self.dtype = dtype_of(op.result)
        self.compute = state_dtype(self.dtype)
        self.spec = spec.for_weight(self.name)
        self.compounds = spec.compounds(self.name, self.dtype)
        self.variables = variables
        self.weight = variables.term(op.result).cast(self.compute)
        self.gradient = variables.term(gradient).cast(self.compute)
        self.shape: Shape = shape_of(op.result)
        self.count = prod(shape_of(gradient))
        self.last: SSAValue | None = None
        """Whether a batch is complete; None if each run is one."""
        self.finite: SSAValue | None = None
        """Whether the update is to be made at all; None if it always is."""
        self.whole: Term | None = None
        """The weight, where this rank updates a share of it."""
        self.is_share = is_share
        self.is_told = False
        """Whether the gradient is already that of all ranks."""

    @property
    def has_share(self) -> bool:
        """Whether this rank updates only a share of the weight."""
        return self.is_share or self.whole is not None

    def average(self) -> None:
        """The gradient is a share of the mean of those that the runs of all ranks have added up."""
        self.gradient = self.gradient * (1.0 / (self.spec.at_once * self.spec.ranks))

    def accumulate(self, before: Term, last: SSAValue) -> None:
        """
        From here on the gradient is the sum over micro-batches, or their mean; state moves on the
        last of them.
        """
        self.last = last
        averaged = before if self.spec.keeps_means else None
        held = state_dtype(self.dtype, self.spec.state_type(ACCUMULATED))
        zeros = self.variables.full(shape_of(self.gradient.operand), held)
        so_far = self.variables.get(ACCUMULATED + self.name, zeros).cast(self.compute)
        kept = accumulated(so_far, self.gradient, averaged).cast(held)
        self.tell(ACCUMULATED, kept)
        self.variables.set(ACCUMULATED + self.name, kept.known(0.0).where(last, kept))
        self.gradient = kept.cast(self.compute)

    def updated(self, weight: Term) -> Term:
        """The weight after the step, when a batch is complete."""
        return self.at_end(weight, self.weight).cast(self.dtype)

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
        """The scalar by which gradients enter the update without the loss scale, by its name."""
        scalars = (one for one in self.compounds.values() if one.unscales and not one.constant)
        return {
            one.variable: self._streamed(one)
            for one in scalars
            if not one.prefix.startswith("nesterov")
        }

    def tell_scalars(self, wanted: Collection[str]) -> None:
        """Shows the scalars among `wanted` that the host could write, had they any effect."""
        for compound in self.compounds.values():
            if compound.is_off and compound.variable in wanted:
                value = self.weight.known(compound.value).cast(compound.dtype)
                self.variables.told[compound.variable] = self.variables.term(value.operand)

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
            return store.attribute(weight * np.array(first, dtype))
        return self.variables.full(self.shape, kept, first)

    def keep(self, prefix: str, value: Term) -> None:
        old = self.variables.term(self.variables.now[prefix + self.name])
        self.set_at_update(prefix + self.name, self.at_end(value.cast(old.dtype), old))

    def set_at_update(self, name: str, value: Term) -> None:
        """
        Updates a variable that only complete batches change.

        An output of its name is its value in the micro-batches of the batch: PopART updates after
        the last one, when the anchors of all have been read.
        """
        self.variables.set(name, value)
        if self.spec.accumulates:
            self.variables.told.setdefault(name, self.variables.term(self.variables.now[name]))

    def tell(self, prefix: str, value: Term) -> None:
        self.variables.told[prefix + self.name] = value

    def at_end(self, new: Term, old: Term) -> Term:
        """`new` when a batch is complete, unless it is skipped, else `old`."""
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
    """The sum with one more gradient; with the number of those before, their mean."""
    if before is None:
        return total + gradient
    counted = before.cast(total.dtype) + 1.0
    share = counted.known(1.0) / counted
    return total * (1.0 - share) + gradient * share


def state_dtype(weight: DType, asked: str = "") -> DType:
    """What is asked for; else state of half precision weights is kept in single precision."""
    if asked:
        return weight if asked == OF_WEIGHT else dtypes.BY_NAME[asked]
    return dtypes.BY_NAME["f32"] if weight.name in ("f16", "bf16") else weight
