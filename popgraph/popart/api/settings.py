"""The groups of settings in session options, and the settings of an input."""

from __future__ import annotations

from dataclasses import InitVar, dataclass, field
from operator import attrgetter

from popgraph.builder.opset.arguments import typed
from popgraph.builder.opset.enums import (
    AccumulateOuterFragmentSchedule,
    AutodiffStitchStrategy,
    BatchSerializationBatchSchedule,
    BatchSerializationMethod,
    BatchSerializationTransformContext,
    CommGroup,
    ExchangeStrategy,
    ExecutionPhaseIOSchedule,
    ExecutionPhaseSchedule,
    GradientTensorTrackingMethod,
    ReplicatedStreamMode,
    ReplicatedTensorSharding,
    TensorStorage,
    TileSet,
)


def same(name: str) -> property:
    """An alias of an option, as PopART's Python code reads it from C++."""
    return property(
        attrgetter(name),
        lambda options, value: setattr(options, name, value),
        doc=f"`{name}`.",
    )


@typed
@dataclass(slots=True, init=False)
class TensorLocation:
    """
    The storage of a tensor: on or off chip, tiles, and sharding over replicas.

    `TensorLocation()`, `(storage)`, `(storage, sharding[, domain])` and `(storage, load tiles,
    storage tiles, sharding[, domain])` are all accepted.
    """

    storage: TensorStorage
    loadTileSet: TileSet
    storageTileSet: TileSet
    replicatedTensorSharding: ReplicatedTensorSharding
    shardingDomain: CommGroup

    def __init__(
        self,
        storage: TensorStorage = TensorStorage.OnChip,
        *rest: TileSet | ReplicatedTensorSharding | CommGroup,
        loadTileSet: TileSet = TileSet.Compute,
        storageTileSet: TileSet = TileSet.Compute,
        replicatedTensorSharding: ReplicatedTensorSharding = ReplicatedTensorSharding.Off,
        shardingDomain: CommGroup | None = None,
    ) -> None:
        self.storage = storage
        tiles = [value for value in rest if isinstance(value, TileSet)]
        self.loadTileSet, self.storageTileSet = tiles or (loadTileSet, storageTileSet)
        sharding = [value for value in rest if isinstance(value, ReplicatedTensorSharding)]
        self.replicatedTensorSharding = (sharding or [replicatedTensorSharding])[0]
        domain = [value for value in rest if isinstance(value, CommGroup)]
        self.shardingDomain = (domain or [shardingDomain or CommGroup()])[0]

    def serialize(self) -> list[int]:
        """The location as integers in PopART's order, as stored in models."""
        tiles = (self.loadTileSet, self.storageTileSet)
        kinds = (self.storage, *tiles, self.replicatedTensorSharding, self.shardingDomain.type)
        return [*map(int, kinds), self.shardingDomain.replicaGroupSize]


@typed
@dataclass(slots=True, init=False)
class TensorLocationSettings:
    """A location, or its storage alone, and the minimal sizes of tensors for it."""

    location: TensorLocation
    minElementsForOffChip: int
    minElementsForReplicatedTensorSharding: int

    def __init__(
        self,
        location: TensorLocation | TensorStorage | None = None,
        minElementsForOffChip: int = 2,
        minElementsForReplicatedTensorSharding: int = 8192,
        storage: TensorStorage | None = None,
    ) -> None:
        given = location or storage or TensorLocation()
        self.location = TensorLocation(given) if isinstance(given, TensorStorage) else given
        self.minElementsForOffChip = minElementsForOffChip
        self.minElementsForReplicatedTensorSharding = minElementsForReplicatedTensorSharding


@typed
@dataclass(slots=True)
class AutomaticLossScalingSettings:
    """Dynamic loss scaling by the range of gradients."""

    enabled: bool = False
    toTrackTensors: list[str] | None = None
    binEdgeLocation: float = 0.125
    thresholdUpperCountProportion: float = 1e-7
    updatePeriod: int = 1
    gradientTensorTrackingMethod: GradientTensorTrackingMethod = (
        GradientTensorTrackingMethod.AllNonViewChangingGradientTensors
    )


