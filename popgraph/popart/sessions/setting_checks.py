"""Options of a session, and of its anchors, that do not go together in PopART."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from popgraph.builder.opset.enums import (
    AccumulateOuterFragmentSchedule,
    AnchorReturnTypeId,
    ExchangeStrategy,
    GradientTensorTrackingMethod,
    RecomputationType,
    VirtualGraphMode,
)
from popgraph.passes.optimizer_spec import Adam, OptimizerSpec
from popgraph.popart.api.dataflow import DataFlow
from popgraph.popart.api.options import SessionOptions
from popgraph.popart.api.settings import AutomaticLossScalingSettings, ExperimentalSettings
from popgraph.popart.exceptions import popart_exception
from popgraph.support.logs import log_of

_OVERLAPPING = (ExchangeStrategy.OverlapInnerLoop, ExchangeStrategy.OverlapLoops)


def check_settings(options: SessionOptions, flow: DataFlow, rule: OptimizerSpec | None) -> None:
    """Refuses options that do not go together."""
    phases = options.executionPhaseSettings.phases
    idle = options.virtualGraphMode is VirtualGraphMode.ExecutionPhases and phases == 0
    if idle or phases == 1:
        log_of("ir").warning(_TOO_FEW_PHASES, phases)
    complaints = (
        *_complaints(options, flow),
        *_of_pipelines(options, rule),
        *_of_transforms(options, rule),
    )
    for complaint in complaints:
        raise popart_exception(complaint, "SessionOptions")


_TOO_FEW_PHASES = (
    "Phased execution was enabled but only %s phases were defined. Phased execution only works "
    "with >=2 phases. Disabling."
)


def tell_transforms(settings: ExperimentalSettings) -> None:
    """Says which transforms of the model PopART does not have; those that it has change nothing."""
    log = log_of("transform")
    for point, names in sorted(settings.customTransformApplierSettings.items()):
        if point not in _POINTS:
            log.error("'%s' is not a valid customTransformApplierSettings option.", point)
            continue
        for name in names:
            if name not in _TRANSFORMS:
                log.error("Transform '%s' does not exist or is not allowed to be used.", name)


_POINTS = frozenset({"Fwd0", "Fwd1", "Bwd0", "PreAlias", "MainLoops", "Final"})
_TRANSFORMS = frozenset(
    {
        *("AccumuateOuterFragmentParallelizer", "Autodiff", "AutoVirtualGraph"),
        *("AutomaticLossScale", "BatchSerialize", "ClipWeightGradientsByNorm"),
        *("ContiguateCollectivesTransform", "DecomposeGradSum", "DecomposeLoops", "DecomposeSum"),
        *("DynamicOpTransform", "EnsureFp32LossScale", "ExplicitRecompute", "HostIOSetup 1"),
        *("HostIOSetup 2", "InferPipelineStages", "InterIpuCopy", "IoComputeTileCopy", "MainLoops"),
        *("InplaceAccumulateGradPartialsIntoOptimizerAccumTensor", "MergeAllVarUpdates"),
        *("MergeCollectivesTransform", "MergeCopies", "MergeDuplicateOps", "MergeExchange"),
        *("MergeLoops", "MergeLooseThreshold", "MergeTightThreshold", "OverlapIO", "Pipeline"),
        *("PreAutomaticLossScale", "Prune", "RandomSetup", "RemoteSetup", "SerializeMatMuls"),
        *("StochasticRounding", "StreamingMemory 1", "StreamingMemory 2", "SubgraphOutline"),
    }
)
"""PopART's transforms, by name."""


def check_exchange(strategies: Iterable[ExchangeStrategy], options: SessionOptions) -> None:
    """Refuses what no session overlaps, of anchors or of inputs."""
    explicit = options.useHostCopyOps and options.enableExplicitMainLoops
    off = options.virtualGraphMode is VirtualGraphMode.Off
    for strategy in strategies:
        if strategy is ExchangeStrategy.OverlapStep:
            raise popart_exception("ExchangeStrategy::OverlapStep is not yet supported.")
        if strategy in _OVERLAPPING and (not explicit or off):
            raise popart_exception(
                "ExchangeStrategy::OverlapInnerLoop, ExchangeStrategy::OverlapLoops require "
                "SessionOptions::useHostCopyOps, SessionOptions::enableExplicitMainLoops, "
                "VirtualGraphMode::(Manual, Auto, ExecutionPhases) to be enabled.",
                "SessionOptions",
            )


