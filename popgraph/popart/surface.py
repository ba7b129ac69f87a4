"""PopART's public names, and what each of them does here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from popgraph.popart.effects import Effect, options, patterns


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
    standing: Standing | Effect
    why: str = ""


_ONE_DEVICE = "all replicas are in one memory: there is nothing to place"
_SCHEDULE = "orders or copies work on an IPU; results do not depend on it"
_POPLAR = "speaks to Poplar's libraries, which are not here"
_POPEF = "executables are cached by themselves; PopEF is Graphcore's format"

WORKS: Mapping[str, str] = {
    "": """
        Adam Adaptive AiGraphcoreOpset1 AiOnnxOpset6 AiOnnxOpset7
        AiOnnxOpset8 AiOnnxOpset9 AiOnnxOpset10 AiOnnxOpset11 AnchorReturnType
        AttributeContextManager AutomaticLossScalingSettings Builder ClipNormSettings ConstSGD
        closePoplarDebugInfo DataFlow DebugContext DebugInfo defaultAiGraphcoreOpset
        defaultAiOnnxMlOpset defaultAiOnnxOpset DeviceInfo DeviceManager getLogger
        getSupportedOperations getSupportedOperationsDefinition getTensorInfo
        getUnsupportedOperations CommGroup VariableSettings GraphTransformer IdentityLoss
        InferenceSession initializePoplarDebugInfo InputSettings InputShapeInfo
        KeyValueContextManager L1Loss Logger Loss
        NameContextManager NllLoss NumericsReport OpDefinition
        OperatorIdentifier Optimizer optimizer_replacement_error OptimizerValue
        OptimizerValueMap OutOfMemoryError OutOfMemoryException packageHash Patterns SourceLocation
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
}
"""What each class, and the module, has that does what it says."""

OTHERS: Mapping[str, Mapping[tuple[Standing, str], str]] = {
    "": {
        (Standing.QUIET, _ONE_DEVICE): """
            ReplicatedCollectivesSettings TensorLocation TensorLocationSettings
        """,
        (Standing.QUIET, _SCHEDULE): """
            AccumulateOuterFragmentSettings AutodiffSettings BatchSerializationSettings
            ExecutionPhaseSettings ExperimentalSettings
        """,
        (Standing.QUIET, "kept, but nothing reads it"): "NumIOTiles",
    },
    "Builder": {
        (Standing.QUIET, "a note in the model; the passes of the CPU decide themselves"): """
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
}
"""What does less than its name says, or is not here, by what it does and why."""


def entries() -> Iterator[Entry]:
    """
    Every public name of PopART but the members of enumerations, classes one after the other, and
    then the patterns.
    """
    for owner, names in WORKS.items():
        found = [Entry(owner, name, Standing.WORKS) for name in names.split()]
        for (standing, why), others in OTHERS.get(owner, {}).items():
            found += [Entry(owner, name, standing, why) for name in others.split()]
        yield from sorted(found, key=lambda entry: entry.name.lower())
    for owner, effects in {"SessionOptions": options(), "Patterns": patterns()}.items():
        yield from (Entry(owner, one.name, one.effect, one.why) for one in effects)
