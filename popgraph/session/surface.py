"""PopART's public names, and what each of them does here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from popgraph.builder.popart.pattern_names import OTHERS as LATER_PATTERNS
from popgraph.builder.popart.pattern_names import PRE_ALIAS


class Standing(Enum):
    """What a name of PopART does here."""

    WORKS = "works"
    QUIET = "accepted without effect"
    REFUSED = "refused, as PopART without an IPU"
    MISSING = "not here yet"


@dataclass(frozen=True)
class Entry:
    """A name, what it belongs to ("" is the module itself), what it does, and why no more."""

    owner: str
    name: str
    standing: Standing
    why: str = ""


_ONE_DEVICE = "all replicas are in one memory: there is nothing to place"
_SCHEDULE = "orders or copies work on an IPU; results do not depend on it"
_SHOWN = "shown in `_serializeIr`; results do not depend on it"
_POPLAR = "speaks to Poplar's libraries, which are not here"
_POPEF = "executables are cached by themselves; PopEF is Graphcore's format"

WORKS: Mapping[str, str] = {
    "": """
        AccumulateOuterFragmentSettings Adam Adaptive AiGraphcoreOpset1 AiOnnxOpset6 AiOnnxOpset7
        AiOnnxOpset8 AiOnnxOpset9 AiOnnxOpset10 AiOnnxOpset11 AnchorReturnType
        AttributeContextManager AutomaticLossScalingSettings Builder ClipNormSettings ConstSGD
        DataFlow DebugContext defaultAiGraphcoreOpset
        defaultAiOnnxMlOpset defaultAiOnnxOpset DeviceInfo DeviceManager getLogger
        getSupportedOperations getSupportedOperationsDefinition getTensorInfo
        getUnsupportedOperations CommGroup VariableSettings GraphTransformer IdentityLoss
        InferenceSession InputSettings InputShapeInfo KeyValueContextManager L1Loss Logger Loss
        NameContextManager NllLoss NumericsReport OpDefinition
        OperatorIdentifier Optimizer optimizer_replacement_error OptimizerValue
        OptimizerValueMap OutOfMemoryError OutOfMemoryException packageHash Patterns
        popart_exception
        popart_internal_exception popart_runtime_error popart_unsupported_exception
        poplar_application_runtime_error poplar_exception poplar_recoverable_runtime_error
        poplar_runtime_error poplar_system_runtime_error poplar_unknown_runtime_error
        poplar_unrecoverable_runtime_error poplibs_exception IStepIO IWeightsIO PyStepIO
        PyStepIOCallback PyWeightsIO SessionOptions SGD StepIO syncPatternFromString
        syncPatternToString
        TensorInfo TrainingSession versionNumber versionString
        _throw_popart_error _throw_popart_internal_error _throw_popart_runtime_error
        _throw_poplibs_error _throw_poplar_error _throw_poplar_runtime_error
        _throw_application_runtime_error _throw_system_runtime_error
        _throw_recoverable_runtime_error _throw_unrecoverable_runtime_error
        _throw_unknown_runtime_error
        _BuilderCore _InferenceSessionCore _TensorInfoCore _TrainingSessionCore
    """,
    "Builder": """
        addInitializedInputTensor addInputTensor addInputTensorFromParentGraph addNodeAttribute
        commGroup
        addOutputTensor addUntypedInputTensor aiGraphcore aiGraphcoreOpset1 aiOnnx aiOnnxMlOpset1
        aiOnnxOpset aiOnnxOpsetVersion checkpointOutput createSubgraphBuilder customOp
        embedReplicationFactor executionPhase getAllNodeAttributeNames getExecutionPhase
        getFloatNodeAttribute getFloatVectorNodeAttribute getInputTensorIds
        getInt64NodeAttribute getInt64VectorNodeAttribute getModelProto getNameScope
        getNodeAttribute getOutputTensorIds getPartialsType getPipelineStage
        getRecomputeOutputInBackwardPass getStringNodeAttribute getStringVectorNodeAttribute
        getTensorDtypeString getTensorShape getTrainableTensorIds getValueTensorIds
        getVirtualGraph hasExecutionPhase hasPipelineStage hasValueInfo hasVirtualGraph
        isInitializer nameScope nodeHasAttribute recomputeOutput recomputeOutputInBackwardPass
        pipelineStage removeNodeAttribute reshape_const saveInitializersExternally saveModelProto
        setGraphName virtualGraph
    """,
    "InferenceSession": """
        areHostWeightsInSync checkInplacingAmbiguity copyDeviceWeightsToHost getAllTensorIds
        markHostWeightsInSync markHostWeightsOutOfSync setEngineIsLoaded
    """,
    "TrainingSession": """
        broadcastWeights getTensorIds updateOptimizer updateOptimizerFromHost
    """,
    "Session": """
        accumulationFactor dataFlow getInfo getIr getRandomSeed getRNGState initAnchorArrays
        loadEngineAndConnectStreams modelToHost optimizerFromHost prepareDevice readWeights
        replicationFactor resetHostWeights run setDevice setRandomSeed setRNGState weights
        weightsFromHost weightsToHost writeWeights getExecutionReport getGraphReport getReport
        getCycleCount getSerializedGraph getSummaryReport getTensorTileMap
        updateExternallySavedTensorLocations
    """,
    "SessionOptions": """
        accumulationAndReplicationReductionType accumulationFactor
        accumulatorTensorLocationSettings
        automaticLossScalingSettings autoRecomputation constantWeights
        createImplicitPipeliningFwdOnlyProgram disableGradAccumulationTensorStreams
        disableOptimizerStateTensorStreams dotChecks dotOpNames
        enableExplicitIR enableExplicitMainLoops enableFloatingPointChecks explicitRecomputation
        enableGradientAccumulation enableLoadAndOffloadRNGState enableStochasticRounding
        enableDistributedReplicatedGraphs enablePipelining enableReplicatedGraphs engineOptions
        finalDotOp firstDotOp globalReplicaOffset globalReplicationFactor
        getGlobalReplicationFactor groupNormStridedChannelGrouping logDir
        meanAccumulationAndReplicationReductionStrategy
        optimizerStateTensorLocationSettings replicatedGraphCount syntheticDataMode useHostCopyOps
        weightTensorLocationSettings
    """,
}
"""What each class, and the module, has that does what it says."""

OTHERS: Mapping[str, Mapping[tuple[Standing, str], str]] = {
    "": {
        (Standing.QUIET, _ONE_DEVICE): """
            ReplicatedCollectivesSettings TensorLocation TensorLocationSettings
        """,
        (Standing.QUIET, _SCHEDULE): """
            AutodiffSettings BatchSerializationSettings ExecutionPhaseSettings
            ExperimentalSettings
        """,
        (Standing.QUIET, _POPLAR): "closePoplarDebugInfo initializePoplarDebugInfo",
        (Standing.QUIET, "kept, but nothing reads it"): "DebugInfo NumIOTiles SourceLocation",
    },
    "Builder": {
        (Standing.QUIET, "a note in the model, which getIr heeds; the CPU's own passes decide"): """
            excludePatterns outlineAttributes schedulePriority
            setAvailableMemoryProportion setEnableConvDithering setInplacePreferences
            setPartialsType setSerializeMatMul
        """,
        (Standing.QUIET, _ONE_DEVICE): "outputTensorLocation",
    },
    "Session": {
        (Standing.REFUSED, _POPEF): """
            compileAndExport loadExecutable saveExecutable saveVariables
        """,
    },
    "TrainingSession": {
        (Standing.QUIET, "cached kernels are looked up whenever needed"): "updateEngineCache",
        (Standing.REFUSED, _POPLAR): "connectStreamToCallback",
    },
    "SessionOptions": {
        (Standing.REFUSED, "other values than the default would change results"): """
            customCodelets
        """,
        (Standing.QUIET, _ONE_DEVICE): """
            groupHostSync virtualGraphMode
            virtualGraphSplitRatios
        """,
        (Standing.QUIET, _SHOWN): """
            activationTensorLocationSettings decomposeGradSum delayVarUpdates enableOutlining
            enableFullyConnectedPass ensureFp32LossScaleTensor
            enableMergeExchange executionPhaseSettings mergeVarUpdate mergeVarUpdateMemThreshold
            numIOTiles replicatedCollectivesSettings batchSerializationSettings
            kahnTieBreaker outlineThreshold partialsTypeMatMuls
            scheduleNonWeightUpdateGradientConsumersEarly
            swapLimitScheduler tensorLocationSettingsOverride timeLimitScheduler
        """,
        (Standing.QUIET, _SCHEDULE): """
            accumulateOuterFragmentSettings aliasZeroCopy
            bufferingDepthMap defaultBufferingDepth
            defaultPrefetchBufferingDepth
            enableConstantFoldingOfMultipleConsumers enableEfficientOverlapIOTopoCons
            enableInplaceAmbiguityChecking
            enableOutliningCopyCostPruning enablePrefetchDatastreams
            experimentalSettings outlineSequenceBreakCost
            prefetchBufferingDepthMap rearrangeAnchorsOnHost rearrangeStreamsOnHost
            separateCallOpPdfs
            stashAllTensorsInferencePipeline subgraphCopyingStrategy
            transitiveClosureOptimizationThreshold useLoopCandidateCreator
        """,
        (Standing.QUIET, "tells Poplar's libraries how to compute; ours decide themselves"): """
            convolutionOptions customCodeletCompileFlags enableNonStableSoftmax enableStableNorm
            gclOptions lstmOptions matmulOptions
            _enableRngStateManagement throwIfLog2ScaleTensorNotInRange
        """,
        (Standing.QUIET, "all weights are sent alike: PopART's Python has no buffersFromHost"): """
            updatableNamedBuffers
        """,
        (Standing.QUIET, "64-bit numbers stay what they are"): """
            enableSupportedDataTypeCasting
        """,
        (Standing.QUIET, "every operator keeps the version that its model asks for"): """
            strictOpVersions
        """,
        (Standing.QUIET, "instruments, logs or draws what is not there; `popgraph print` does"): """
            exportPoplarComputationGraph exportPoplarVertexGraph
            hardwareInstrumentations instrumentWithHardwareCycleCounter
            opxAliasChecking opxModifyChecking reportOptions serializedPoprithmsAnnealGraphsDir
            serializedPoprithmsShiftGraphsDir
        """,
        (Standing.QUIET, "kernels are cached by themselves"): """
            cachePath compileEngine enableEngineCaching enableVariablesCaching
        """,
    },
    "Patterns": {
        (Standing.QUIET, "only operators of PopXL need it"): """
            AllReduceToIdentity DecomposeBinaryConstScalar
        """,
        (Standing.QUIET, "says where an IPU's tiles keep or overwrite what; getIr is the same"): """
            InitAccumulate
        """,
        (Standing.QUIET, "getIr shows this operator, and the bodies of loops, as written"): """
            LoopScanOut PackedDataBlock
        """,
        (Standing.QUIET, "getIr takes the norm of a weight, be it used in parts or not"): """
            LambSerialisedWeight
        """,
        (Standing.QUIET, "a loss scale is made in the type that the loss has"): """
            RemoveUnnecessaryLossGradCast
        """,
        (Standing.QUIET, _ONE_DEVICE): "SplitGather",
    },
}
"""What does less than its name says, or is not here, by what it does and why."""


def _patterns_that_work() -> str:
    """Those that change what `getIr` shows, or switch a pass."""
    quiet = {name for names in OTHERS["Patterns"].values() for name in names.split()}
    return " ".join((PRE_ALIAS | LATER_PATTERNS) - quiet)


def entries() -> Iterator[Entry]:
    """
    Every public name of PopART but the members of enumerations, classes one after the other, and
    then the patterns.
    """
    for owner, names in {**WORKS, "Patterns": _patterns_that_work()}.items():
        found = [Entry(owner, name, Standing.WORKS) for name in names.split()]
        for (standing, why), others in OTHERS.get(owner, {}).items():
            found += [Entry(owner, name, standing, why) for name in others.split()]
        yield from sorted(found, key=lambda entry: entry.name.lower())
