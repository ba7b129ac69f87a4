"""Optimizers as blocks: models of standard operators that update all parameters in one run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, TensorProto

from popgraph.compat.ort_training.errors import WrongCall
from popgraph.compat.ort_training.graphs import add_initializer, add_node, check, tuple_of
from popgraph.compat.ort_training.onnxblock.blocks import Block, ReduceAllL2
from popgraph.compat.ort_training.onnxblock.onnxblock import ForwardBlock
from popgraph.compat.ort_training.training_model import gradient_name

__all__ = ["SGD", "AdamW", "ClipGradNorm"]

LEARNING_RATE, STEP = "learning_rate", "step"
MOMENTS = ("first_order_moment", "second_order_moment")
"""The states of AdamW, by the suffix of their inputs."""
UPDATED = ".updated"
"""Suffix of an output, after the name of the input that it replaces."""
_LEAST_NORM = 1e-6
"""Added to the norm in the divisor, as PyTorch and onnxruntime-training do."""


def moment_name(parameter: str, moment: str) -> str:
    """The input with a state of the optimizer."""
    return f"{parameter}.{moment}"


class ClipGradNorm(Block):
    """Scales all gradients so that their common Euclidean norm is at most `max_norm`."""

    def __init__(self, max_norm: float) -> None:
        super().__init__()
        self._max_norm = max_norm

    def build(self, gradients_name: str | Sequence[str]) -> tuple[str, ...]:
        """The names of the scaled gradients."""
        model, names = self._model, tuple_of(gradients_name)
        norm = add_node(model, "Add", [ReduceAllL2()(*names), _scalar(model, _LEAST_NORM)])
        ratio = add_node(model, "Div", [_scalar(model, self._max_norm), norm])
        factor = add_node(model, "Min", [ratio, _scalar(model, 1.0)])
        return tuple(add_node(model, "Mul", [name, factor], "clipped") for name in names)


class _Optimizer(ForwardBlock):
    """A model of the update of all trainable parameters."""

    moments: tuple[str, ...] = ()

    def __init__(self, clip_grad: Block | None = None) -> None:
        super().__init__()
        self._clip_grad = clip_grad
        self._learning_rate = LEARNING_RATE
        """The learning rate as a scalar."""

    def build(self, parameters: tuple[Sequence[TensorProto], Sequence[TensorProto]]) -> Any:
        """Adds the update; returns the names of the new parameters and states."""
        model, (trainable, _) = self._model, parameters
        _check_trainable(trainable)
        self._declare(model, trainable)
        names = [one.name for one in trainable]
        gradients = [gradient_name(name) for name in names]
        outputs: list[str] = []
        if self._clip_grad is not None:
            clipped = self._clip_grad(gradients)
            outputs = [_named(model, *pair) for pair in zip(clipped, gradients, strict=True)]
            gradients = list(outputs)
        self._prepare(model)
        for name, gradient in zip(names, gradients, strict=True):
            given = [name, *(moment_name(name, one) for one in self.moments)]
            made = self._update(model, given, gradient)
            outputs += [_named(model, *pair) for pair in zip(made, given, strict=True)]
        return tuple(outputs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Builds the model in `with onnxblock.empty_base():`."""
        output = super().__call__(*args, **kwargs)
        check(self.to_model_proto())
        return output

    def _declare(self, model: ModelProto, trainable: Sequence[TensorProto]) -> None:
        """Declares the inputs."""
        rate = onnx.helper.make_tensor_value_info(LEARNING_RATE, TensorProto.FLOAT, [1])
        model.graph.input.append(rate)
        if self.moments:
            step = onnx.helper.make_tensor_value_info(STEP, TensorProto.INT64, [1])
            model.graph.input.append(step)
        for one in trainable:
            named = [one.name, gradient_name(one.name)]
            named += [moment_name(one.name, moment) for moment in self.moments]
            model.graph.input.extend(
                onnx.helper.make_tensor_value_info(name, one.data_type, one.dims) for name in named
            )

    def _prepare(self, model: ModelProto) -> None:
        """Adds the values that all parameters share."""
        self._learning_rate = add_node(model, "Squeeze", [LEARNING_RATE])

    def _update(self, model: ModelProto, given: Sequence[str], gradient: str) -> list[str]:
        """The new values of a parameter and its states."""
        raise NotImplementedError


