"""The table of refusals: rules by the moment at which a session checks them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from popgraph.builder.opset.enums import DeviceType, ExchangeStrategy
from popgraph.passes.optimizer_spec import OptimizerSpec
from popgraph.popart.api.dataflow import DataFlow
from popgraph.popart.api.devices import DeviceInfo
from popgraph.popart.api.options import SessionOptions
from popgraph.popart.api.patterns import Patterns
from popgraph.popart.api.step_plan import plan_of
from popgraph.popart.exceptions import popart_exception
from popgraph.popart.model.grouped_weights import Grouped
from popgraph.popart.model.model import SessionModel
from popgraph.support.errors import PopgraphError


class SessionPhase(Enum):
    CREATED = "the options of a session are read"
    READ = "the operators of its model are read"
    PREPARED = "its program is lowered to a device"


@dataclass(frozen=True)
class RefusalContext:
    """
    A session in the form that rules inspect.

    `rule` is None without training. `differentiated` are the tensors with a gradient, `inputs`
    the program's inputs, which are known only at `PREPARED`.
    """

    model: SessionModel
    options: SessionOptions
    flow: DataFlow
    rule: OptimizerSpec | None
    patterns: Patterns
    device: DeviceInfo
    grouped: Grouped = field(default_factory=dict)
    differentiated: Collection[str] = ()
    inputs: Collection[str] = ()

    @property
    def replicas(self) -> int:
        return plan_of(1, self.options).replicas

    @property
    def constant_weights(self) -> bool:
        return self.rule is None and self.options.constantWeights

    @property
    def on_cpu(self) -> bool:
        return self.device.type is DeviceType.Cpu

    @property
    def explicit(self) -> bool:
        """Whether PopART's IR has explicit main loops and host copies."""
        return self.options.useHostCopyOps and self.options.enableExplicitMainLoops

    @property
    def strategies(self) -> Collection[ExchangeStrategy]:
        """The exchange strategies of inputs and anchors."""
        inputs = self.model.exchange_strategies.values()
        return [*inputs, *(self.flow.art(id).exchangeStrategy() for id in self.flow.anchors())]


Refusals: TypeAlias = Iterator[str | PopgraphError]
Rule: TypeAlias = Callable[[RefusalContext], Refusals | None]
"""
Yields PopART's messages, or errors with a location and a hint.

A rule that only warns returns nothing.
"""

TABLE: dict[SessionPhase, list[tuple[str, Rule]]] = {phase: [] for phase in SessionPhase}
"""{moment: [(location, rule)]}, in the order of PopART's checks."""


def rule_at(phase: SessionPhase, where: str = "SessionOptions") -> Callable[[Rule], Rule]:
    """Registers a rule for a moment."""

    def register(rule: Rule) -> Rule:
        TABLE[phase].append((where, rule))
        return rule

    return register


def refuse(phase: SessionPhase, context: RefusalContext) -> None:
    """Raises the first refusal at a moment."""
    for where, rule in TABLE[phase]:
        for said in rule(context) or ():
            raise said if isinstance(said, PopgraphError) else popart_exception(said, where)
