"""PopART's `SessionOptions`: every option, and which of them have an effect."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path

from popgraph.builder.opset.arguments import typed
from popgraph.builder.opset.enums import (
    Instrumentation,
    MeanReductionStrategy,
    MergeVarUpdateType,
    RecomputationType,
    ReductionType,
    ReplicatedTensorSharding,
    SubgraphCopyingStrategy,
    SyntheticDataMode,
    VirtualGraphMode,
)
from popgraph.dialects.tile.structured.schedule_file import read_schedules
from popgraph.passes.options import Options
from popgraph.popart.api.logger import deprecated
from popgraph.popart.api.settings import (
    AccumulateOuterFragmentSettings,
    AutomaticLossScalingSettings,
    BatchSerializationSettings,
    ExecutionPhaseSettings,
    ExperimentalSettings,
    ReplicatedCollectivesSettings,
    TensorLocation,
    TensorLocationSettings,
    same,
)
from popgraph.support.logs import log_of


def _deprecated(old: str, new: str) -> property:
    """An option under its deprecated name; setting it warns."""

    def set_new(options: SessionOptions, value: object) -> None:
        deprecated(
            f"The session option {old} has been deprecated and will be removed in a future "
            f"release. Please use the alias {new} instead."
        )
        setattr(options, new, value)

    return property(attrgetter(new), set_new)


@typed
@dataclass(slots=True)
class SessionOptions:
    """
    The options of a session. An unknown name is an AttributeError.

    Options that only place, order or instrument work are accepted without effect on results.
    Options that would change results but are not implemented are rejected by the session.
    """

    logDir: str = ""
    exportPoplarComputationGraph: bool = False
    exportPoplarVertexGraph: bool = False
    syntheticDataMode: SyntheticDataMode = SyntheticDataMode.Off
    instrumentWithHardwareCycleCounter: bool = False
    hardwareInstrumentations: set[Instrumentation] = field(
        default_factory=lambda: {Instrumentation.Outer}
    )
    disableGradAccumulationTensorStreams: bool = False
    disableOptimizerStateTensorStreams: bool = False
    enableOutlining: bool = True
    enableOutliningCopyCostPruning: bool = True
    outlineThreshold: float = 1.0
    outlineSequenceBreakCost: float = 10000.0
    accumulationFactor: int = 1
    enableGradientAccumulation: bool = False
    accumulationAndReplicationReductionType: ReductionType = ReductionType.Sum
    meanAccumulationAndReplicationReductionStrategy: MeanReductionStrategy = (
        MeanReductionStrategy.Post
    )
    enableNonStableSoftmax: bool = False
    enablePipelining: bool = False
    subgraphCopyingStrategy: SubgraphCopyingStrategy = SubgraphCopyingStrategy.OnEnterAndExit
    autoRecomputation: RecomputationType = RecomputationType.NoRecompute
    mergeVarUpdate: MergeVarUpdateType = MergeVarUpdateType.Off
    mergeVarUpdateMemThreshold: int = 1000000
    rearrangeAnchorsOnHost: bool = True
    rearrangeStreamsOnHost: bool = False
    executionPhaseSettings: ExecutionPhaseSettings = field(default_factory=ExecutionPhaseSettings)
    numIOTiles: int = 0
    explicitRecomputation: bool = False
    experimentalSettings: ExperimentalSettings = field(default_factory=ExperimentalSettings)
    batchSerializationSettings: BatchSerializationSettings = field(
        default_factory=BatchSerializationSettings
    )
    aliasZeroCopy: bool = False
    enablePrefetchDatastreams: bool = True
    defaultBufferingDepth: int = 1
    bufferingDepthMap: dict[str, int] = field(default_factory=dict)
    virtualGraphMode: VirtualGraphMode = VirtualGraphMode.Off
    virtualGraphSplitRatios: list[float] = field(default_factory=list)
    enableReplicatedGraphs: bool = False
    replicatedGraphCount: int = 1
    compileEngine: bool = True
    engineOptions: dict[str, str] = field(default_factory=dict)
    convolutionOptions: dict[str, str] = field(default_factory=dict)
    lstmOptions: dict[str, str] = field(default_factory=dict)
    matmulOptions: dict[str, str] = field(default_factory=dict)
    reportOptions: dict[str, str] = field(default_factory=dict)
    gclOptions: dict[str, str] = field(default_factory=dict)
    dotOpNames: bool = False
    separateCallOpPdfs: bool = True
    finalDotOp: int = 10000
    firstDotOp: int = 0
    constantWeights: bool = True
    cachePath: str = "session_cache"
    enableEngineCaching: bool = False
    enableVariablesCaching: bool = True
    enableFloatingPointChecks: bool = False
    enableStochasticRounding: bool = False
    _enableRngStateManagement: bool = False
    enableFullyConnectedPass: bool = True
    partialsTypeMatMuls: str = ""
    enableStableNorm: bool = False
    groupNormStridedChannelGrouping: bool = False
    customCodelets: list[str] = field(default_factory=list)
    updatableNamedBuffers: list[str] = field(default_factory=list)
    customCodeletCompileFlags: str = ""
    kahnTieBreaker: str = "greedy"
    timeLimitScheduler: float = 1e9
    swapLimitScheduler: int = 1000000000
    transitiveClosureOptimizationThreshold: int = 100000
    decomposeGradSum: bool = False
    serializedPoprithmsShiftGraphsDir: str = ""
    enableDistributedReplicatedGraphs: bool = False
    globalReplicationFactor: int = 1
    globalReplicaOffset: int = 0
    groupHostSync: bool = False
    strictOpVersions: bool = True
    opxAliasChecking: bool = False
    opxModifyChecking: bool = False
    activationTensorLocationSettings: TensorLocationSettings = field(
        default_factory=TensorLocationSettings
    )
    weightTensorLocationSettings: TensorLocationSettings = field(
        default_factory=TensorLocationSettings
    )
    optimizerStateTensorLocationSettings: TensorLocationSettings = field(
        default_factory=TensorLocationSettings
    )
    accumulatorTensorLocationSettings: TensorLocationSettings = field(
        default_factory=TensorLocationSettings
    )
    tensorLocationSettingsOverride: dict[str, TensorLocation] = field(default_factory=dict)
    accumulateOuterFragmentSettings: AccumulateOuterFragmentSettings = field(
        default_factory=AccumulateOuterFragmentSettings
    )
    enableLoadAndOffloadRNGState: bool = False
    automaticLossScalingSettings: AutomaticLossScalingSettings = field(
        default_factory=AutomaticLossScalingSettings
    )
    replicatedCollectivesSettings: ReplicatedCollectivesSettings = field(
        default_factory=ReplicatedCollectivesSettings
    )
    useHostCopyOps: bool = False
    enableEfficientOverlapIOTopoCons: bool = False
    enableSupportedDataTypeCasting: bool = True
    enableExplicitMainLoops: bool = False
    enableMergeExchange: bool = True
    ensureFp32LossScaleTensor: bool = False
    delayVarUpdates: bool = True
    scheduleNonWeightUpdateGradientConsumersEarly: bool = False
    dotChecks: set[str] = field(default_factory=set)
    enableInplaceAmbiguityChecking: bool = False
    createImplicitPipeliningFwdOnlyProgram: bool = False
    throwIfLog2ScaleTensorNotInRange: bool = True
    enableConstantFoldingOfMultipleConsumers: bool = True
    useLoopCandidateCreator: bool = False
    stashAllTensorsInferencePipeline: bool = False

    # Extensions of PopGraph: compilation for a CPU.
    enableWinograd: bool = True
    """3x3 convolutions may be computed with fewer multiplications, which rounds differently."""
    scheduleFile: str = ""
    """A schedule file for contractions, as written by `popgraph schedules`."""
    useTunedSchedules: bool = True
    """Follow what `popgraph tune` measured on this machine."""
    indices: str | None = None
    """Treatment of out-of-range indices in data: "error" (same as None) or "nearest"."""
    exchangeType: str = ""
    """
    The type in which processes exchange gradients:

    "f16", "bf16" or "f32"; by default that of the weight, or f32 for f16 weights.
    """
    exchangeBucketBytes: int = Options.bucket_bytes
    """Gradients are exchanged in buckets of this size."""
    overlapStages: bool = False
    """Stages of a pipeline run in parallel, each on some of the device's threads."""
    enableStraightThrough: bool = False
    """Gradients pass through QuantizeLinear and DequantizeLinear unchanged."""
    enableQuickStart: bool = False
    """
    `prepareDevice` returns sooner: an unoptimized program runs until the tuned one, built in the
    background, replaces it between two batches.
    """

    def __post_init__(self) -> None:
        ours, popxl = (os.environ.get(f"{name}_CACHE_DIR") or None for name in ("POPART", "POPXL"))
        if ours is not None and popxl is not None and ours != popxl:
            log_of("popart").warning(
                "Both POPART_CACHE_DIR ('%s') and POPXL_CACHE_DIR ('%s') are set and differ from "
                "each other. The value of POPART_CACHE_DIR will be ignored.",
                ours,
                popxl,
            )
        directory = ours if popxl is None else popxl
        if directory is not None:
            self.enableEngineCaching, self.cachePath = True, directory

    defaultPrefetchBufferingDepth = _deprecated(
        "defaultPrefetchBufferingDepth", "defaultBufferingDepth"
    )
    prefetchBufferingDepthMap = _deprecated("prefetchBufferingDepthMap", "bufferingDepthMap")
    serializedPoprithmsAnnealGraphsDir = same("serializedPoprithmsShiftGraphsDir")

    def enableExplicitIR(self, enable: bool) -> None:
        """PopART's switch for its newer IR; here it only sets the options that it implies."""
        self.enableExplicitMainLoops = enable
        self.useHostCopyOps = enable
        self.explicitRecomputation = enable

    _convolutionOptions = same("convolutionOptions")
    _engineOptions = same("engineOptions")
    _gclOptions = same("gclOptions")
    _lstmOptions = same("lstmOptions")
    _matmulOptions = same("matmulOptions")
    _reportOptions = same("reportOptions")
    _tensorLocationSettingsOverride = same("tensorLocationSettingsOverride")

    def getGlobalReplicationFactor(self) -> int:
        if self.enableDistributedReplicatedGraphs:
            return self.globalReplicationFactor
        return self.replicatedGraphCount if self.enableReplicatedGraphs else 1

    @property
    def states_sharded_from(self) -> int:
        """Elements from which processes shard the states of a weight; 0: never."""
        return _sharded_from(self.optimizerStateTensorLocationSettings)

    @property
    def gradients_sharded_from(self) -> int:
        """Elements from which processes shard accumulated gradients; 0: never."""
        return _sharded_from(self.accumulatorTensorLocationSettings)

    @property
    def weights_sharded_from(self) -> int:
        """Elements from which processes shard the weight itself; 0: never."""
        return _sharded_from(self.weightTensorLocationSettings)

    def compilation(self) -> Options:
        """The compiler options."""
        return Options(
            winograd=self.enableWinograd,
            schedules=read_schedules(Path(self.scheduleFile)) if self.scheduleFile else (),
            measured=None if self.useTunedSchedules else (),
            indices=self.indices,
            straight_through=self.enableStraightThrough,
            bucket_bytes=self.exchangeBucketBytes,
            stochastic_rounding=self.enableStochasticRounding,
            recompute=_RECOMPUTED.get(self.autoRecomputation, ""),
        )

    def log_ignored_options(self) -> None:
        """Logs each option of IPU libraries, which has no effect here."""
        for kind in _FOR_LIBRARIES:
            for option, value in getattr(self, kind).items():
                if (kind, option) not in _WITH_EFFECT:
                    log_of("session").info(_NO_EFFECT, kind, option, value)


def _sharded_from(settings: TensorLocationSettings) -> int:
    if settings.location.replicatedTensorSharding is not ReplicatedTensorSharding.On:
        return 0
    return max(1, settings.minElementsForReplicatedTensorSharding)


_RECOMPUTED = {
    RecomputationType.Standard: "standard",
    RecomputationType.NormOnly: "norms",
    RecomputationType.Pipeline: "standard",
    RecomputationType.RecomputeAll: "standard",
}
"""Recomputation modes: all of PopART's except norms map to the one that keeps least."""

_NO_EFFECT = "%s['%s'] = '%s' has no effect on this machine"

_FOR_LIBRARIES = (
    "engineOptions",
    "convolutionOptions",
    "lstmOptions",
    "matmulOptions",
    "reportOptions",
    "gclOptions",
)
"""Options of Poplar's engine and libraries; schedules replace them here."""

SHOW_VARIABLES, SHOW_STEPS = "showVarStorage", "showExecutionSteps"
"""Report options for further parts of a summary; each is "true" or "false"."""
_WITH_EFFECT = frozenset({("reportOptions", SHOW_VARIABLES), ("reportOptions", SHOW_STEPS)})
