"""PopART's public names, options and patterns, and their effect here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from popgraph import popart
from popgraph.builder.opset.enums import PopartEnum
from popgraph.popart.api.builder import Builder
from popgraph.popart.api.names import RESERVED_PREFIXES
from popgraph.popart.api.patterns import FUSING, MANDATORY, PATTERNS
from popgraph.popart.sessions.inference_session import InferenceSession
from popgraph.popart.sessions.session import Session
from popgraph.popart.sessions.training_session import TrainingSession


class Effect(Enum):
    """The effect of a public name, option or pattern."""

    WORKS = "works"
    QUIET = "accepted without effect"
    PROGRAM = "changes the program"
    """Changes results, speed, memory, or what a session stores or refuses."""
    REPORTS = "changes reports only"
    IR = "shown in the IR only"
    """Visible in drawings of `getIr` only; execution does not depend on it."""
    NONE = "no effect"
    REFUSED = "refused, as PopART without an IPU"


@dataclass(frozen=True)
class Entry:
    """A name, its owner ("" for the module), its effect, and the reason for a limitation."""

    owner: str
    name: str
    effect: Effect
    why: str = ""


Table = Mapping[Effect, Mapping[str, str]]
"""{effect: {reason: names}}."""


_ONE_DEVICE = "all replicas are in one memory: there is nothing to place"
_ACROSS = "memory: processes share out the elements (ZeRO), if it asks for replicated sharding"
_COUNTS = "results: how many micro-batches and replicas make an update"
_RANKS = "results: how many replicas are in other processes"
_IPU = "orders, places or copies the work of an IPU"
_LIBRARIES = "configures Poplar's libraries; kernels here are chosen by schedules"
_HOST = "configures streams between host and IPU; here both have one memory"
_MISSING = "instruments, logs or draws what only an IPU has; `popgraph print` shows programs"
_CACHE = "kernels are always cached, in the user's cache directory"

OPTIONS: Table = {
    Effect.PROGRAM: {
        _COUNTS: """
            accumulationFactor enableGradientAccumulation enableReplicatedGraphs
            replicatedGraphCount
        """,
        "results: gradients are added up or averaged": "accumulationAndReplicationReductionType",
        "results: when the mean of gradients is taken, which rounds differently": """
            meanAccumulationAndReplicationReductionStrategy
        """,
        _RANKS: """
            enableDistributedReplicatedGraphs getGlobalReplicationFactor globalReplicaOffset
            globalReplicationFactor
        """,
        _ACROSS: """
            accumulatorTensorLocationSettings optimizerStateTensorLocationSettings
            weightTensorLocationSettings
        """,
        "results: the loss scale follows the gradients": "automaticLossScalingSettings",
        "memory: gradients recompute activations instead of keeping them": "autoRecomputation",
        "speed: weights of inference are constants, which the host cannot change": """
            constantWeights
        """,
        "without it, `prepareDevice` compiles nothing, and nothing can run": "compileEngine",
        "a second program, which `run` of its handle calls": """
            createImplicitPipeliningFwdOnlyProgram
        """,
        "which states `modelToHost` writes": """
            disableGradAccumulationTensorStreams disableOptimizerStateTensorStreams
        """,
        "results: a step with NaN or infinity ends with an error": "enableFloatingPointChecks",
        "whether `getRNGState` and `setRNGState` may be called": "enableLoadAndOffloadRNGState",
        "results: later stages meet older weights unless gradients accumulate": "enablePipelining",
        "results: halves are rounded at random": "enableStochasticRounding",
        "results: which channels are a group": "groupNormStridedChannelGrouping",
        "results: inputs are drawn here, and the host's are not read": "syntheticDataMode",
        "results: which stage of a pipeline by cost computes what": "virtualGraphSplitRatios",
        "which devices stages of a pipeline have, and what is refused": "virtualGraphMode",
    },
    Effect.REPORTS: {
        "summaries show more": "reportOptions",
        "summaries name tensors that an IPU would have off chip": "tensorLocationSettingsOverride",
        "lets `getCycleCount` give the modelled cycles": "instrumentWithHardwareCycleCounter",
        "`debug.allowOutOfMemory`: what the error of a full IPU says": "engineOptions",
    },
    Effect.IR: {
        "which pictures of the IR are drawn, where and of what": """
            dotChecks dotOpNames finalDotOp firstDotOp logDir
        """,
    },
    Effect.NONE: {
        _IPU: """
            accumulateOuterFragmentSettings activationTensorLocationSettings
            batchSerializationSettings delayVarUpdates enableFullyConnectedPass enableMergeExchange
            enableOutlining executionPhaseSettings kahnTieBreaker mergeVarUpdate
            mergeVarUpdateMemThreshold numIOTiles outlineThreshold partialsTypeMatMuls
            replicatedCollectivesSettings scheduleNonWeightUpdateGradientConsumersEarly
            swapLimitScheduler timeLimitScheduler
        """,
        "sums of gradients are written as they come": "decomposeGradSum",
        "the program computes the loss scale in the type of the loss": "ensureFp32LossScaleTensor",
        "a step is a loop of the host; overlap of exchanges needs it": """
            enableExplicitIR enableExplicitMainLoops explicitRecomputation useHostCopyOps
        """,
        _ONE_DEVICE: "groupHostSync",
        _HOST: """
            aliasZeroCopy bufferingDepthMap defaultBufferingDepth defaultPrefetchBufferingDepth
            enableEfficientOverlapIOTopoCons enablePrefetchDatastreams prefetchBufferingDepthMap
            rearrangeAnchorsOnHost rearrangeStreamsOnHost
        """,
        "orders or copies the work of an IPU; the passes here decide themselves": """
            enableConstantFoldingOfMultipleConsumers enableInplaceAmbiguityChecking
            enableOutliningCopyCostPruning experimentalSettings outlineSequenceBreakCost
            separateCallOpPdfs stashAllTensorsInferencePipeline subgraphCopyingStrategy
            transitiveClosureOptimizationThreshold useLoopCandidateCreator
        """,
        _LIBRARIES: """
            _enableRngStateManagement convolutionOptions customCodeletCompileFlags
            enableNonStableSoftmax enableStableNorm gclOptions lstmOptions matmulOptions
            throwIfLog2ScaleTensorNotInRange
        """,
        "all weights are sent alike: PopART's Python has no buffersFromHost": """
            updatableNamedBuffers
        """,
        "64-bit numbers stay what they are": "enableSupportedDataTypeCasting",
        "every operator keeps the version that its model asks for": "strictOpVersions",
        _MISSING: """
            exportPoplarComputationGraph exportPoplarVertexGraph hardwareInstrumentations
            opxAliasChecking opxModifyChecking serializedPoprithmsAnnealGraphsDir
            serializedPoprithmsShiftGraphsDir
        """,
        _CACHE: "cachePath enableEngineCaching enableVariablesCaching",
    },
    Effect.REFUSED: {
        "other values than the default would change results": "customCodelets",
    },
}
"""The effect of each of PopART's options."""

