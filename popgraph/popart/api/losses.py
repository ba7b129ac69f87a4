"""PopART's former loss objects, expanded to operators."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TypeAlias

import numpy as np
from xdsl.dialects.builtin import TensorType

from popgraph.builder.opset.arguments import typed
from popgraph.builder.opset.enums import ReductionType
from popgraph.builder.opset.graphcore_operator import DOMAIN
from popgraph.dialects.onnx.types import dims, static_shape
from popgraph.popart.api.builder import Builder
from popgraph.popart.api.tensorinfo import TensorInfo
from popgraph.popart.exceptions import popart_exception
from popgraph.support.shapes import prod


@typed
class Loss(ABC):
    """
    A loss with the names of its tensors.

    Its output has one value per sample, under the user's name. The trained value is the sum over
    all samples and all losses.
    """

    def __init__(self, inputs: Sequence[str], output: str, reduction: ReductionType) -> None:
        self._inputs, self._output, self._reduction = list(inputs), output, reduction
        self._places: dict[str, int] = {}
        self._replicas = 1

    def virtualGraph(self, value: int) -> None:
        """Sets the IPU of the loss."""
        self._places["virtualGraph"] = value

    def pipelineStage(self, value: int) -> None:
        self._places["pipelineStage"] = value

    def pingPongPhase(self, value: int) -> None:
        self._places["executionPhase"] = value

    @contextmanager
    def placed(self, builder: Builder) -> Iterator[None]:
        """Within it, nodes are placed like the loss."""
        with ExitStack() as places:
            for method, value in self._places.items():
                places.enter_context(getattr(builder, method)(value))
            yield

    def input(self, index: int) -> str:
        return self._inputs[index]

    def output(self, index: int = 0) -> str:
        return self._output

    def shared_by(self, replicas: int) -> None:
        """Sets the number of replicas over which a mean is taken."""
        self._replicas = replicas

    def trained(self, builder: Builder) -> str:
        """The values whose sum is trained: the output."""
        return self._output

    @abstractmethod
    def append(self, builder: Builder) -> None:
        """Adds the nodes of the loss to a graph."""

    def _scaled(self, builder: Builder, id: str, factor: float, counted: str | None = None) -> None:
        """
        Writes the output: `id` times a factor, divided for a mean.

        `counted` is the divisor of a mean, if some samples are ignored.
        """
        if self._reduction is ReductionType.Mean:
            shape = static_shape(builder.type_of(id))
            if counted is None and shape is not None:
                factor /= prod(shape)
            else:
                id = str(builder.aiOnnx.div([id, counted or self._elements(builder, id)]))
            factor /= self._replicas
        attributes = {"scale": factor}
        types = [builder.type_of(id)]
        builder.named_node("Scale", DOMAIN, [id], attributes, [self._output], types)

    def _elements(self, builder: Builder, id: str) -> str:
        """The number of elements of a tensor of any shape, in the type of the loss."""
        ops = builder.aiOnnx
        return self._number(builder, ops.reduceprod([ops.shape([id])], keepdims=0))

    def _number(self, builder: Builder, id: str) -> str:
        """Casts a tensor to the type of the loss."""
        return str(builder.aiOnnx.cast([id], TensorInfo(self._dtype(builder), []).data_type()))

    def _dtype(self, builder: Builder) -> np.dtype[np.generic]:
        """The type of the loss; f32 if unknown."""
        is_known = isinstance(builder.type_of(self._inputs[0]), TensorType)
        return np.dtype(builder.getTensorDtypeString(self._inputs[0]) if is_known else "float32")


@typed
class NllLoss(Loss):
    """`NllLoss(probabilities, labels, output)`: -log p[label]."""

    def __init__(
        self,
        probabilities: str,
        labels: str,
        output: str,
        ignore_index: int | ReductionType | None = None,
        reduction: ReductionType = ReductionType.Sum,
    ) -> None:
        if isinstance(ignore_index, ReductionType):
            reduction, ignore_index = ignore_index, None
        super().__init__([probabilities, labels], output, reduction)
        self._ignored = ignore_index

    def probsTensorId(self) -> str:
        return self._inputs[0]

    def labelTensorId(self) -> str:
        return self._inputs[1]

    def append(self, builder: Builder) -> None:
        self._scaled(builder, self._of_samples(builder), 1.0, self._counted(builder))

    def _of_samples(self, builder: Builder) -> str:
        """The loss of each sample, in the shape of the labels."""
        none = ReductionType.NoReduction
        return str(builder.aiGraphcore.nllloss(self._inputs, none, self._ignored))

    def _counted(self, builder: Builder) -> str | None:
        """max(1, number of samples that are not ignored), as in the current operator."""
        if self._ignored is None:
            return None
        ops, one = builder.aiOnnx, np.ones((), self._dtype(builder))
        ignored, one = ops.constant(np.array(self._ignored)), ops.constant(one)
        is_ignored = ops.equal([ops.cast([self._inputs[1]], "INT64"), ignored])
        ones = self._number(builder, ops.logical_not([is_ignored]))
        return str(ops.max([ops.reducesum([ones], keepdims=0), one]))


@typed
class L1Loss(Loss):
    """`L1Loss(input, output, lambda)`: lambda times the sum of |x| of each sample."""

    def __init__(
        self,
        input: str,
        output: str,
        lambda_: float,
        reduction: ReductionType = ReductionType.Sum,
    ) -> None:
        super().__init__([input], output, reduction)
        self._lambda = lambda_

    def getInputId(self) -> str:
        return self._inputs[0]

    def getLambda(self) -> float:
        return self._lambda

    def append(self, builder: Builder) -> None:
        axes = dims(builder.type_of(self._inputs[0]))
        if axes == ():
            raise popart_exception("L1Op not valid for rank-0 tensor (scalar)")
        none = ReductionType.NoReduction
        sizes = builder.aiGraphcore.l1loss(self._inputs, self._lambda, none)
        if axes is None:
            sizes, axes = builder.aiOnnx.flatten([sizes], 1), (None, None)
        self._scaled(builder, _summed(builder, sizes, range(1, len(axes))), 1.0)


def _summed(builder: Builder, id: str, axes: Sequence[int]) -> str:
    """Sums over some axes, which are an input of later versions of ReduceSum."""
    ops = builder.aiOnnx
    if not axes:
        return id
    if ops.version < 13:
        return str(ops.reducesum([id], axes=list(axes), keepdims=0))
    return str(ops.reducesum([id, ops.constant(np.array(axes, np.int64))], keepdims=0))


@typed
class IdentityLoss(Loss):
    """`IdentityLoss(input, output)`: the tensor itself."""

    def __init__(
        self, input: str, output: str, reduction: ReductionType = ReductionType.Sum
    ) -> None:
        super().__init__([input], output, reduction)

    def append(self, builder: Builder) -> None:
        self._scaled(builder, self._inputs[0], 1.0)


AnyLoss: TypeAlias = str | Loss | Sequence[str | Loss]


def append_losses(builder: Builder, losses: Sequence[str | Loss]) -> list[str]:
    """Adds the losses to a graph; returns their outputs."""
    for loss in losses:
        if isinstance(loss, Loss):
            with loss.placed(builder):
                loss.append(builder)
    return [loss.output() if isinstance(loss, Loss) else loss for loss in losses]


def final_loss(builder: Builder, losses: Sequence[str | Loss], outputs: Sequence[str]) -> str:
    """The trained scalar: the sum of all losses over all samples."""
    if len(losses) == 1 and isinstance(losses[0], str):
        return losses[0]
    sums = [_sum(builder, *one) for one in zip(losses, outputs, strict=True)]
    return sums[0] if len(sums) == 1 else str(builder.aiOnnx.sum(sums))


def _sum(builder: Builder, loss: str | Loss, output: str) -> str:
    """The term of a loss in the trained scalar."""
    if isinstance(loss, str):
        return builder.aiGraphcore.identityloss([output], ReductionType.Sum)
    with loss.placed(builder):
        return builder.aiGraphcore.identityloss([loss.trained(builder)], ReductionType.Sum)


def as_losses(loss: AnyLoss | None) -> list[str | Loss]:
    """One loss or several, as a list."""
    if loss is None:
        return []
    return [loss] if isinstance(loss, str | Loss) else list(loss)
