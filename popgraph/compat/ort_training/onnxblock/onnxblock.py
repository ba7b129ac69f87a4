"""`ForwardBlock` and `TrainingBlock`: blocks that end in a whole model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from onnx import ModelProto, TensorProto

from popgraph.compat.ort_training.errors import WrongCall
from popgraph.compat.ort_training.graphs import set_outputs, tuple_of, with_shapes
from popgraph.compat.ort_training.onnxblock.blocks import Block
from popgraph.compat.ort_training.onnxblock.model_accessor import current
from popgraph.compat.ort_training.training_model import eval_model, training_model

Parameters: TypeAlias = tuple[list[TensorProto], list[TensorProto]]
"""The trainable and the frozen parameters."""


class ForwardBlock(Block):
    """A block whose results become the outputs of the model."""

    _built: ModelProto | None = None

    def to_model_proto(self) -> ModelProto:
        """The model; WrongCall before the block is called."""
        if self._built is None:
            raise WrongCall(
                "Please build the forward models first before trying to retrieve it.",
                hint="call the block in `with onnxblock.base(model):`",
            )
        return self._built

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Edits the model of the surrounding `with`, and keeps a copy of it."""
        output = super().__call__(*args, **kwargs)
        self._built = with_shapes(current().model)
        set_outputs(self._built, tuple_of(output))
        current().model.CopyFrom(self._built)
        return output


class TrainingBlock(Block):
    """
    A block whose first result is the loss, from which gradients are computed.

    `requires_grad` selects the parameters to train before the block is called.
    """

    def __init__(self) -> None:
        super().__init__()
        self._requires_grad: set[str] = set()
        self._frozen: set[str] = set()
        self._parameters: Parameters | None = None
        self._models: tuple[ModelProto, ModelProto] | None = None
        self._sizes: Mapping[str, int] | None = None

    def requires_grad(self, argument_name: str, value: bool = True) -> None:
        """Trains a parameter, or freezes it if `value` is false."""
        chosen, other = self._requires_grad, self._frozen
        if not value:
            chosen, other = other, chosen
        chosen.add(argument_name)
        other.discard(argument_name)

    def parameters(self) -> Parameters:
        """The trainable and the frozen parameters; WrongCall before the block is called."""
        if self._parameters is None:
            raise WrongCall(
                "Please build the training model first before trying to retrieve the parameters.",
                hint="call the block in `with onnxblock.base(model):`",
            )
        return self._parameters

    def to_model_proto(self) -> tuple[ModelProto, ModelProto]:
        """The training and the eval model; WrongCall before the block is called."""
        if self._models is None:
            raise WrongCall(
                "Please build the training and eval models first before trying to retrieve them.",
                hint="call the block in `with onnxblock.base(model):`",
            )
        return self._models

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Edits the model of the surrounding `with`, and adds the gradients."""
        output = super().__call__(*args, **kwargs)
        outputs = tuple_of(output)
        model = with_shapes(current().model)
        set_outputs(model, outputs)
        tensors = list(model.graph.initializer)
        names = self._requires_grad | self._frozen
        self._parameters = (
            [one for one in tensors if one.name in self._requires_grad],
            [one for one in tensors if one.name in self._frozen],
        )
        known = [one.name for one in (*tensors, *model.graph.input)]
        trained = [name for name in dict.fromkeys(known) if name in self._requires_grad]
        trained += sorted(self._requires_grad - set(known))
        self._models = (
            training_model(model, outputs[0], trained, names, self._sizes),
            eval_model(model, names),
        )
        current().model.CopyFrom(self._models[0])
        return output


__all__ = ["ForwardBlock", "TrainingBlock"]
