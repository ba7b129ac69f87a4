"""
PopONNX's losses and optimizers that differ from later ones, and the choice of losses to compute.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from popgraph.builder.opset.enums import ReductionType
from popgraph.builder.opset.graphcore_operator import DOMAIN
from popgraph.dialects.onnx.types import dims, static_shape
from popgraph.popart.api import losses as modern
from popgraph.popart.api import optimizers
from popgraph.popart.api.builder import Builder
from popgraph.popart.api.dataflow import DataFlow
from popgraph.popart.api.options import SessionOptions
from popgraph.popart.api.step_plan import plan_of
from popgraph.popart.eras.era import PLAIN_POPONNX, Era
from popgraph.support.shapes import prod


class L1Loss(modern.L1Loss):
    """
    `L1Loss(input, output, lambda)`: lambda times the sum of |x| of each sample.

    For a mean, the value is divided by the number of samples, but the gradient by the number of
    elements, both counted over all replicas.
    """

    def __init__(
        self,
        input: str,
        output: str,
        lambda_: float | None = None,
        reduction: ReductionType = ReductionType.Sum,
        **named: Any,
    ) -> None:
        value = named.pop("lambda", lambda_)
        if named or value is None:
            raise TypeError("L1Loss() takes input, output, lambda and reduction")
        super().__init__(input, output, value, reduction)

    def trained(self, builder: Builder) -> str:
        if self._reduction is not ReductionType.Mean:
            return self._output
        shape = static_shape(builder.type_of(self._inputs[0]))
        if shape is None:
            counts = [self._elements(builder, id) for id in (self._inputs[0], self._output)]
            return str(builder.aiOnnx.div([self._output, builder.aiOnnx.div(counts)]))
        if not prod(shape[1:]):
            return self._output
        id, types = f"{self._output}/elements", [builder.type_of(self._output)]
        factor = {"scale": 1 / prod(shape[1:])}
        return builder.named_node("Scale", DOMAIN, [self._output], factor, [id], types)[0]


class NllLoss(modern.NllLoss):
    """
    `NllLoss(probabilities, labels, output)`: -log of the probability of each label.

    Labels are flattened: shape [5, 4] matches probabilities of shape [5, 1, 4, 9].
    """

    def _of_samples(self, builder: Builder) -> str:
        probabilities, labels = self._inputs
        axes, shape = dims(builder.type_of(probabilities)), static_shape(builder.type_of(labels))
        rows = (axes or ())[:-1]
        samples = [one for one in rows if isinstance(one, int)]
        if not axes or shape is None or len(samples) < len(rows) or samples == list(shape):
            return super()._of_samples(builder)
        if prod(samples) != prod(shape):
            return super()._of_samples(builder)
        beside = builder.reshape_const(builder.aiOnnx, [labels], samples)
        none = ReductionType.NoReduction
        losses = builder.aiGraphcore.nllloss([probabilities, beside], none, self._ignored)
        return builder.reshape_const(builder.aiOnnx, [losses], shape)


def shared(losses: Sequence[str | modern.Loss], options: SessionOptions) -> None:
    """Makes losses with a mean divide by the samples of all replicas."""
    replicas = plan_of(1, options).replicas
    for loss in losses:
        if isinstance(loss, modern.Loss):
            loss.shared_by(replicas)


def anchored(losses: Sequence[str | modern.Loss], flow: DataFlow | None) -> list[str | modern.Loss]:
    """The losses that are anchors; without training, no other loss is observable."""
    return [
        loss
        for loss in losses
        if flow is None or not isinstance(loss, modern.Loss) or flow.isAnchored(loss.output())
    ]


class BaseSGD(optimizers.SGD):
    """The common base of `SGD` and `ConstSGD`."""

    ERA: ClassVar[Era] = PLAIN_POPONNX

    def _insists_on_learning(self) -> bool:
        return self.ERA.checked

    def learnRate(self) -> float:
        return self._maps["learningRate"].default.val()

    def weightDecay(self) -> float:
        return self._maps["weightDecay"].default.val()


class SGD(BaseSGD):
    """`SGD(learning_rate, weight_decay)`; both may change later."""


class ConstSGD(optimizers.ConstSGD, BaseSGD):
    """`ConstSGD(learning_rate, weight_decay)`, with constant values."""
