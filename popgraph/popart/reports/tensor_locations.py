"""The tensor locations that options request on an IPU, for reports and PopART's IR."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from enum import Enum

from popgraph.builder.opset.enums import (
    CommGroup,
    CommGroupType,
    ReplicatedTensorSharding,
    TensorStorage,
    TileSet,
)
from popgraph.popart.api.names import RESERVED_PREFIXES
from popgraph.popart.api.options import SessionOptions
from popgraph.popart.api.settings import TensorLocation, TensorLocationSettings
from popgraph.popart.api.tensorinfo import TensorInfo
from popgraph.popart.model.grouped_weights import Grouped
from popgraph.support.logs import log_of
from popgraph.support.replicas import Grouping, grouping

_VELOCITIES = ("Accl", "AcclToReduce", "AcclToUpdate", "AcclFinalOut")
"""SGD states that are momentum and gradient accumulator in one."""
_STATES = ("Accl1", "Accl2", "Accl3", "Step", *_VELOCITIES)
_COUNTER = "Counter___"

_SHARDED, _WHOLE = ReplicatedTensorSharding.On, ReplicatedTensorSharding.Off


class Role(Enum):
    """The role of a tensor, which selects its location settings."""

    WEIGHT = "weight"
    STATE = "state"
    ACCUMULATOR = "accumulator"
    VELOCITY = "velocity"
    ACTIVATION = "activation"
    OTHER = "other"

    @classmethod
    def of_variable(cls, id: str) -> Role:
        if _prefixed(id, _VELOCITIES):
            return cls.VELOCITY
        if _prefixed(id, _STATES):
            return cls.STATE
        if _prefixed(id, ("Accum",)) or id.startswith(_COUNTER):
            return cls.ACCUMULATOR
        return cls.WEIGHT


def _prefixed(id: str, kinds: tuple[str, ...]) -> bool:
    return id.startswith(tuple(RESERVED_PREFIXES[f"reserved{kind}Prefix"] for kind in kinds))


@dataclass(frozen=True)
class Locations:
    """Tensor locations from options and replica groups."""

    options: SessionOptions
    grouped: Grouped

    def of_variable(self, id: str, info: TensorInfo) -> TensorLocation:
        return self._location(id, info, Role.of_variable(id), None)

    def of_result(
        self, id: str, info: TensorInfo, given: Sequence[int] | None, *, constant: bool
    ) -> TensorLocation:
        """The location of an operator's result; `given` is that of the operator in the model."""
        found = self._location(id, info, Role.ACTIVATION, given)
        if constant and id not in self.options.tensorLocationSettingsOverride:
            found.storage = TensorStorage.OnChip
        return found

    def of_input(self, id: str, info: TensorInfo) -> TensorLocation:
        return self._location(id, info, Role.OTHER, None)

    def _location(
        self, id: str, info: TensorInfo, role: Role, given: Sequence[int] | None
    ) -> TensorLocation:
        asked = self.options.tensorLocationSettingsOverride.get(id)
        if asked is not None:
            return copy(asked)
        settings = self._settings(role)
        where = copy(settings.location if given is None else _read(given))
        limits = self._limits(role)
        count = info.nelms()
        if where.storage is TensorStorage.OffChip and count < limits.minElementsForOffChip:
            where = TensorLocation()
        small = count < limits.minElementsForReplicatedTensorSharding
        if small or role is Role.ACTIVATION or self._differs_between_replicas(id):
            where.replicatedTensorSharding = _WHOLE
        if where.replicatedTensorSharding is _SHARDED and not self._is_replicated():
            log_of("transform").warning(
                "[StreamingMemory] Unable to shard tensor %s due to lack of replication", id
            )
            where.replicatedTensorSharding = _WHOLE
        return where

    def _is_replicated(self) -> bool:
        return self.options.enableReplicatedGraphs and self.options.replicatedGraphCount > 1

    def _settings(self, role: Role) -> TensorLocationSettings:
        options = self.options
        accumulates = options.enableGradientAccumulation and options.accumulationFactor > 1
        match role:
            case Role.ACTIVATION:
                return options.activationTensorLocationSettings
            case Role.WEIGHT:
                return options.weightTensorLocationSettings
            case Role.ACCUMULATOR:
                return options.accumulatorTensorLocationSettings
            case Role.VELOCITY if accumulates:
                return options.accumulatorTensorLocationSettings
            case Role.STATE | Role.VELOCITY:
                return options.optimizerStateTensorLocationSettings
        return TensorLocationSettings()

    def _limits(self, role: Role) -> TensorLocationSettings:
        """The settings with the minimum sizes for a role; accumulators have no minimum."""
        if role is Role.VELOCITY:
            return self.options.optimizerStateTensorLocationSettings
        if role is Role.ACCUMULATOR:
            return TensorLocationSettings(TensorLocation(), 0, 0)
        return self._settings(role)

    def _differs_between_replicas(self, id: str) -> bool:
        """Whether each replica has its own value."""
        settings = [one.settings for weight, one in self.grouped.items() if _belongs(id, weight)]
        return any(
            one.isUsingCommGroup() and one.getCommGroupType() is CommGroupType.Ungrouped
            for one in settings
        )

    def shared_by(self, id: str) -> Grouping:
        """The replicas with the same value of a variable."""
        for weight, one in self.grouped.items():
            if _belongs(id, weight):
                found = one.settings.getReplicaGrouping(one.replicas)
                return found.stride, found.groupSize
        return 1, self.options.getGlobalReplicationFactor()

    def sharing(self, domain: CommGroup) -> Grouping:
        """The replicas over which a tensor is sharded."""
        replicas = self.options.getGlobalReplicationFactor()
        return grouping(int(domain.type), domain.replicaGroupSize, replicas)


def _belongs(id: str, weight: str) -> bool:
    """Whether a variable is a weight, or one of its optimizer states."""
    return id == weight or id.endswith(f"___{weight}")


def _read(numbers: Sequence[int]) -> TensorLocation:
    """Decodes a location stored in a model."""
    storage, loads, stores, sharding, kind, size = numbers
    return TensorLocation(
        TensorStorage(storage),
        TileSet(loads),
        TileSet(stores),
        ReplicatedTensorSharding(sharding),
        CommGroup(CommGroupType(kind), size),
    )


def location_lines(
    variables: Mapping[str, TensorInfo], options: SessionOptions, grouped: Grouped
) -> Iterator[str]:
    """One line for each variable that is off-chip or sharded on an IPU."""
    locations = Locations(options, grouped)
    for id, info in sorted(variables.items()):
        found = locations.of_variable(id, info)
        words = [found.storage.name] if found.storage is not TensorStorage.OnChip else []
        if found.replicatedTensorSharding is _SHARDED:
            words.append(f"sharded over {options.replicatedGraphCount} replicas")
        if words:
            yield f"  {id}: {', '.join(words)} on an IPU"