_PATTERNS_WITHOUT: Table = {
    Effect.NONE: {
        "only operators of PopXL need it": "AllReduceToIdentity DecomposeBinaryConstScalar",
        "says where an IPU's tiles keep or overwrite what": "InitAccumulate",
        "the operator, and the bodies of loops, stay as written": "LoopScanOut PackedDataBlock",
        "the norm is that of a weight, be it used in parts or not": "LambSerialisedWeight",
        "a loss scale is made in the type that the loss has": "RemoveUnnecessaryLossGradCast",
        _ONE_DEVICE: "SplitGather",
    },
}

_FUSED = "speed: the gradient of Softmax with a loss is one operation, unless both are off"
_REWRITTEN = "how PopART writes operators; the program is lowered from the model as it is"
_NEEDED = f"{_REWRITTEN}. A session refuses to go without it, as PopART does"


_SCHEDULE = "orders or copies work on an IPU; results do not depend on it"
_POPLAR = "speaks to Poplar's libraries, which are not here"
_POPEF = "executables are cached by themselves; PopEF is Graphcore's format"

OURS: Mapping[str, str] = {
    "Builder": """
        DEFAULT_OPSET add_custom_node add_node annotate called_graph called_inputs graph module
        named_node of plain_node refuses take to_pgraph type_of value_of
    """,
    "InferenceSession": "",
    "TrainingSession": "selection",
    "Session": "save tuned wait",
}
"""{class: names that PopGraph adds to PopART's class}."""

