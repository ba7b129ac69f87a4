"""Where weights and states would be on an IPU, as options ask for it: reports tell it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from popgraph.builder.opset.enums import ReplicatedTensorSharding, TensorStorage
from popgraph.builder.opset.tensorinfo import TensorInfo
from popgraph.builder.popart.names import RESERVED_PREFIXES
from popgraph.session.grouped_weights import Grouped
from popgraph.session.options import SessionOptions
from popgraph.session.settings import TensorLocation, TensorLocationSettings

_ACCUMULATED = ("Accum", "AcclToReduce", "AcclToUpdate", "AcclFinalOut")
_STATES = ("Accl1", "Accl2", "Accl3", "Step")
_BOTH = RESERVED_PREFIXES["reservedAcclPrefix"]
"""What is both: the velocity of SGD, to which gradients are added."""

_SHARDED = ReplicatedTensorSharding.On


def _prefixed(id: str, kinds: tuple[str, ...]) -> bool:
    return id.startswith(tuple(RESERVED_PREFIXES[f"reserved{kind}Prefix"] for kind in kinds))


def _settings(id: str, options: SessionOptions) -> TensorLocationSettings:
    """The settings that speak of a weight, of a state, or of what is accumulated."""
    accumulates = options.enableGradientAccumulation and options.accumulationFactor > 1
    if _prefixed(id, _ACCUMULATED) or (id.startswith(_BOTH) and accumulates):
        return options.accumulatorTensorLocationSettings
    if _prefixed(id, _STATES) or id.startswith(_BOTH):
        return options.optimizerStateTensorLocationSettings
    return options.weightTensorLocationSettings


def location_of(
    id: str, info: TensorInfo, options: SessionOptions, grouped: Grouped
) -> TensorLocation:
    """Where PopART would put a variable: too few elements stay on the chip, and whole."""
    settings, count = _settings(id, options), info.nelms()
    asked = options.tensorLocationSettingsOverride.get(id)
    where = settings.location if asked is None else asked
    storage, sharding = where.storage, where.replicatedTensorSharding
    if asked is None and count < settings.minElementsForOffChip:
        storage = TensorStorage.OnChip
    small = asked is None and count < settings.minElementsForReplicatedTensorSharding
    replicated = options.enableReplicatedGraphs and options.replicatedGraphCount > 1
    alone = id in grouped and len(grouped[id].groups) == grouped[id].replicas
    if small or not replicated or alone:
        sharding = ReplicatedTensorSharding.Off
    tiles = (where.loadTileSet, where.storageTileSet)
    return TensorLocation(storage, *tiles, sharding, where.shardingDomain)


def told(
    variables: Mapping[str, TensorInfo], options: SessionOptions, grouped: Grouped
) -> Iterator[str]:
    """A line for every variable that an IPU would have elsewhere than whole on its chip."""
    for id, info in sorted(variables.items()):
        found = location_of(id, info, options, grouped)
        words = [found.storage.name] if found.storage is not TensorStorage.OnChip else []
        if found.replicatedTensorSharding is _SHARDED:
            words.append(f"sharded over {options.replicatedGraphCount} replicas")
        if words:
            yield f"  {id}: {', '.join(words)} on an IPU"
