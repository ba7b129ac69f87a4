"""When operators of execution phases run that load, gather, scatter and store."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from popgraph.builder.opset.enums import (
    ExecutionPhaseIOSchedule,
    ExecutionPhaseSchedule,
    VirtualGraphMode,
)
from popgraph.session.options import SessionOptions
from popgraph.session.popart_ir.graph import COLLECTIVES, Context, OpGraph, Settings
from popgraph.session.popart_ir.placement import COPY
from popgraph.session.popart_ir.remote_ops import GATHER, LOAD, REDUCE, SCATTER, STORE, optimizes
from popgraph.session.popart_ir.streaming_plan import Plan
from popgraph.session.settings import ExecutionPhaseSettings
from popgraph.session.tensor_locations import Role

HIGHEST = 9000.0
"""No operator of a model has a higher priority in phases, nor a lower one than its opposite."""

_OPTIMIZER = "optimizer"
TILE_COPY = "IoTileCopy"
_REDUCTIONS = frozenset([SCATTER, *REDUCE])


@dataclass(frozen=True)
class Phases:
    """The phases of a session, if it has any."""

    settings: ExecutionPhaseSettings = field(default_factory=ExecutionPhaseSettings)
    are_on: bool = False

    @classmethod
    def of(cls, options: SessionOptions) -> Phases:
        settings = options.executionPhaseSettings
        mode = options.virtualGraphMode
        return cls(settings, mode is VirtualGraphMode.ExecutionPhases and settings.phases > 1)

    def __bool__(self) -> bool:
        return self.are_on

    @property
    def count(self) -> int:
        return self.settings.phases if self.are_on else 0

    @property
    def stages(self) -> int:
        return self.settings.stages

    def loading(self, settings: Settings, type_: str, plan: Plan) -> Settings:
        """Of what loads or gathers a tensor: in the phase that reads it, or at the end before."""
        if not self.are_on or settings.phase is None:
            return settings
        if self._io(plan) is ExecutionPhaseIOSchedule.OnDemand:
            late = _role(plan) is Role.STATE
            return self.ranked(settings, type_, on_demand=True) if late else settings
        settings = replace(settings, phase=settings.phase - 1)
        return self.ranked(settings, type_)

    def storing(self, settings: Settings, plan: Plan) -> Settings:
        """Of what stores a tensor."""
        if not self.are_on or settings.phase is None:
            return settings
        ahead = self._io(plan) is ExecutionPhaseIOSchedule.Preload
        if ahead or _role(plan) is Role.STATE:
            return self.ranked(settings, STORE, on_demand=not ahead)
        return settings

    def scattering(self, settings: Settings) -> Settings:
        """Of what gives replicas their shares."""
        return self.ranked(settings, SCATTER) if self.are_on else settings

    def rank_optimizer(self, graph: OpGraph) -> None:
        """Gives an optimizer's operators, and sums over replicas for them, their priorities."""
        for op in graph.ops if self.are_on else ():
            readers = (user for id in op.outputs.values() for user in graph.consumers(id))
            if optimizes(op):
                op.settings = self.ranked(op.settings, _OPTIMIZER)
            elif op.type in COLLECTIVES & REDUCE and any(map(optimizes, readers)):
                op.settings = self.ranked(op.settings, op.type)

    def ranked(self, settings: Settings, type_: str, *, on_demand: bool = False) -> Settings:
        """With the priority that operators of a type have in a phase."""
        if settings.context is not Context.NORMAL:
            return settings
        priority = self._priority(type_, on_demand)
        return settings if priority is None else replace(settings, priority=priority)

    def _priority(self, type_: str, on_demand: bool) -> float | None:
        schedule, low = self.settings.schedule, -(HIGHEST + 1)
        if schedule is ExecutionPhaseSchedule.Interleaving:
            late = type_ in (_OPTIMIZER, STORE) or type_ in _REDUCTIONS
            if late or (on_demand and type_ in (LOAD, GATHER)):
                return low - 3
            return {"Init": low, LOAD: low - 1, GATHER: low - 1, COPY: low - 2}.get(type_)
        clustered = schedule is ExecutionPhaseSchedule.BatchClusteredIO
        order = [{COPY, TILE_COPY}, {*_REDUCTIONS, GATHER}, {_OPTIMIZER}, {STORE}]
        first = [{"Init"}, {LOAD}]
        if clustered and (found := _place(first, type_)) is not None:
            return HIGHEST + 2 - found
        found = _place(order if clustered else [*first, *order], type_)
        return None if found is None else low - found

    def _io(self, plan: Plan) -> ExecutionPhaseIOSchedule:
        match _role(plan):
            case Role.ACTIVATION:
                return self.settings.activationIOSchedule
            case Role.STATE:
                return self.settings.optimizerStateIOSchedule
            case Role.ACCUMULATOR | Role.VELOCITY:
                return self.settings.accumulatorIOSchedule
        return self.settings.weightIOSchedule


def _role(plan: Plan) -> Role:
    return Role.ACTIVATION if plan.variable is None else Role.of_variable(plan.id)


def _place(order: list[set[str]], type_: str) -> int | None:
    return next((place for place, types in enumerate(order) if type_ in types), None)
