"""Refused options: alone, in combination, or with a data flow, an optimizer or a device."""

from __future__ import annotations

from collections.abc import Callable

from popgraph.builder.opset.enums import (
    AccumulateOuterFragmentSchedule,
    AnchorReturnTypeId,
    GradientTensorTrackingMethod,
    RecomputationType,
    ReductionType,
    VirtualGraphMode,
)
from popgraph.passes.optimizer_spec import Adam
from popgraph.popart.api.options import SessionOptions
from popgraph.popart.exceptions import (
    popart_exception,
    popart_unsupported_exception,
    poplar_exception,
)
from popgraph.popart.refusals.table import RefusalContext, Refusals, SessionPhase, rule_at
from popgraph.support.logs import log_of

NOT_IMPLEMENTED: dict[str, Callable[[SessionOptions], bool]] = {
    "customCodelets": lambda options: bool(options.customCodelets),
}
"""{option that would change results: whether its value is one that is not implemented}."""


@rule_at(SessionPhase.CREATED)
def accumulation(context: RefusalContext) -> Refusals:
    options = context.options
    if options.enableGradientAccumulation and context.rule is None:
        yield "Gradient Accumulation only available when training."
    if options.accumulationFactor > 1 and not options.enableGradientAccumulation:
        yield (
            "enableGradientAccumulation is false, but accumulationFactor > 1. Either enable "
            "gradient accumulation, or set the accumulation factor to 1"
        )
    for name in ("accumulationFactor", "replicatedGraphCount"):
        if (count := getattr(options, name)) < 1:
            said = f"{name} is {count}, and must be at least 1"
            yield popart_exception(said, f"SessionOptions.{name}")
    if options.accumulationAndReplicationReductionType is ReductionType.NoReduction:
        yield popart_exception(
            "gradients of micro-batches and replicas are added up or averaged",
            "SessionOptions.accumulationAndReplicationReductionType",
            "ReductionType.Sum or ReductionType.Mean",
        )


@rule_at(SessionPhase.CREATED)
def programs(context: RefusalContext) -> Refusals:
    options = context.options
    if options.enableExplicitMainLoops and not options.useHostCopyOps:
        yield "enableExplicitMainLoops requires useHostCopyOps."
    if options.enableQuickStart and options.createImplicitPipeliningFwdOnlyProgram:
        yield popart_unsupported_exception(
            "a program of the forward pass shares the weights of the program that trains, so "
            "another one cannot replace it meanwhile",
            "SessionOptions.enableQuickStart",
            "without it, or without createImplicitPipeliningFwdOnlyProgram",
        )
    for name, is_set in NOT_IMPLEMENTED.items():
        if is_set(options):
            yield popart_unsupported_exception(
                f"the session option {name} is not implemented",
                f"SessionOptions.{name}",
                "leave it at its default",
            )


@rule_at(SessionPhase.CREATED)
def phases(context: RefusalContext) -> Refusals:
    mode, count = context.options.virtualGraphMode, context.options.executionPhaseSettings.phases
    phased = mode is VirtualGraphMode.ExecutionPhases
    if count == 1 or (phased and count == 0):
        log_of("ir").warning(
            "Phased execution was enabled but only %s phases were defined. Phased execution only "
            "works with >=2 phases. Disabling.",
            count,
        )
    if count > 1 and not phased:
        yield "> 1 execution phases requires VirtualGraphMode::ExecutionPhases"


@rule_at(SessionPhase.CREATED)
def transforms(context: RefusalContext) -> Refusals:
    options = context.options
    if options.kahnTieBreaker.lower() not in ("fifo", "greedy", "random"):
        yield (
            f"Unrecognised KahnTieBreaker, {options.kahnTieBreaker}. Should be one of "
            '"fifo", "greedy", and "random".'
        )
    recomputes = options.explicitRecomputation or options.enablePipelining
    if options.aliasZeroCopy and not recomputes:
        yield "Alias zero copy is currently not supported with implicit recomputation."
    annotates = options.explicitRecomputation or not options.enablePipelining
    stages = options.autoRecomputation is RecomputationType.Pipeline
    in_pipeline = options.enablePipelining and context.explicit
    if stages and annotates and not in_pipeline and options.executionPhaseSettings.phases < 2:
        yield "Invalid RecomputationType::Pipeline in autoAnnotate when using implicit pipelining."
    for id in context.flow.anchors() if context.explicit else ():
        if context.flow.art(id).id() is AnchorReturnTypeId.EveryN:
            yield (
                f'[MainLoops] AnchorReturnType::{context.flow.art(id)} for Tensor "{id}" is '
                "unsupported when explicit main loops are enabled. Supported anchor return types "
                "are AnchorReturnTypeId::All and AnchorReturnTypeId::Sum."
            )


