"""Automatic loss scaling: the loss scale follows the gradients of half precision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from popgraph.builder.opset.enums import GradientTensorTrackingMethod
from popgraph.builder.opset.exceptions import popart_exception
from popgraph.builder.opset.graphcore_operator import DOMAIN
from popgraph.dialects.onnx import OnnxOp, value_name
from popgraph.passes.optimizer_spec import OptimizerSpec
from popgraph.session.model import SessionModel
from popgraph.session.settings import AutomaticLossScalingSettings
from popgraph.support.arrays import Array
from popgraph.support.logs import log_of
from popgraph.support.ranks.communicator import ALL_REDUCE, Exchange
from popgraph.support.ranks.world import world

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
"""What only looks at its input in another way; its gradient is the same numbers again."""

_LARGEST_HALF = float(np.finfo(np.float16).max)
_LIMITS = {HALF: 2.0**15}
"""The largest loss scale that an element type has room for."""
_LIMIT = 2.0**126


def tracked_tensors(model: SessionModel, settings: AutomaticLossScalingSettings) -> list[str]:
    """The tensors of half precision whose gradients are looked at, if they have any."""
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
    return [id for id in halves if id in read]


def _readings(model: SessionModel) -> Iterator[tuple[OnnxOp, str]]:
    for op in model.graph.nodes:
        for value in op.input_values():
            if value is not None:
                yield op, value_name(value)


@dataclass
class LossScale:
    """
    The factor by which the user's loss scale is multiplied.

    After an update it is halved if too large a share of the gradients was near the end of what a
    half can be, else doubled, as long as the loss has room for it.
    """

    settings: AutomaticLossScalingSettings
    gradients: tuple[str, ...]
    """The results that are looked at."""
    loss: str
    """The element type of the loss."""
    factor: float = 1.0
    _updates: int = 0
    _large: int = 0
    _all: int = 0
    _edge: float = field(init=False)

    def __post_init__(self) -> None:
        if not self.gradients:
            raise popart_exception(
                "[AutomaticLossScale transform] No tracked gradient tensors of type fp16 were "
                "found.",
                "SessionOptions.automaticLossScalingSettings",
                "only gradients of half precision overflow early; leave it out without them",
            )
        self._edge = _LARGEST_HALF * self.settings.binEdgeLocation

    def see(self, results: Mapping[str, Array], ranks: int = 1) -> None:
        """Counts the gradients of a micro-batch on all ranks; what is not a number is large."""
        gradients = [results[id] for id in self.gradients]
        count = sum(one.size for one in gradients)
        small = sum(int((np.abs(one) < self._edge).sum()) for one in gradients)
        counted = np.array([count, count - small])
        if ranks > 1:
            counted = world().exchange(Exchange(ALL_REDUCE, 1, ranks), counted)
        self._all += int(counted[0])
        self._large += int(counted[1])

    def updated(self, rule: OptimizerSpec) -> bool:
        """Whether the factor is another one after an update by the rule of the user."""
        self._updates += 1
        if self._updates % self.settings.updatePeriod or not self._all:
            return False
        share = self._large / self._all
        self._large = self._all = 0
        before = self.factor
        if share > self.settings.thresholdUpperCountProportion:
            self.factor /= 2
        elif 2 * self.factor * abs(rule.loss_scaling.value) <= _LIMITS.get(self.loss, _LIMIT):
            self.factor *= 2
        return self.factor != before

    def scaled(self, rule: OptimizerSpec) -> OptimizerSpec:
        """The rule of the user at the loss scale of now."""
        scale = rule.loss_scaling
        return replace(rule, loss_scaling=replace(scale, value=scale.value * self.factor))
