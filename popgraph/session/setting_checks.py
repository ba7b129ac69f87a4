"""Options of a session, and of its anchors, that do not go together in PopART."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import ModuleOp, f16

from popgraph.builder.opset.enums import (
    ExchangeStrategy,
    GradientTensorTrackingMethod,
    VirtualGraphMode,
)
from popgraph.builder.opset.exceptions import popart_exception
from popgraph.passes.optimizer_spec import OptimizerSpec
from popgraph.session.dataflow import DataFlow
from popgraph.session.options import SessionOptions
from popgraph.session.settings import AutomaticLossScalingSettings

_OVERLAPPING = (ExchangeStrategy.OverlapInnerLoop, ExchangeStrategy.OverlapLoops)


def check_settings(options: SessionOptions, flow: DataFlow) -> None:
    """Refuses options that do not go together."""
    for complaint in _complaints(options, flow):
        raise popart_exception(complaint, "SessionOptions")


def _complaints(options: SessionOptions, flow: DataFlow) -> Iterator[str]:
    mode = options.virtualGraphMode
    if options.executionPhaseSettings.phases > 1 and mode is not VirtualGraphMode.ExecutionPhases:
        yield "> 1 execution phases requires VirtualGraphMode::ExecutionPhases"
    recomputes_aside = options.explicitRecomputation or options.enablePipelining
    if options.aliasZeroCopy and not recomputes_aside:
        yield "Alias zero copy is currently not supported with implicit recomputation."
    for id in flow.anchors():
        strategy = flow.art(id).exchangeStrategy()
        if strategy is ExchangeStrategy.OverlapStep:
            yield "ExchangeStrategy::OverlapStep is not yet supported."
        explicit = options.useHostCopyOps and options.enableExplicitMainLoops
        if strategy in _OVERLAPPING and (not explicit or mode is VirtualGraphMode.Off):
            yield (
                "ExchangeStrategy::OverlapInnerLoop, ExchangeStrategy::OverlapLoops require "
                "SessionOptions::useHostCopyOps, SessionOptions::enableExplicitMainLoops, "
                "VirtualGraphMode::(Manual, Auto, ExecutionPhases) to be enabled."
            )


def check_loss_scaling(
    settings: AutomaticLossScalingSettings, rule: OptimizerSpec | None, module: ModuleOp
) -> None:
    """Refuses a loss scale that cannot follow the gradients."""
    for complaint in _of_loss_scaling(settings, rule, module) if settings.enabled else ():
        raise popart_exception(complaint, "SessionOptions.automaticLossScalingSettings")


def _of_loss_scaling(
    settings: AutomaticLossScalingSettings, rule: OptimizerSpec | None, module: ModuleOp
) -> Iterator[str]:
    about = "[AutomaticLossScale transform]"
    if rule is None:
        yield f"{about} Only compatible when doing training"
        return
    if rule.loss_scaling.constant:
        yield f"{about} The optimizer must have non-const loss scaling"
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
    if not chosen and not _has_halves(module):
        yield f"{about} No tracked gradient tensors of type fp16 were found."
    for name, prefix in (("binEdgeLocation", f"{about} "), ("thresholdUpperCountProportion", "")):
        value = getattr(settings, name)
        if not 0 <= value <= 1:
            yield (
                f"{prefix}Out of range value for '{name}'. The current value is {value:g}, but it "
                "should be in the range [0, 1]."
            )


_CHOSEN = GradientTensorTrackingMethod.GradientsOfUserSpecifiedTensors


def _has_halves(module: ModuleOp) -> bool:
    """Whether a model has numbers of half precision, whose gradients may be too large."""
    types = (value.type for op in module.walk() for value in op.results)
    return any(getattr(type_, "element_type", None) == f16 for type_ in types)