OTHERS: Mapping[str, Table] = {
    "": {
        Effect.QUIET: {
            _ONE_DEVICE: "ReplicatedCollectivesSettings TensorLocation TensorLocationSettings",
            _SCHEDULE: """
                AccumulateOuterFragmentSettings AutodiffSettings BatchSerializationSettings
                ExecutionPhaseSettings ExperimentalSettings
            """,
            "kept, but nothing reads it": "NumIOTiles",
        },
    },
    "Builder": {
        Effect.QUIET: {
            "a note in the model; the passes of the CPU decide themselves": """
                excludePatterns outlineAttributes schedulePriority setAvailableMemoryProportion
                setEnableConvDithering setInplacePreferences setPartialsType setSerializeMatMul
            """,
            _ONE_DEVICE: "outputTensorLocation",
        },
    },
    "Session": {
        Effect.REFUSED: {
            _POPEF: "compileAndExport loadExecutable saveExecutable saveVariables",
        },
    },
    "TrainingSession": {
        Effect.QUIET: {
            "cached kernels are looked up whenever needed": "updateEngineCache",
        },
        Effect.REFUSED: {
            _POPLAR: "connectStreamToCallback",
        },
    },
}
"""{owner: names with a limited effect, or none}."""


def _named(owner: str, table: Table) -> Iterator[Entry]:
    for effect, reasons in table.items():
        for why, names in reasons.items():
            yield from (Entry(owner, name, effect, why) for name in names.split())


def _names() -> dict[str, set[str]]:
    """{owner: PopART's public names}; the owner "" is the module."""
    owners = [Builder, InferenceSession, TrainingSession, Session]
    found = {one.__name__: {name for name in dir(one) if name[0] != "_"} for one in owners}
    for kind in ("InferenceSession", "TrainingSession"):
        found[kind] -= found["Session"]
    enums = {one.__name__ for one in PopartEnum.__subclasses__()}
    of_module = set(dir(popart)) - RESERVED_PREFIXES.keys() - enums
    return {"": of_module} | {
        owner: names - set(OURS[owner].split()) for owner, names in found.items()
    }


def _sorted(found: Iterable[Entry]) -> list[Entry]:
    return sorted(found, key=lambda one: one.name.lower())


def options() -> list[Entry]:
    """Every option of PopART's `SessionOptions`."""
    return _sorted(_named("SessionOptions", OPTIONS))


def patterns() -> list[Entry]:
    """Every pattern of PopART."""
    found = {one.name: one for one in _named("Patterns", _PATTERNS_WITHOUT)}
    for name in PATTERNS - found.keys():
        why = _FUSED if name in FUSING else _NEEDED if name in MANDATORY else _REWRITTEN
        effect = Effect.PROGRAM if name in FUSING else Effect.NONE
        found[name] = Entry("Patterns", name, effect, why)
    return _sorted(found.values())


def entries() -> Iterator[Entry]:
    """
    Every public name of PopART except enumerations, their members and prefix functions: class by
    class, then options and patterns.
    """
    for owner, names in _names().items():
        others = list(_named(owner, OTHERS.get(owner, {})))
        works = names - {one.name for one in others}
        yield from _sorted([*others, *(Entry(owner, one, Effect.WORKS) for one in works)])
    yield from options()
    yield from patterns()