@rule_at(SessionPhase.CREATED)
def forward_only(context: RefusalContext) -> Refusals:
    options = context.options
    if not options.createImplicitPipeliningFwdOnlyProgram:
        return
    about = "Implicit pipelining forward-only program is"
    log_of("ir").warning("%s deprecated and will be removed in future releases.", about)
    if options.enablePipelining and context.explicit:
        yield f"{about} not supported with explicit pipelining."
    if not options.enablePipelining or context.explicit:
        yield f"{about} not supported without implicit pipelining."
    if not options.enableGradientAccumulation:
        yield f"{about} not supported without gradient accumulation."


@rule_at(SessionPhase.CREATED)
def clipping(context: RefusalContext) -> Refusals:
    options, groups = context.options, () if context.rule is None else context.rule.clip
    schedule = options.accumulateOuterFragmentSettings.schedule
    serial = schedule is AccumulateOuterFragmentSchedule.Serial
    about = "Incompatible accumulateOuterFragmentSchedule used with"
    if options.enablePipelining and serial and groups:
        yield (
            f"{about} gradient clipping, SessionOptions::accumulateOuterFragmentSettings.schedule "
            "can not be set to AccumulateOuterFragmentSchedule::Serial"
        )
    if len(groups) > 1 and not all(group.weights for group in groups):
        yield (
            "Multiple clip groups specified, but one has the mode 'ClipAllWeights'. When using "
            "ClipNormSettings.clipAllWeights(...), only one group should be specified."
        )
    if options.replicatedCollectivesSettings.prepareScheduleForMergingCollectives and serial:
        yield (
            f"{about} session option: "
            "options.replicatedCollectivesSettings.prepareScheduleForMergingCollectives. "
            "Specifically SessionOptions::accumulateOuterFragmentSettings.schedule can not be set "
            "to AccumulateOuterFragmentSchedule::Serial"
        )


@rule_at(SessionPhase.CREATED, "SessionOptions.gclOptions")
def collectives(context: RefusalContext) -> Refusals:
    known = ("maxBytesPerTile", "useSynclessCollectives")
    for option in context.options.gclOptions:
        if option not in known:
            yield (
                f"'{option}' is not a valid gcl option. Valid options are {{{', '.join(known)}}}"
            )


_CHOSEN = GradientTensorTrackingMethod.GradientsOfUserSpecifiedTensors


@rule_at(SessionPhase.CREATED, "SessionOptions.automaticLossScalingSettings")
def loss_scaling(context: RefusalContext) -> Refusals:
    options, rule, about = context.options, context.rule, "[AutomaticLossScale transform]"
    settings = options.automaticLossScalingSettings
    if not settings.enabled:
        return
    if isinstance(rule, Adam) and rule.scaled_state:
        yield "scaledOptimizerState and automaticLossScaling are not compatible."
    tracked, chosen = settings.toTrackTensors, settings.gradientTensorTrackingMethod is _CHOSEN
    if tracked == []:
        yield (
            "[PreAutomaticLossScale] An empty list was set as the value of 'toTrackTensors'. To "
            "disable tensor tracking, please set 'automaticLossScalingSettings.enabled = False'. "
            "To track the default tensors, please leave "
            "'automaticLossScalingSettings.toTrackTensors' unset."
        )
    if rule is None:
        yield f"{about} Only compatible when doing training"
    elif rule.loss_scaling.constant:
        yield f"{about} The optimizer must have non-const loss scaling"
    if options.enablePipelining and not options.enableGradientAccumulation:
        yield (
            f"{about} Automatic loss scaling is not currently supported when the "
            "'enablePipelining' SessionOption is set to 'true', but the "
            "'enableGradientAccumulation' SessionOption is set to 'false'"
        )
    if tracked is not None and not chosen:
        yield (
            f"{about} toTrackTensors has been set, but gradientTensorTrackingMethod has not been "
            "set to 'GradientTensorTrackingMethod::GradientsOfUserSpecifiedTensors'."
        )
    if tracked is None and chosen:
        yield (
            f"{about} gradientTensorTrackingMethod set to "
            "'GradientTensorTrackingMethod::GradientsOfUserSpecifiedTensors' but 'toTrackTensors' "
            "has not been set"
        )
    for name, prefix in (("binEdgeLocation", f"{about} "), ("thresholdUpperCountProportion", "")):
        if not 0 <= (value := getattr(settings, name)) <= 1:
            yield (
                f"{prefix}Out of range value for '{name}'. The current value is {value:g}, but it "
                "should be in the range [0, 1]."
            )
    if settings.updatePeriod < 1:
        yield f"{about} updatePeriod is {settings.updatePeriod}, and must be at least 1"


