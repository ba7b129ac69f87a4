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


_ONE_DEVICE = "all replicas share one memory, so placement has no effect"
_ACROSS = "memory: with replicated sharding, processes partition the elements (ZeRO)"
_COUNTS = "results: the number of micro-batches and replicas per update"
_RANKS = "results: the number of replicas in other processes"
_IPU = "schedules, places or copies operations of an IPU"
_LIBRARIES = "configures Poplar's libraries; here schedules select kernels"
_HOST = "configures streams between host and IPU; here both share one memory"
_MISSING = "instruments, logs or draws IPU programs; `popgraph print` shows programs here"
_CACHE = "kernels are always cached, in the user's cache directory"

OPTIONS: Table = {
    Effect.PROGRAM: {
        _COUNTS: """
            accumulationFactor enableGradientAccumulation enableReplicatedGraphs
            replicatedGraphCount
        """,
        "results: gradients are summed or averaged": "accumulationAndReplicationReductionType",
        "results: when gradients are averaged, which affects rounding": """
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
        "results: the loss scale adapts to the gradients": "automaticLossScalingSettings",
        "memory: activations are recomputed for gradients, not stored": "autoRecomputation",
        "speed: weights of inference sessions are constants, which the host cannot change": """
            constantWeights
        """,
        "without it, `prepareDevice` does not compile, and no step can run": "compileEngine",
        "adds a second program, which `run` selects by its handle": """
            createImplicitPipeliningFwdOnlyProgram
        """,
        "which states `modelToHost` writes": """
            disableGradAccumulationTensorStreams disableOptimizerStateTensorStreams
        """,
        "results: NaN or infinity in a step is an error": "enableFloatingPointChecks",
        "whether `getRNGState` and `setRNGState` may be called": "enableLoadAndOffloadRNGState",
        "results: without gradient accumulation, stages use stale weights": "enablePipelining",
        "results: stochastic rounding of half precision": "enableStochasticRounding",
        "results: the assignment of channels to groups": "groupNormStridedChannelGrouping",
        "results: inputs are generated, and the host's are ignored": "syntheticDataMode",
        "results: the stages of an automatic pipeline": "virtualGraphSplitRatios",
        "the devices of pipeline stages, and which models are refused": "virtualGraphMode",
    },
    Effect.REPORTS: {
        "details in summaries": "reportOptions",
        "summaries list tensors that would be off-chip on an IPU": "tensorLocationSettingsOverride",
        "enables `getCycleCount`, with modelled cycles": "instrumentWithHardwareCycleCounter",
        "`debug.allowOutOfMemory`: details in the out-of-memory error of an IPU": "engineOptions",
    },
    Effect.IR: {
        "which graphs of the IR are drawn, and where": """
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
        "gradients are summed in the order in which they are computed": "decomposeGradSum",
        "the loss scale has the type of the loss": "ensureFp32LossScaleTensor",
        "a step is a loop on the host; required by overlapped exchange only": """
            enableExplicitIR enableExplicitMainLoops explicitRecomputation useHostCopyOps
        """,
        _ONE_DEVICE: "groupHostSync",
        _HOST: """
            aliasZeroCopy bufferingDepthMap defaultBufferingDepth defaultPrefetchBufferingDepth
            enableEfficientOverlapIOTopoCons enablePrefetchDatastreams prefetchBufferingDepthMap
            rearrangeAnchorsOnHost rearrangeStreamsOnHost
        """,
        "schedules or copies operations of an IPU; passes here have their own heuristics": """
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
        "all weights are sent together: PopART's Python API has no buffersFromHost": """
            updatableNamedBuffers
        """,
        "64-bit numbers are supported": "enableSupportedDataTypeCasting",
        "every operator has the version of the model's opset": "strictOpVersions",
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
        "applies to operators of PopXL only": "AllReduceToIdentity DecomposeBinaryConstScalar",
        "affects the layout and in-place updates on tiles of an IPU": "InitAccumulate",
        "the operator, and loop bodies, are not rewritten": "LoopScanOut PackedDataBlock",
        "the norm is that of the whole weight, sliced or not": "LambSerialisedWeight",
        "the loss scale has the type of the loss": "RemoveUnnecessaryLossGradCast",
        _ONE_DEVICE: "SplitGather",
    },
}

_FUSED = "speed: the gradient of Softmax with a loss is fused, unless both are disabled"
_REWRITTEN = "rewrites operators in PopART; here the model is lowered directly"
_NEEDED = f"{_REWRITTEN}. A session requires it, as in PopART"


_SCHEDULE = "schedules or copies operations of an IPU; results do not depend on it"
_POPLAR = "calls Poplar's libraries, which are absent"
_POPEF = "executables are cached automatically; PopEF is Graphcore's format"

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
            "stored, but not used": "NumIOTiles",
        },
    },
    "Builder": {
        Effect.QUIET: {
            "an annotation in the model; passes for the CPU ignore it": """
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
            "the kernel cache is read at each compilation": "updateEngineCache",
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
