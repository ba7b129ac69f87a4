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
    """An option under its old name, of which setting it warns."""

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

    Options that only place, order or instrument the work are accepted and change no result.
    Those that would change results and are not implemented are refused when a session is made.
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

    # What PopART does not have: how code is made for a CPU.
    enableWinograd: bool = True
    """3x3 convolutions may be computed with fewer multiplications, which rounds differently."""
    scheduleFile: str = ""
    """How contractions are to run, as `popgraph schedules` writes it."""
    useTunedSchedules: bool = True
    """Follow what `popgraph tune` measured on this machine."""
    indices: str | None = None
    """What an index out of range means that data brings: "error", as None does, or
    "nearest"."""
    exchangeType: str = ""
    """In which type processes tell each other gradients: "f16", "bf16" or "f32"; unasked in that
    of the weight, or in single precision for weights of half."""
    exchangeBucketBytes: int = Options.bucket_bytes
    """Gradients are told together until they take so much."""
    overlapStages: bool = False
    """Stages of a pipeline run side by side, each on some of the threads of the device."""
    enableStraightThrough: bool = False
    """Gradients pass QuantizeLinear and DequantizeLinear as if nothing were rounded."""
    enableQuickStart: bool = False
    """`prepareDevice` ends sooner: a plain program runs until the tuned one, which is built in the
    background, takes over between two batches."""

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
        """PopART's switch for its newer IR; here it only sets the options it stands for."""
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
        """From how many elements on processes share out the states of a weight; 0: never."""
        return _sharded_from(self.optimizerStateTensorLocationSettings)

    @property
    def gradients_sharded_from(self) -> int:
        """From how many elements on they share out what is added up of gradients; 0: never."""
        return _sharded_from(self.accumulatorTensorLocationSettings)

    @property
    def weights_sharded_from(self) -> int:
        """From how many elements on they share out the weight itself; 0: never."""
        return _sharded_from(self.weightTensorLocationSettings)

    def compilation(self) -> Options:
        """What the options say about how code is made."""
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

    def log_what_has_no_effect(self) -> None:
        """A line for each option of an IPU's libraries, which nothing here reads."""
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
"""What gradients compute again: all of PopART's ways but norms are the one that keeps least."""

_NO_EFFECT = "%s['%s'] = '%s' has no effect on this machine"

_FOR_LIBRARIES = (
    "engineOptions",
    "convolutionOptions",
    "lstmOptions",
    "matmulOptions",
    "reportOptions",
    "gclOptions",
)
"""Options of Poplar's engine and libraries; kernels here are chosen by schedules instead."""

SHOW_VARIABLES, SHOW_STEPS = "showVarStorage", "showExecutionSteps"
"""The report options that say what else a summary shows; each is "true" or "false"."""
_WITH_EFFECT = frozenset({("reportOptions", SHOW_VARIABLES), ("reportOptions", SHOW_STEPS)})
