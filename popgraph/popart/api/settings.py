"""The groups of settings inside of session options, and those of an input."""

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
    """An option under the name by which PopART's own Python reads it from C++."""
    return property(
        attrgetter(name),
        lambda options, value: setattr(options, name, value),
        doc=f"`{name}`.",
    )


@typed
@dataclass(slots=True, init=False)
class TensorLocation:
    """
    On or off chip, by which tiles, and whether spread over replicas.

    `TensorLocation()`, `(storage)`, `(storage, sharding[, domain])` and
    `(storage, load tiles, storage tiles, sharding[, domain])` are all accepted.
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
        """As a model has it, in PopART's order."""
        tiles = (self.loadTileSet, self.storageTileSet)
        kinds = (self.storage, *tiles, self.replicatedTensorSharding, self.shardingDomain.type)
        return [*map(int, kinds), self.shardingDomain.replicaGroupSize]


@typed
@dataclass(slots=True, init=False)
class TensorLocationSettings:
    """A location, or the storage of one, and the sizes from which on it applies."""

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
    """Loss scaling that follows the gradients' range."""

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
    """How the backward graph gets forward values."""

    stitchStrategy: AutodiffStitchStrategy = AutodiffStitchStrategy.RecomputeAllNonInputs


@typed
@dataclass(slots=True)
class BatchSerializationSettings:
    """Cutting a batch into pieces that run one after the other."""

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
    """Running a model in phases, with weights loaded in between."""

    phases: int = 0
    stages: int = 2
    weightIOSchedule: ExecutionPhaseIOSchedule = ExecutionPhaseIOSchedule.Preload
    activationIOSchedule: ExecutionPhaseIOSchedule = ExecutionPhaseIOSchedule.Preload
    optimizerStateIOSchedule: ExecutionPhaseIOSchedule = ExecutionPhaseIOSchedule.OnDemand
    accumulatorIOSchedule: ExecutionPhaseIOSchedule = ExecutionPhaseIOSchedule.Preload
    schedule: ExecutionPhaseSchedule = ExecutionPhaseSchedule.Interleaving
    optimizerSchedule: InitVar[ExecutionPhaseSchedule | None] = None
    """What PopART's constructor calls the schedule."""

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
    """Settings that PopART never promised to keep."""

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
