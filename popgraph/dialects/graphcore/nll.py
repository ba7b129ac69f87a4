"""The negative log-likelihood loss and its gradient."""

from __future__ import annotations

import numpy as np
from xdsl.dialects.builtin import (
    BoolAttr,
    IntegerAttr,
    TensorType,
    i64,
)
from xdsl.ir import SSAValue
from xdsl.irdl import operand_def, opt_prop_def, prop_def, result_def

from popgraph.dialects.graphcore.arithmetic import (
    DivOp,
    LogOp,
    MaxOp,
    NegOp,
    WhereOp,
)
from popgraph.dialects.graphcore.base import (
    FLOATS,
    INTEGERS,
    Array,
    Operand,
    Tensor,
    dtype_of,
    flag,
    integer,
    operation,
    precisely,
    shape_of,
    tensor_of,
)
from popgraph.dialects.graphcore.broadcasting import (
    ReduceSumOp,
    reshaped,
    scalar,
)
from popgraph.dialects.graphcore.functions import CastOp
from popgraph.dialects.graphcore.logic import AndOp, CompareOp
from popgraph.dialects.graphcore.lookup import IotaOp
from popgraph.dialects.graphcore.losses import Loss
from popgraph.dialects.graphcore.reductions import divided, in_type_of, widened
from popgraph.support import shapes
from popgraph.support.shapes import Shape


class _Nll(Loss):
    """The operands and masks that the negative log-likelihood and its gradient share."""

    probabilities = operand_def(TensorType)
    labels = operand_def(TensorType)
    ignore_index = opt_prop_def(IntegerAttr)
    log_probabilities = prop_def(BoolAttr)

    def check(self) -> tuple[Tensor, Shape]:
        """The type of the probabilities and the shape of the loss."""
        element = self.common_element(FLOATS, self.probabilities)
        self.common_element(INTEGERS, self.labels)
        shape, labels = shape_of(self.probabilities), shape_of(self.labels)
        if not shape or labels != shape[:-1]:
            raise self.fail(
                f"needs labels of shape {shapes.text(shape[:-1])}, not {shapes.text(labels)}",
                "pass one label for every row of probabilities",
            )
        return TensorType(element, shape), self.reduced_shape(labels)

    @property
    def is_log(self) -> bool:
        """Whether the operand holds log-probabilities."""
        return flag(self.log_probabilities)

    def counted(self) -> Operand | None:
        """A mask of samples that are not ignored; None if all count."""
        if self.ignore_index is None:
            return None
        labels = CastOp(self.labels, to=i64)
        return CompareOp(labels, scalar(integer(self.ignore_index), labels), "ne")

    def chosen(self) -> Operand:
        """A mask over samples and classes: true at the label of each sample that counts."""
        *samples, classes = shape_of(self.probabilities)
        labels = reshaped(CastOp(self.labels, to=i64), (*samples, 1))
        # A comparison, not a gather: a label outside the classes selects nothing.
        chosen = CompareOp(labels, IotaOp(shape=[classes], axis=0, dtype=i64), "eq")
        counted = self.counted()
        return chosen if counted is None else AndOp(chosen, reshaped(counted, (*samples, 1)))

    def shared(self, whole: Operand) -> Operand:
        """`whole` divided by the number of samples that count, for a mean."""
        counted, samples = self.counted(), shape_of(self.labels)
        if counted is None:
            return divided(whole, shapes.prod(samples))
        wide = widened(whole)
        ones = CastOp(counted, to=tensor_of(wide).element_type)
        number = ReduceSumOp(ones, axes=range(len(samples)), keepdims=False)
        return in_type_of(whole, DivOp(wide, MaxOp(number, scalar(1, wide))))

    def number(self, counted: Array) -> int:
        """The divisor of `shared`, from an array."""
        return counted.size if self.ignore_index is None else max(int(counted.sum()), 1)

    def masks(self, labels: Array) -> tuple[Array, Array]:
        """`counted` and `chosen` of arrays."""
        classes = shape_of(self.probabilities)[-1]
        counted = np.ones(labels.shape, bool)
        if self.ignore_index is not None:
            counted = np.asarray(labels != integer(self.ignore_index))
        chosen = (labels[..., None] == np.arange(classes)) & counted[..., None]
        return counted, np.asarray(chosen)


def least(usual: float, like: Operand) -> float:
    """The lower clamp for the type of `like`: `usual`, or the least normal number of f16."""
    return 6.104e-5 if dtype_of(like).name == "f16" else usual


