"""Accumulators of single replicas: what each has added up of its own gradients so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from xdsl.ir import SSAValue

from popgraph.dialects.graphcore.base import dtype_of, shape_of
from popgraph.passes.graphcore.training.loss_scale import STATISTICS, SUM_AS_FLOAT
from popgraph.passes.graphcore.training.terms import Term
from popgraph.passes.graphcore.training.update_rules import VELOCITY
from popgraph.passes.graphcore.training.variables import COUNTER, Variables
from popgraph.passes.graphcore.training.weight_context import (
    ACCUMULATED,
    WeightContext,
    accumulated,
    state_dtype,
)
from popgraph.passes.optimizer_spec import OptimizerSpec
from popgraph.passes.options import GRADIENT
from popgraph.passes.replication import REPLICA
from popgraph.support.dtypes import DType

OWN = "Own___"
"""With a variable's name: what a replica alone has of it, while others run the same program."""


@dataclass
class ReplicaAccumulators:
    """
    What outputs of accumulators show where replicas are several.

    Updates are made from the gradients of all of them, which are added up as soon as they are
    there. PopART's replicas each have accumulators of their own until a batch is complete:
    `Accum___w`, or `Accum___w@replica1` where a program is of several, is what a replica has
    added up of `Gradient___w`. Where one program is run for each replica in turn, the caller
    swaps the variables that begin with `Own___`.
    """

    spec: OptimizerSpec
    variables: Variables
    gradients: Mapping[str, SSAValue]
    """The graph's outputs before the optimizer takes the gradients among them."""
    _totals: dict[str, Term] = field(default_factory=dict)
    _counted: tuple[Term, SSAValue] | None = None

    def tell(self, name: str, contexts: Mapping[str, WeightContext]) -> None:
        """What an output of this name shows, if it is an accumulator."""
        _, _, gradient = name.partition("___")
        if gradient.partition(REPLICA)[0] == STATISTICS and self.spec.replicas > 1:
            counted = self.variables.told[SUM_AS_FLOAT + gradient.removeprefix(STATISTICS)]
            self.variables.told[name] = self._add_up(gradient, counted, counted.dtype)
            return
        several = self.spec.replicas > 1 and GRADIENT + gradient in self.gradients
        if self.spec.period == 1 or not several:
            return
        context = contexts.get(gradient.partition(REPLICA)[0])
        if name.startswith(ACCUMULATED):
            self.variables.told[name] = self._total(gradient)
        elif name.startswith(VELOCITY) and context and context.spec.accumulator == VELOCITY:
            self.variables.told[name] = self._velocity(context, gradient)

    def _velocity(self, context: WeightContext, gradient: str) -> Term:
        """PopART's replicas add to a velocity each, of which the update takes the mean."""
        decay = context.first("scaledWeightDecay1")
        before = context.state(VELOCITY, decay, of_weight=True)
        factor = context.scalar("dampeningScaleFactor1") * float(self.spec.replicas)
        now = before + self._total(gradient).cast(context.compute) * factor
        return now.cast(dtype_of(self.variables.now[VELOCITY + context.name]))

    def _total(self, name: str) -> Term:
        if name not in self._totals:
            gradient = self.variables.term(self.gradients[GRADIENT + name])
            held = state_dtype(gradient.dtype, self.spec.state_type(ACCUMULATED))
            self._totals[name] = self._add_up(name, gradient, held, mean=self.spec.keeps_means)
        return self._totals[name]

    def _add_up(self, name: str, own: Term, held: DType, *, mean: bool = False) -> Term:
        before, last = self._count()
        wide = state_dtype(own.dtype)
        kept = OWN + ACCUMULATED + name
        zeros = self.variables.full(shape_of(own.operand), held)
        so_far = self.variables.get(kept, zeros).cast(wide)
        total = accumulated(so_far, own.cast(wide), before if mean else None).cast(held)
        self.variables.set(kept, total.known(0.0).where(last, total))
        return total

    def _count(self) -> tuple[Term, SSAValue]:
        if self._counted is None:
            own = self.spec.period // self.spec.in_turn
            self._counted = self.variables.count(OWN + COUNTER, own)
        return self._counted