def check_clipping(rule: OptimizerSpec | None, known: Collection[str]) -> None:
    """Refuses groups of gradients of what the model has not."""
    for group in () if rule is None else rule.clip:
        for id in group.weights:
            if id not in known:
                raise popart_exception(
                    f"No Ir::Tensor with TensorId '{id}' in Tensors::get(..)",
                    "ClipNormSettings",
                    f"weights of this model are {', '.join(sorted(known))}",
                )


def check_buffering(options: SessionOptions, inputs: Iterable[str], anchors: Iterable[str]) -> None:
    """Refuses depths of buffers that no stream can have."""
    streams = dict.fromkeys(inputs, options.rearrangeStreamsOnHost)
    streams |= dict.fromkeys(anchors, options.rearrangeAnchorsOnHost)
    for id, rearranged in streams.items():
        unasked = 1 if rearranged else options.defaultBufferingDepth
        depth = options.bufferingDepthMap.get(id, unasked)
        if depth < 1:
            raise popart_exception(
                f"Unable to support a buffering depth of {depth} for tensor {id} (minimum "
                "buffering depth is 1)",
                "SessionOptions.bufferingDepthMap",
            )
        if depth > 1 and rearranged:
            raise popart_exception(
                f"Unable to support a buffering depth >1 for tensor {id} because the stream is set "
                "to rearrange on the host (and PopART allows streams that are rearranged on the "
                "host to overlap in memory, making this unsafe)",
                "SessionOptions.bufferingDepthMap",
            )


def _of_pipelines(options: SessionOptions, rule: OptimizerSpec | None) -> Iterator[str]:
    explicit = options.useHostCopyOps and options.enableExplicitMainLoops
    implicit = options.enablePipelining and not explicit
    if options.createImplicitPipeliningFwdOnlyProgram:
        log_of("ir").warning(
            "Implicit pipelining forward-only program is deprecated and will be removed in future "
            "releases."
        )
        about = "Implicit pipelining forward-only program is not supported"
        if options.enablePipelining and explicit:
            yield f"{about} with explicit pipelining."
        if not implicit:
            yield f"{about} without implicit pipelining."
        if not options.enableGradientAccumulation:
            yield f"{about} without gradient accumulation."
    serial = options.accumulateOuterFragmentSettings.schedule is _SERIAL
    if options.enablePipelining and serial and rule is not None and rule.clip:
        yield (
            "Incompatible accumulateOuterFragmentSchedule used with gradient clipping, "
            "SessionOptions::accumulateOuterFragmentSettings.schedule can not be set to "
            "AccumulateOuterFragmentSchedule::Serial"
        )


def _of_transforms(options: SessionOptions, rule: OptimizerSpec | None) -> Iterator[str]:
    groups = () if rule is None else rule.clip
    if len(groups) > 1 and not all(group.weights for group in groups):
        yield (
            "Multiple clip groups specified, but one has the mode 'ClipAllWeights'. When using "
            "ClipNormSettings.clipAllWeights(...), only one group should be specified."
        )
    merging = options.replicatedCollectivesSettings.prepareScheduleForMergingCollectives
    if merging and options.accumulateOuterFragmentSettings.schedule is _SERIAL:
        yield (
            "Incompatible accumulateOuterFragmentSchedule used with session option: "
            "options.replicatedCollectivesSettings.prepareScheduleForMergingCollectives. "
            "Specifically SessionOptions::accumulateOuterFragmentSettings.schedule can not be set "
            "to AccumulateOuterFragmentSchedule::Serial"
        )


_SERIAL = AccumulateOuterFragmentSchedule.Serial
"""What is done after micro-batches is done in order, without regard to IPUs."""