@operation
class NllLossOp(_Nll):
    """
    -log(probability of the label), averaged, summed or unchanged. PopART nllloss.

    `probabilities` is [samples..., classes], `labels` [samples...]. Probabilities are clamped to at
    least 1e-7 (f16: 6.104e-5). Samples labelled `ignore_index` count neither in the loss nor in the
    divisor of a mean, which is then at least 1; without `ignore_index`, the mean of no samples is
    NaN. A label outside the classes has probability 0. With `log_probabilities` the first operand
    holds logarithms and nothing is clamped.
    """

    name = "graphcore.nll_loss"
    probabilities = operand_def(TensorType)
    labels = operand_def(TensorType)
    result = result_def(TensorType)

    def __init__(
        self,
        probabilities: Operand,
        labels: Operand,
        *,
        reduction: str,
        ignore_index: int | None = None,
        log_probabilities: bool,
    ) -> None:
        super().__init__(
            [probabilities, labels],
            {
                "reduction": reduction,
                "ignore_index": ignore_index,
                "log_probabilities": bool(log_probabilities),
            },
        )

    def infer(self) -> tuple[Tensor, ...]:
        type_, shape = self.check()
        return (TensorType(type_.element_type, shape),)

    @property
    def least_probability(self) -> float:
        return least(1e-7, self.probabilities)

    def evaluate(self, probabilities: Array, labels: Array) -> tuple[Array, ...]:
        counted, chosen = self.masks(labels)

        def loss(probabilities: Array) -> Array:
            picked = np.where(chosen, probabilities, 0).sum(-1)
            logs = picked if self.is_log else np.log(np.maximum(picked, self.least_probability))
            losses = np.where(counted, -logs, 0)
            if self.reduction.data == "mean":
                return np.asarray(losses.sum() / self.number(counted))
            return self.reduced(losses)

        return (precisely(loss, probabilities),)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        ignored = None if self.ignore_index is None else integer(self.ignore_index)
        gradient = NllLossGradOp(
            self.probabilities,
            self.labels,
            dy,
            reduction=self.reduction.data,
            ignore_index=ignored,
            log_probabilities=self.is_log,
        )
        return (gradient, None)

    def expand(self) -> tuple[Operand, ...]:
        zero = scalar(0, self.probabilities)
        last = len(shape_of(self.labels))
        terms = WhereOp(self.chosen(), self.probabilities, zero)
        picked: Operand = ReduceSumOp(terms, axes=[last], keepdims=False)
        if not self.is_log:
            picked = LogOp(MaxOp(picked, scalar(self.least_probability, picked)))
        losses: Operand = NegOp(picked)
        counted = self.counted()
        if counted is not None:
            losses = WhereOp(counted, losses, zero)
        if self.reduction.data == "mean":
            total = ReduceSumOp(widened(losses), axes=range(last), keepdims=False)
            return (in_type_of(losses, self.shared(total)),)
        return (self.reduce(losses),)


@operation
class NllLossGradOp(_Nll):
    """
    The gradient of `nll_loss`: -dloss / max(probability, 1e-10) at the label (f16: 6.104e-5).

    With `log_probabilities` it is -dloss. A mean divides `dloss` by the number of samples.
    """

    name = "graphcore.nll_loss_grad"
    probabilities = operand_def(TensorType)
    labels = operand_def(TensorType)
    dloss = operand_def(TensorType)
    result = result_def(TensorType)

    def __init__(
        self,
        probabilities: Operand,
        labels: Operand,
        dloss: Operand,
        *,
        reduction: str,
        ignore_index: int | None = None,
        log_probabilities: bool,
    ) -> None:
        super().__init__(
            [probabilities, labels, dloss],
            {
                "reduction": reduction,
                "ignore_index": ignore_index,
                "log_probabilities": bool(log_probabilities),
            },
        )

    def infer(self) -> tuple[Tensor, ...]:
        type_, shape = self.check()
        self.common_element(FLOATS, self.probabilities, self.dloss)
        if shape_of(self.dloss) != shape:
            raise self.fail(
                f"needs a gradient of shape {shapes.text(shape)}, "
                f"not {shapes.text(shape_of(self.dloss))}"
            )
        return (type_,)

    @property
    def least_divisor(self) -> float:
        return least(1e-10, self.probabilities)

    def evaluate(self, probabilities: Array, labels: Array, dloss: Array) -> tuple[Array, ...]:
        counted, chosen = self.masks(labels)

        def slope(probabilities: Array, dloss: Array) -> Array:
            share = dloss[..., None] if self.reduction.data == "none" else dloss
            if self.reduction.data == "mean":
                share = share / self.number(counted)
            clamped = np.maximum(probabilities, self.least_divisor)
            slopes = -share if self.is_log else -share / clamped
            return np.where(chosen, slopes, 0)

        return (precisely(slope, probabilities, dloss),)

    def expand(self) -> tuple[Operand, ...]:
        share: Operand = self.dloss
        match self.reduction.data:
            case "none":
                share = reshaped(share, (*shape_of(share), 1))
            case "mean":
                share = self.shared(share)
        slopes: Operand = NegOp(share)
        if not self.is_log:
            least_divisor = scalar(self.least_divisor, self.probabilities)
            slopes = DivOp(slopes, MaxOp(self.probabilities, least_divisor))
        return (WhereOp(self.chosen(), slopes, scalar(0, self.probabilities)),)
