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


class Moment(Enum):
    MADE = "the options of a session are read"
    READ = "the operators of its model are read"
    PREPARED = "its program is lowered to a device"


@dataclass(frozen=True)
class Asked:
    """
    A session as rules see it.

    `rule` is None where nothing is trained. `differentiated` are the tensors for which gradients
    are computed, `inputs` those of the program, which is not known before `PREPARED`.
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
        """Whether PopART's newer IR writes the loops of a step and its copies out."""
        return self.options.useHostCopyOps and self.options.enableExplicitMainLoops

    @property
    def strategies(self) -> Collection[ExchangeStrategy]:
        """When inputs come and anchors go."""
        inputs = self.model.exchange_strategies.values()
        return [*inputs, *(self.flow.art(id).exchangeStrategy() for id in self.flow.anchors())]


Refusals: TypeAlias = Iterator[str | PopgraphError]
Rule: TypeAlias = Callable[[Asked], Refusals | None]
"""
Yields what PopART refuses: its text, or an error that says where and what to do.

A rule that only warns returns nothing.
"""

TABLE: dict[Moment, list[tuple[str, Rule]]] = {moment: [] for moment in Moment}
"""The rules of each moment in PopART's order, and where their texts look."""


def at(moment: Moment, where: str = "SessionOptions") -> Callable[[Rule], Rule]:
    """Appends a rule to the table."""

    def register(rule: Rule) -> Rule:
        TABLE[moment].append((where, rule))
        return rule

    return register


def refuse(moment: Moment, asked: Asked) -> None:
    """Raises the first refusal of a moment."""
    for where, rule in TABLE[moment]:
        for said in rule(asked) or ():
            raise said if isinstance(said, PopgraphError) else popart_exception(said, where)