@typed
@dataclass(slots=True)
class AutodiffSettings:
    """Source of forward values in the backward graph."""

    stitchStrategy: AutodiffStitchStrategy = AutodiffStitchStrategy.RecomputeAllNonInputs


@typed
@dataclass(slots=True)
class BatchSerializationSettings:
    """Batch serialization: parts of a batch run one after the other."""

    factor: int = 0
    concatOnVirtualGraphChange: bool = True
    concatOnExecutionPhaseChange: bool = True
    concatOnPipelineStageChange: bool = True
    transformContext: BatchSerializationTransformContext = BatchSerializationTransformContext.Fwd
    method: BatchSerializationMethod = BatchSerializationMethod.UnrollDynamic
    batchSchedule: BatchSerializationBatchSchedule = BatchSerializationBatchSchedule.Isomorphic


@typed
@dataclass(slots=True)
class ExecutionPhaseSettings:
    """Execution phases, which load weights in between."""

    phases: int = 0
    stages: int = 2
    weightIOSchedule: ExecutionPhaseIOSchedule = ExecutionPhaseIOSchedule.Preload
    activationIOSchedule: ExecutionPhaseIOSchedule = ExecutionPhaseIOSchedule.Preload
    optimizerStateIOSchedule: ExecutionPhaseIOSchedule = ExecutionPhaseIOSchedule.OnDemand
    accumulatorIOSchedule: ExecutionPhaseIOSchedule = ExecutionPhaseIOSchedule.Preload
    schedule: ExecutionPhaseSchedule = ExecutionPhaseSchedule.Interleaving
    optimizerSchedule: InitVar[ExecutionPhaseSchedule | None] = None
    """The name of the schedule in PopART's constructor."""

    def __post_init__(self, optimizerSchedule: ExecutionPhaseSchedule | None) -> None:
        if optimizerSchedule is not None:
            self.schedule = optimizerSchedule


@typed
@dataclass(slots=True)
class AccumulateOuterFragmentSettings:
    """The order of the operations outside the accumulation loop."""

    schedule: AccumulateOuterFragmentSchedule = AccumulateOuterFragmentSchedule.Serial
    excludedVirtualGraphs: list[int] = field(default_factory=list)


@typed
@dataclass(slots=True)
class ReplicatedCollectivesSettings:
    """Merging of collective operations."""

    prepareScheduleForMergingCollectives: bool = False
    mergeAllReduceCollectives: bool = False
    mergeReduceScatterCollectives: bool = False
    mergeAllGatherCollectives: bool = False


@typed
@dataclass(slots=True)
class ExperimentalSettings:
    """Experimental settings of PopART."""

    customTransformApplierSettings: dict[str, list[str]] = field(default_factory=dict)
    createHostTransferableTensorWithOffset: bool = False
    _customTransformApplierSettings = same("customTransformApplierSettings")


@typed
class InputSettings:
    """Placement of one input's stream."""

    def __init__(
        self,
        tileSet: TileSet | ReplicatedStreamMode = TileSet.Compute,
        exchangeStrategy: ExchangeStrategy = ExchangeStrategy.JustInTime,
        *,
        relicatedStreamMode: ReplicatedStreamMode = ReplicatedStreamMode.Replicate,
    ) -> None:
        if isinstance(tileSet, ReplicatedStreamMode):
            relicatedStreamMode = tileSet
        self._tile_set = tileSet if isinstance(tileSet, TileSet) else TileSet.Compute
        self._exchange = exchangeStrategy
        self._mode = relicatedStreamMode

    def tileSet(self) -> TileSet:
        return self._tile_set

    def exchangeStrategy(self) -> ExchangeStrategy:
        return self._exchange

    def replicatedStreamMode(self) -> ReplicatedStreamMode:
        return self._mode
