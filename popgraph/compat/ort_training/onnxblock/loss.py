"""Losses as blocks: each adds the loss of an output and, if it is new, the input of its target."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from popgraph.compat.ort_training.errors import WrongCall
from popgraph.compat.ort_training.graphs import add_initializer, add_node, has_value, value_info
from popgraph.compat.ort_training.onnxblock import blocks

__all__ = ["BCEWithLogitsLoss", "CrossEntropyLoss", "L1Loss", "MSELoss"]

_REDUCTIONS = {"mean": "ReduceMean", "sum": "ReduceSum", "none": ""}


class _Loss(blocks.Block):
    """A loss with a reduction: mean, sum or none."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        if reduction not in _REDUCTIONS:
            raise WrongCall(
                f"Reduction {reduction} not supported.",
                f"{type(self).__name__}(reduction={reduction!r})",
                "one of 'mean', 'sum', 'none'",
            )
        self._reduction = reduction

    def _reduced(self, name: str) -> str:
        """The mean or sum of all elements."""
        op_type = _REDUCTIONS[self._reduction]
        return add_node(self._model, op_type, [name], "loss", keepdims=0) if op_type else name

    def _target(self, like: str, name: str) -> str:
        """The target; a new input has the type of the output."""
        return name if has_value(self._model, name) else blocks.InputLike(like)(name)

    def _node(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        return add_node(self._model, op_type, inputs, **attributes)


class MSELoss(_Loss):
    """`reduce((output - target) ** 2)`."""

    def build(self, loss_input_name: str, target_name: str = "target") -> str:
        """Adds the loss of an output."""
        target = self._target(loss_input_name, target_name)
        error = self._node("Sub", loss_input_name, target)
        return self._reduced(self._node("Mul", error, error))


class L1Loss(_Loss):
    """`reduce(abs(output - target))`."""

    def build(self, loss_input_name: str, target_name: str = "target") -> str:
        """Adds the loss of an output."""
        target = self._target(loss_input_name, target_name)
        return self._reduced(self._node("Abs", self._node("Sub", loss_input_name, target)))


class CrossEntropyLoss(_Loss):
    """
    Cross entropy of scores and class numbers.

    `weight` has a factor for each class; labels equal to `ignore_index` do not count.
    """

    def __init__(
        self,
        weight: np.ndarray[Any, Any] | None = None,
        reduction: str = "mean",
        ignore_index: int | None = None,
    ) -> None:
        super().__init__(reduction)
        self._weight, self._ignore_index = weight, ignore_index

    def build(self, scores_input_name: str, labels_name: str = "labels") -> str:
        """Adds the loss; new labels have the shape of the scores without the last axis."""
        model = self._model
        if not has_value(model, labels_name):
            kind = value_info(model, scores_input_name).type
            labels = model.graph.input.add()
            labels.name = labels_name
            labels.type.CopyFrom(kind)
            labels.type.tensor_type.elem_type = TensorProto.INT64
            del labels.type.tensor_type.shape.dim[-1]
        inputs = [scores_input_name, labels_name]
        if self._weight is not None:
            inputs.append(add_initializer(model, np.asarray(self._weight), "celoss.weight"))
        attributes: dict[str, Any] = {"reduction": self._reduction}
        if self._ignore_index is not None:
            attributes["ignore_index"] = self._ignore_index
        return add_node(model, "SoftmaxCrossEntropyLoss", inputs, "loss", **attributes)


class BCEWithLogitsLoss(_Loss):
    """
    Binary cross entropy of logits `x` and targets `t`, without overflow for large logits.

    `(1 - t) * x + (1 + (pos_weight - 1) * t) * softplus(-x)`, times `weight`.
    """

    def __init__(
        self,
        weight: np.ndarray[Any, Any] | None = None,
        reduction: str = "mean",
        pos_weight: np.ndarray[Any, Any] | None = None,
    ) -> None:
        super().__init__(reduction)
        self._weight, self._pos_weight = weight, pos_weight

    def build(self, loss_input_name: str, target_name: str = "target") -> str:
        """Adds the loss of an output."""
        target = self._target(loss_input_name, target_name)
        one = self._constant(np.ones(1, np.float32))
        negative = self._node("Sub", one, target)
        log = self._node("Softplus", self._node("Neg", loss_input_name))
        if self._pos_weight is not None:
            more = self._constant(np.asarray(self._pos_weight, np.float32) - np.float32(1))
            log = self._node("Mul", log, self._node("Add", one, self._node("Mul", more, target)))
        loss = self._node("Add", self._node("Mul", negative, loss_input_name), log)
        if self._weight is not None:
            loss = self._node("Mul", self._constant(np.asarray(self._weight, np.float32)), loss)
        return self._reduced(loss)

    def _constant(self, array: np.ndarray[Any, Any]) -> str:
        return add_initializer(self._model, array, "bceloss.constant")