class SGD(_Optimizer):
    """`w <- w - learning_rate * g`."""

    def _update(self, model: ModelProto, given: Sequence[str], gradient: str) -> list[str]:
        step = add_node(model, "Mul", [self._learning_rate, gradient])
        return [add_node(model, "Sub", [given[0], step])]


class AdamW(_Optimizer):
    """
    Adam with decoupled weight decay, in the order of Hugging Face's AdamW.

        m <- b1 * m + (1 - b1) * g
        v <- b2 * v + (1 - b2) * g * g
        w <- w - rate * m / (sqrt(v) + eps)
        w <- w - learning_rate * weight_decay * w

    `rate` is `learning_rate * sqrt(1 - b2 ** step) / (1 - b1 ** step)`, or the learning rate
    without `bias_correction`.
    """

    moments = MOMENTS

    def __init__(
        self,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        clip_grad: Block | None = None,
    ) -> None:
        super().__init__(clip_grad)
        self._bias_correction, self._betas = bias_correction, betas
        self._eps, self._weight_decay = eps, weight_decay
        self._rate = LEARNING_RATE
        self._scalars: dict[float, str] = {}

    def _prepare(self, model: ModelProto) -> None:
        super()._prepare(model)
        self._scalars = {}
        self._rate = self._learning_rate
        if self._bias_correction:
            self._rate = self._corrected_rate(model)

    def _corrected_rate(self, model: ModelProto) -> str:
        """The rate of this step; in f32, `1 - 0.999` has an error of 6e-5."""
        double = int(TensorProto.DOUBLE)
        step = add_node(model, "Cast", [add_node(model, "Squeeze", [STEP])], to=double)
        rate = add_node(model, "Cast", [self._learning_rate], to=double)
        one = add_initializer(model, np.float64(1), "one")
        first, second = (
            add_node(
                model,
                "Sub",
                [one, add_node(model, "Pow", [add_initializer(model, np.float64(b), "b"), step])],
            )
            for b in self._betas
        )
        root = add_node(model, "Sqrt", [second])
        scaled = add_node(model, "Div", [add_node(model, "Mul", [rate, root]), first])
        return add_node(model, "Cast", [scaled], to=int(TensorProto.FLOAT))

    def _update(self, model: ModelProto, given: Sequence[str], gradient: str) -> list[str]:
        weight, *moments = given
        square = add_node(model, "Mul", [gradient, gradient])
        first, second = (
            self._mean(model, held, new, beta)
            for held, new, beta in zip(moments, (gradient, square), self._betas, strict=True)
        )
        root = add_node(model, "Sqrt", [second])
        divisor = add_node(model, "Add", [root, self._scalar(model, self._eps)])
        change = add_node(model, "Mul", [self._rate, add_node(model, "Div", [first, divisor])])
        weight = add_node(model, "Sub", [weight, change])
        if self._weight_decay:
            decay = self._scalar(model, self._weight_decay)
            decay = add_node(model, "Mul", [self._learning_rate, decay])
            weight = add_node(model, "Sub", [weight, add_node(model, "Mul", [decay, weight])])
        return [weight, first, second]

    def _mean(self, model: ModelProto, held: str, new: str, beta: float) -> str:
        """The running mean: `beta * held + (1 - beta) * new`."""
        kept = add_node(model, "Mul", [self._scalar(model, beta), held])
        added = add_node(model, "Mul", [self._scalar(model, 1 - beta), new])
        return add_node(model, "Add", [kept, added])

    def _scalar(self, model: ModelProto, value: float) -> str:
        if value not in self._scalars:
            self._scalars[value] = _scalar(model, value)
        return self._scalars[value]


def _scalar(model: ModelProto, value: float) -> str:
    return add_initializer(model, np.float32(value), "scalar")


def _named(model: ModelProto, value: str, replaced: str) -> str:
    """The value under the name of the output that replaces an input."""
    name = replaced + UPDATED
    model.graph.node.append(onnx.helper.make_node("Identity", [value], [name]))
    return name


def _check_trainable(trainable: Sequence[TensorProto]) -> None:
    if not trainable:
        raise WrongCall(
            "there is no parameter to train",
            "the optimizer",
            "name parameters in requires_grad, or generate artifacts without an optimizer",
        )
    for one in trainable:
        if one.data_type != TensorProto.FLOAT:
            kind = TensorProto.DataType.Name(one.data_type)
            raise WrongCall(
                f"optimizers update parameters of FLOAT, but {one.name!r} is {kind}",
                "the optimizer",
                "freeze it, or convert the model to FLOAT",
            )
