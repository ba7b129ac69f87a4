"""Accumulators of single replicas, as PopART's outputs show them."""

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
"""Prefix of a variable that each replica keeps for itself while all run the same program."""


@dataclass
class ReplicaAccumulators:
    """
    Values of accumulator outputs if there are several replicas.

    Here, one accumulator sums the gradients of all replicas. PopART's replicas keep separate
    accumulators until a batch is complete: `Accum___w`, or `Accum___w@replica1` if the program
    contains several, is the sum of a replica's own `Gradient___w`. If one program runs for each
    replica in sequence, the caller swaps the variables that begin with `Own___`.
    """

    spec: OptimizerSpec
    variables: Variables
    gradients: Mapping[str, SSAValue]
    """The graph's outputs before the optimizer, which drops gradients among them."""
    _totals: dict[str, Term] = field(default_factory=dict)
    _counted: tuple[Term, SSAValue] | None = None

    def report(self, name: str, contexts: Mapping[str, WeightContext]) -> None:
        """Reports the value of an output if its name is that of an accumulator."""
        _, _, gradient = name.partition("___")
        if gradient.partition(REPLICA)[0] == STATISTICS and self.spec.replicas > 1:
            counted = self.variables.reported[SUM_AS_FLOAT + gradient.removeprefix(STATISTICS)]
            self.variables.reported[name] = self._add_up(gradient, counted, counted.dtype)
            return
        several = self.spec.replicas > 1 and GRADIENT + gradient in self.gradients
        if self.spec.period == 1 or not several:
            return
        context = contexts.get(gradient.partition(REPLICA)[0])
        if name.startswith(ACCUMULATED):
            self.variables.reported[name] = self._total(gradient)
        elif name.startswith(VELOCITY) and context and context.spec.accumulator == VELOCITY:
            self.variables.reported[name] = self._velocity(context, gradient)

    def _velocity(self, context: WeightContext, gradient: str) -> Term:
        """The velocity of one replica in PopART; its update uses the mean over replicas."""
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
