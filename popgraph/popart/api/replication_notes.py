"""What a model says of streams and replicas: properties that name a tensor, as in PopART."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from popgraph.builder.opset.comm_group import CommGroup
from popgraph.builder.opset.enums import (
    CommGroupType,
    ExchangeStrategy,
    ReplicatedStreamMode,
    TileSet,
    VariableRetrievalMode,
)
from popgraph.popart.api.settings import InputSettings
from popgraph.popart.api.variable_settings import VariableSettings

REPLICATION = "__replicationFactor"
"""How many replicas the weights were made for."""
_STREAM_MODE = "__replicated_stream_mode/"
_EXCHANGE = "__exchange_strategy/"
_TILES = "__tile_set/"
GROUPS = "__variable_groups/"


def stream_notes(id: str, settings: InputSettings) -> dict[str, str]:
    """Says when and where an input comes, and how replicas share it; not what holds unasked."""
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
    """The tensors of which notes of a kind speak, and what they say."""
    return ((key.removeprefix(prefix), value) for key, value in notes if key.startswith(prefix))


def exchange_strategies(notes: Iterable[tuple[str, str]]) -> dict[str, ExchangeStrategy]:
    """When inputs come, where it is not just in time."""
    return {id: ExchangeStrategy(int(value)) for id, value in _noted(_EXCHANGE, notes)}


def input_tiles(notes: Iterable[tuple[str, str]]) -> dict[str, TileSet]:
    """The tiles to which inputs come that are not those that compute."""
    return {id: TileSet(int(value)) for id, value in _noted(_TILES, notes)}


def broadcast_inputs(notes: Iterable[tuple[str, str]]) -> frozenset[str]:
    """The inputs of which all replicas get the same."""
    broadcast = str(int(ReplicatedStreamMode.Broadcast))
    return frozenset(id for id, value in _noted(_STREAM_MODE, notes) if value == broadcast)


def groups_note(id: str, settings: VariableSettings) -> dict[str, str]:
    """Says which replicas share a weight; nothing where all of them do, as they do unasked."""
    if settings == VariableSettings():
        return {}
    if settings.isUsingCommGroup():
        domain = settings.getSharedVariableDomain()
        groups = f"{domain.type.name} {domain.replicaGroupSize}"
    else:
        groups = f"{settings.getStride()} {settings.getGroupSize()}"
    return {GROUPS + id: f"{groups} {settings.getRetrievalMode().name}"}


def grouped_weights(notes: Iterable[tuple[str, str]]) -> dict[str, VariableSettings]:
    """The weights that not all replicas share, or of which not one value comes back."""
    return {id: _settings(value) for id, value in _noted(GROUPS, notes)}


def _settings(text: str) -> VariableSettings:
    kind, size, mode = text.split()
    retrieval = VariableRetrievalMode[mode]
    if kind.isdigit():
        return VariableSettings(int(kind), int(size), retrieval)
    return VariableSettings(CommGroup(CommGroupType[kind], int(size)), retrieval)
