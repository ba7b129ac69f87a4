"""Sharing of variables and inputs by replicas, and its metadata in models."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from popgraph.builder.opset.arguments import typed
from popgraph.builder.opset.enums import (
    CommGroup,
    CommGroupType,
    ExchangeStrategy,
    ReplicatedStreamMode,
    TileSet,
    VariableRetrievalMode,
)
from popgraph.popart.api.settings import InputSettings
from popgraph.popart.exceptions import popart_exception, popart_internal_exception
from popgraph.support.replicas import grouped, grouping


@dataclass(frozen=True)
class ReplicaGrouping:
    """Groups of `groupSize` replicas, whose members differ by `stride`."""

    numReplicas: int
    stride: int
    groupSize: int

    def __post_init__(self) -> None:
        for count, words in (
            (self.numReplicas, "number of replicas"),
            (self.stride, "stride"),
            (self.groupSize, "group size"),
        ):
            _positive(count, words, "ReplicaGrouping")
        if self.numReplicas % (self.stride * self.groupSize):
            raise popart_exception(
                "The number of replicas in a `popart::ReplicaGrouping` must be divisible by the "
                "product of the stride and the group size.",
                f"{self.numReplicas} replicas, stride {self.stride}, groups of {self.groupSize}",
            )
        if self.groupSize == 1:
            object.__setattr__(self, "stride", 1)

    @property
    def groups(self) -> list[list[int]]:
        """The replicas of each group."""
        return grouped(self.numReplicas, self.stride, self.groupSize)


@typed
class VariableSettings:
    """
    The groups of replicas that share a variable, and the values to return.

    `VariableSettings()`, `(CommGroup)`, `(VariableRetrievalMode)`, `(CommGroup, mode)` and
    `(stride, groupSize[, mode])` are accepted.
    """

    def __init__(
        self,
        *given: CommGroup | VariableRetrievalMode | int,
        sharedVariableDomain_: CommGroup | None = None,
        retrievalMode_: VariableRetrievalMode = VariableRetrievalMode.OnePerGroup,
        stride: int | None = None,
        groupSize: int | None = None,
        mode: VariableRetrievalMode | None = None,
    ) -> None:
        domains = [one for one in given if isinstance(one, CommGroup)]
        modes = [one for one in given if isinstance(one, VariableRetrievalMode)]
        numbers = [int(o) for o in given if not isinstance(o, CommGroup | VariableRetrievalMode)]
        numbers += [one for one in (stride, groupSize) if one is not None]
        if len(numbers) not in (0, 2) or (numbers and (domains or sharedVariableDomain_)):
            raise TypeError("VariableSettings(CommGroup, mode) or (stride, groupSize, mode)")
        self._mode = (modes or [mode or retrievalMode_])[0]
        self._domain = None if numbers else (domains or [sharedVariableDomain_ or CommGroup()])[0]
        self._stride, self._size = numbers or (0, self._shared().replicaGroupSize)
        self.verify()

    def _shared(self) -> CommGroup:
        return self._domain or CommGroup()

    def verify(self) -> None:
        """Fails if a group is empty."""
        if self._domain is None:
            _positive(self._stride, "stride", "VariableSettings")
            _positive(self._size, "group size", "VariableSettings")
            self._stride = 1 if self._size == 1 else self._stride
        elif self._domain.type in _SIZED and self._domain.replicaGroupSize < 1:
            raise popart_internal_exception(
                "VariableSettings had 1 errors!",
                "VariableSettings",
                f"groups of type {self._domain.type.name} need a size",
            )

    def isUsingCommGroup(self) -> bool:
        return self._domain is not None

    def getSharedVariableDomain(self) -> CommGroup:
        if self._domain is None:
            raise popart_exception(
                "The variable settings were not initialised using a `popart::CommGroup` instance.",
                "VariableSettings",
            )
        return self._domain

    def getCommGroupType(self) -> CommGroupType:
        return self._shared().type

    def getStride(self) -> int:
        return self._stride

    def getGroupSize(self) -> int:
        return self._size

    def getRetrievalMode(self) -> VariableRetrievalMode:
        return self._mode

    def getReplicaGrouping(self, numReplicas: int) -> ReplicaGrouping:
        if self._domain is None:
            return ReplicaGrouping(numReplicas, self._stride, self._size)
        stride, size = grouping(int(self._domain.type), self._size, numReplicas)
        return ReplicaGrouping(numReplicas, stride, size)

    def groups(self, replicaCount: int) -> list[list[int]]:
        """The replicas of each group."""
        return self.getReplicaGrouping(replicaCount).groups

    def getGroupCount(self, replicaCount: int) -> int:
        return len(self.groups(replicaCount))

    groupCount = getGroupCount
    """The name until PopART 2.6."""

    def getRealGroupSize(self, replicaCount: int) -> int:
        return self.getReplicaGrouping(replicaCount).groupSize

    def getGroupRepresentative(self, group: int) -> int:
        """The first replica of a group."""
        match None if self._domain is None else self._domain.type:
            case None:
                return self.groups(self._size * self._stride * (group + 1))[group][0]
            case CommGroupType.All:
                return 0
            case CommGroupType.Consecutive:
                return self._size * group
            case _:
                return group

    def numReplicasReturningVariable(self, replicaCount: int) -> int:
        if self._mode is VariableRetrievalMode.AllReplicas:
            return replicaCount
        return self.getGroupCount(replicaCount)

    def shapeOnReplica(self, shape: Sequence[int], replicaCount: int, name: str) -> list[int]:
        """The shape on one replica, given that of the array with all groups."""
        count = self.getGroupCount(replicaCount)
        if count == 1:
            return list(shape)
        if not shape or shape[0] != count:
            raise popart_internal_exception(
                f"Return mismatch with possibly appended outer dimension "
                f'({shape[0] if shape else "none"}) of Tensor: "{name}". '
                f"should match numGroups: {count}"
            )
        return list(shape[1:])

    def shapeOnHost(self, shape: Sequence[int], replicaCount: int) -> list[int]:
        """The shape of the array with the values of all groups."""
        count = self.getGroupCount(replicaCount)
        return list(shape) if count == 1 else [count, *shape]

    def __str__(self) -> str:
        kind = None if self._domain is None else self._domain.type
        told = f"stide={self._stride}" if kind is None else f"commGroupType={kind.name}"
        return f"VariableSettings({told}, groupSize={self._size}, retrievalMode={self._mode.name})"

    def _key(self) -> tuple[object, ...]:
        kind = None if self._domain is None else self._domain.type
        return kind, self._stride, self._size, self._mode

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VariableSettings) and self._key() == other._key()

    __hash__ = None  # type: ignore[assignment]


_SIZED = (CommGroupType.Consecutive, CommGroupType.Orthogonal)


def _positive(count: int, words: str, of: str) -> None:
    if count < 1:
        raise popart_exception(
            f"The {words} in a `popart::{of}` must be a positive integer.", of, f"it is {count}"
        )


REPLICATION = "__replicationFactor"
"""Metadata key for the number of replicas of the weights."""
_STREAM_MODE = "__replicated_stream_mode/"
_EXCHANGE = "__exchange_strategy/"
_TILES = "__tile_set/"
GROUPS = "__variable_groups/"


def stream_notes(id: str, settings: InputSettings) -> dict[str, str]:
    """Metadata about the stream of an input that differs from the defaults."""
    mode, strategy = settings.replicatedStreamMode(), settings.exchangeStrategy()
    notes = {}
    if mode is ReplicatedStreamMode.Broadcast:
        notes[_STREAM_MODE + id] = str(int(mode))
    if strategy is not ExchangeStrategy.JustInTime:
        notes[_EXCHANGE + id] = str(int(strategy))
    if settings.tileSet() is not TileSet.Compute:
        notes[_TILES + id] = str(int(settings.tileSet()))
    return notes


def _noted(prefix: str, notes: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """The tensors and values of metadata with this prefix."""
    return ((key.removeprefix(prefix), value) for key, value in notes if key.startswith(prefix))


def exchange_strategies(notes: Iterable[tuple[str, str]]) -> dict[str, ExchangeStrategy]:
    """The exchange strategies of inputs other than just in time."""
    return {id: ExchangeStrategy(int(value)) for id, value in _noted(_EXCHANGE, notes)}


def input_tiles(notes: Iterable[tuple[str, str]]) -> dict[str, TileSet]:
    """The tile sets of inputs other than the compute tiles."""
    return {id: TileSet(int(value)) for id, value in _noted(_TILES, notes)}


def broadcast_inputs(notes: Iterable[tuple[str, str]]) -> frozenset[str]:
    """The inputs that all replicas share."""
    broadcast = str(int(ReplicatedStreamMode.Broadcast))
    return frozenset(id for id, value in _noted(_STREAM_MODE, notes) if value == broadcast)


def groups_note(id: str, settings: VariableSettings) -> dict[str, str]:
    """Metadata about the replica groups of a weight; empty for the default."""
    if settings == VariableSettings():
        return {}
    if settings.isUsingCommGroup():
        domain = settings.getSharedVariableDomain()
        groups = f"{domain.type.name} {domain.replicaGroupSize}"
    else:
        groups = f"{settings.getStride()} {settings.getGroupSize()}"
    return {GROUPS + id: f"{groups} {settings.getRetrievalMode().name}"}


def grouped_weights(notes: Iterable[tuple[str, str]]) -> dict[str, VariableSettings]:
    """The weights with replica groups or special retrieval."""
    return {id: _settings(value) for id, value in _noted(GROUPS, notes)}


def _settings(text: str) -> VariableSettings:
    kind, size, mode = text.split()
    retrieval = VariableRetrievalMode[mode]
    if kind.isdigit():
        return VariableSettings(int(kind), int(size), retrieval)
    return VariableSettings(CommGroup(CommGroupType[kind], int(size)), retrieval)
