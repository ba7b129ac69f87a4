"""Automatic loss scaling: adapts the loss scale to the histogram of half-precision gradients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from popgraph.builder.opset.enums import GradientTensorTrackingMethod
from popgraph.builder.opset.graphcore_operator import DOMAIN
from popgraph.dialects.onnx import OnnxOp, value_name
from popgraph.passes.graphcore.training.loss_scale import STATISTICS, SUM_AS_FLOAT
from popgraph.passes.graphcore.training.weight_context import ACCUMULATED
from popgraph.passes.optimizer_spec import OptimizerSpec
from popgraph.popart.api.settings import AutomaticLossScalingSettings
from popgraph.popart.exceptions import popart_exception
from popgraph.popart.model.model import SessionModel
from popgraph.support.logs import log_of

HALF = "FLOAT16"
_UNKNOWN = (
    "[PreAutomaticLossScale] Tensor %s, which was added to the "
    "'automaticLossScalingSettings.toTrackTensors' list, does not exist in the model."
)
_TWICE = (
    "[PreAutomaticLossScale] Tensor %s has been added more than once to the list of "
    "'toTrackTensors'. Please consider removing the duplicates."
)
_PRODUCTS = {("", "Conv"), ("", "Gemm"), ("", "MatMul"), (DOMAIN, "MultiConv")}
_VIEWS = {
    *((domain, "Reshape") for domain in ("", DOMAIN)),
    *(("", name) for name in ["Flatten", "Identity", "Squeeze", "Transpose", "Unsqueeze"]),
}
"""
Operators whose output has the elements of the input, so their gradients have the same histogram.
"""


ALIASES = {f"{SUM_AS_FLOAT}_accld": ACCUMULATED + STATISTICS}
"""{name in PopART: tensor that it aliases}."""


def tracked_tensors(model: SessionModel, settings: AutomaticLossScalingSettings) -> list[str]:
    """The half-precision tensors whose gradients are tracked."""
    halves = [id for id, info in model.infos().items() if info.data_type() == HALF]
    match settings.gradientTensorTrackingMethod:
        case GradientTensorTrackingMethod.GradientsOfUserSpecifiedTensors:
            chosen = settings.toTrackTensors or []
            for place, id in enumerate(chosen):
                if id in chosen[:place]:
                    log_of("transform").warning(_TWICE, id)
            unknown = [id for id in chosen if id not in model.infos()]
            for id in unknown:
                log_of("transform").error(_UNKNOWN, id)
            if unknown:
                raise popart_exception(
                    "[PreAutomaticLossScale] Some of the tensors in the "
                    "'automaticLossScalingSettings.toTrackTensors' list do not exist in the model. "
                    "Please look at the error log.",
                    "AutomaticLossScalingSettings.toTrackTensors",
                    f"there is no {', '.join(unknown)}",
                )
            return [id for id in halves if id in chosen]
        case GradientTensorTrackingMethod.ConvAndMatmulGradients:
            read = {id for op, id in _readings(model) if (op.domain, op.op_type) in _PRODUCTS}
        case _:
            read = {id for op, id in _readings(model) if (op.domain, op.op_type) not in _VIEWS}
    inputs = set(model.graph.input_names)  # nothing needs their gradients
    return [id for id in halves if id in read and id not in inputs]


def _readings(model: SessionModel) -> Iterator[tuple[OnnxOp, str]]:
    """(node, operand) pairs, except for the node of the loss, whose gradient is the loss scale."""
    for op in model.graph.nodes:
        if model.final_loss in op.output_names:
            continue
        for value in op.input_values():
            if value is not None:
                yield op, value_name(value)


def following(rule: OptimizerSpec, settings: AutomaticLossScalingSettings) -> OptimizerSpec:
    """The optimizer with automatic loss scaling, if enabled."""
    if not settings.enabled:
        return rule
    return replace(
        rule,
        scale_period=settings.updatePeriod,
        scale_edge=settings.binEdgeLocation,
        scale_threshold=settings.thresholdUpperCountProportion,
    )


def check_tracked(gradients: Sequence[str], rule: OptimizerSpec | None) -> None:
    """Refuses automatic loss scaling without tracked gradients."""
    if rule is not None and rule.scale_period and not gradients:
        raise popart_exception(
            "[AutomaticLossScale transform] No tracked gradient tensors of type fp16 were found.",
            "SessionOptions.automaticLossScalingSettings",
            "only gradients of half precision overflow early; leave it out without them",
        )
