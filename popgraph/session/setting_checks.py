"""Options of a session, and of its anchors, that do not go together in PopART."""

from __future__ import annotations

from collections.abc import Iterator

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


def check_loss_scaling(settings: AutomaticLossScalingSettings, rule: OptimizerSpec | None) -> None:
    """Refuses a loss scale that cannot follow the gradients."""
    for complaint in _of_loss_scaling(settings, rule) if settings.enabled else ():
        raise popart_exception(complaint, "SessionOptions.automaticLossScalingSettings")


def _of_loss_scaling(
    settings: AutomaticLossScalingSettings, rule: OptimizerSpec | None
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