@rule_at(SessionPhase.CREATED, "SessionOptions.globalReplicationFactor")
def distributed(context: RefusalContext) -> Refusals:
    options = context.options
    if not options.enableDistributedReplicatedGraphs:
        return
    total, first = options.globalReplicationFactor, options.globalReplicaOffset
    if total < 1:
        yield f"Invalid globalReplicationFactor value: {total}, must be greater or equal than 1"
    if first < 0:
        yield f"Invalid globalReplicaOffset value: {first}, must be greater or equal than 0"
    if first > total:
        yield f"Global replica offset: {first}, is larger than global replication factor: {total}"
    local = context.replicas
    if options.enableReplicatedGraphs and local == 1:
        yield "Local replicated graphs enabled but replication factor is 1"
    if options.enableReplicatedGraphs and local > total:
        yield (
            f"Invalid local replication factor: {local}, larger than global replication factor: "
            f"{total}"
        )
    if total % local or first % local:
        yield popart_unsupported_exception(
            f"{total} replicas cannot be split into processes of {local} each: this process begins "
            f"with replica {first}",
            "SessionOptions.globalReplicationFactor",
            "every process has the same number of replicas here",
        )
    if options.enableQuickStart and total > local:
        yield popart_unsupported_exception(
            "tuned programs replace plain ones at another step in each process, and round sums in "
            "another order: the weights of the processes would differ",
            "SessionOptions.enableQuickStart",
            "leave it out where several processes train together",
        )


@rule_at(SessionPhase.CREATED, "SessionOptions.replicatedGraphCount")
def divided_device(context: RefusalContext) -> Refusals:
    count, replicas = context.device.numIpus, context.replicas
    if not context.on_cpu and count % replicas:
        yield popart_exception(
            "For replicated graphs, the number of IPUs must be divisible by the replication "
            "factor.",
            "SessionOptions.replicatedGraphCount",
            f"the device has {count} IPUs for {replicas} replicas",
        )


_ENGINE_OPTION_GROUPS = frozenset(
    ["autoReport", "debug", "exchange", "opt", "prng", "profiler", "streamCallbacks", "target"]
)


@rule_at(SessionPhase.PREPARED)
def engine_options(context: RefusalContext) -> Refusals:
    for option in context.options.engineOptions:
        if option.split(".")[0] not in _ENGINE_OPTION_GROUPS:
            yield poplar_exception(f"Unrecognised option '{option}'")


_FEWEST_IO_TILES = 32


@rule_at(SessionPhase.PREPARED)
def replicas_and_tiles(context: RefusalContext) -> Refusals:
    options, tiles = context.options, context.device.tilesPerIPU
    if options.replicatedGraphCount > 1 and not options.enableReplicatedGraphs:
        yield (
            "enableReplicatedGraphs is false, but replicatedGraphCount > 1. Either enable "
            "replication, or set the replicated graph count to 1"
        )
    count = options.numIOTiles
    if context.on_cpu or options.virtualGraphMode is VirtualGraphMode.Off or count <= 0:
        return
    if count < _FEWEST_IO_TILES or count % 2:
        yield (
            f"{count} is an invalid number of IO tiles. Number of IO tiles must be an even number "
            f"and >= {_FEWEST_IO_TILES}."
        )
    if count >= tiles > 0:
        yield f"Tiles per IPU {tiles} should exceed number of IO tiles {count}."


@rule_at(SessionPhase.PREPARED, "SessionOptions.bufferingDepthMap")
def buffering(context: RefusalContext) -> Refusals:
    options = context.options
    streams = dict.fromkeys(context.inputs, options.rearrangeStreamsOnHost)
    streams |= dict.fromkeys(context.flow.anchors(), options.rearrangeAnchorsOnHost)
    for id, rearranged in streams.items():
        default = 1 if rearranged else options.defaultBufferingDepth
        depth = options.bufferingDepthMap.get(id, default)
        if depth < 1:
            yield (
                f"Unable to support a buffering depth of {depth} for tensor {id} (minimum "
                "buffering depth is 1)"
            )
        if depth > 1 and rearranged:
            yield (
                f"Unable to support a buffering depth >1 for tensor {id} because the stream is set "
                "to rearrange on the host (and PopART allows streams that are rearranged on the "
                "host to overlap in memory, making this unsafe)"
            )