def _complaints(options: SessionOptions, flow: DataFlow) -> Iterator[str]:
    mode = options.virtualGraphMode
    if options.executionPhaseSettings.phases > 1 and mode is not VirtualGraphMode.ExecutionPhases:
        yield "> 1 execution phases requires VirtualGraphMode::ExecutionPhases"
    if options.kahnTieBreaker.lower() not in ("fifo", "greedy", "random"):
        yield (
            f"Unrecognised KahnTieBreaker, {options.kahnTieBreaker}. Should be one of "
            '"fifo", "greedy", and "random".'
        )
    recomputes_aside = options.explicitRecomputation or options.enablePipelining
    if options.aliasZeroCopy and not recomputes_aside:
        yield "Alias zero copy is currently not supported with implicit recomputation."
    loops = options.enableExplicitMainLoops and options.useHostCopyOps
    annotates = options.explicitRecomputation or not options.enablePipelining
    stages = options.autoRecomputation is RecomputationType.Pipeline
    in_pipeline = options.enablePipelining and loops
    if stages and annotates and not in_pipeline and options.executionPhaseSettings.phases < 2:
        yield (
            "Invalid RecomputationType::Pipeline in autoAnnotate when using implicit pipelining."
        )
    for id in flow.anchors() if loops else ():
        if flow.art(id).id() is AnchorReturnTypeId.EveryN:
            yield (
                f'[MainLoops] AnchorReturnType::{flow.art(id)} for Tensor "{id}" is unsupported '
                "when explicit main loops are enabled. Supported anchor return types are "
                "AnchorReturnTypeId::All and AnchorReturnTypeId::Sum."
            )


def check_loss_scaling(options: SessionOptions, rule: OptimizerSpec | None) -> None:
    """Refuses a loss scale that cannot follow the gradients."""
    settings = options.automaticLossScalingSettings
    if settings.enabled and isinstance(rule, Adam) and rule.scaled_state:
        raise popart_exception("scaledOptimizerState and automaticLossScaling are not compatible.")
    at_once = options.enablePipelining and not options.enableGradientAccumulation
    complaints = _of_loss_scaling(settings, rule, at_once=at_once)
    for complaint in complaints if settings.enabled else ():
        raise popart_exception(complaint, "SessionOptions.automaticLossScalingSettings")


def _of_loss_scaling(
    settings: AutomaticLossScalingSettings, rule: OptimizerSpec | None, *, at_once: bool
) -> Iterator[str]:
    about = "[AutomaticLossScale transform]"
    if settings.toTrackTensors is not None and not settings.toTrackTensors:
        yield (
            "[PreAutomaticLossScale] An empty list was set as the value of 'toTrackTensors'. To "
            "disable tensor tracking, please set 'automaticLossScalingSettings.enabled = False'. "
            "To track the default tensors, please leave "
            "'automaticLossScalingSettings.toTrackTensors' unset."
        )
    if rule is None:
        yield f"{about} Only compatible when doing training"
        return
    if rule.loss_scaling.constant:
        yield f"{about} The optimizer must have non-const loss scaling"
    if at_once:
        yield (
            f"{about} Automatic loss scaling is not currently supported when the "
            "'enablePipelining' SessionOption is set to 'true', but the "
            "'enableGradientAccumulation' SessionOption is set to 'false'"
        )
    chosen = settings.gradientTensorTrackingMethod is _CHOSEN
    if settings.toTrackTensors is not None and not chosen:
        yield (
            f"{about} toTrackTensors has been set, but gradientTensorTrackingMethod has not been "
            "set to 'GradientTensorTrackingMethod::GradientsOfUserSpecifiedTensors'."
        )
    if settings.toTrackTensors is None and chosen:
        yield (
            f"{about} gradientTensorTrackingMethod set to "
            "'GradientTensorTrackingMethod::GradientsOfUserSpecifiedTensors' but 'toTrackTensors' "
            "has not been set"
        )
    for name, prefix in (("binEdgeLocation", f"{about} "), ("thresholdUpperCountProportion", "")):
        value = getattr(settings, name)
        if not 0 <= value <= 1:
            yield (
                f"{prefix}Out of range value for '{name}'. The current value is {value:g}, but it "
                "should be in the range [0, 1]."
            )
    if settings.updatePeriod < 1:
        yield f"{about} updatePeriod is {settings.updatePeriod}, and must be at least 1"


_CHOSEN = GradientTensorTrackingMethod.GradientsOfUserSpecifiedTensors
