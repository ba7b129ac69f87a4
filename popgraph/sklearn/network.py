"""The network of an estimator: a perceptron by its sizes, or a model of the user."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from popgraph.builder.onnx.write import export_model
from popgraph.builder.pgraph.lower.initializers import INITIALIZERS
from popgraph.builder.source import ModelSource
from popgraph.compiler import load
from popgraph.dialects import element_types
from popgraph.dialects.onnx import OnnxOp, model_of
from popgraph.dialects.onnx.containers import input_types
from popgraph.dialects.onnx.types import Dim, dims
from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.support.dtypes import DType
from popgraph.support.errors import ModelError, PopgraphError
from popgraph.support.files import path_of
from popgraph.support.names import Names
from popgraph.support.shapes import prod

Given: TypeAlias = Any
"""None, a model in any form that `Trainer` takes, or a function of the sizes that returns one."""


class ParameterError(PopgraphError, ValueError):
    """A parameter of an estimator has no valid value."""


ACTIVATIONS = {
    "relu": "Relu",
    "tanh": "Tanh",
    "logistic": "Sigmoid",
    "identity": "Identity",
    "gelu": "Gelu",
    "silu": "Swish",
    "elu": "Elu",
    "selu": "Selu",
    "leaky_relu": "LeakyRelu",
    "softplus": "Softplus",
}
"""Activations of hidden layers, and their ONNX operators; the first four are scikit-learn's."""
_NAMES = Names("activation", dict.fromkeys(ACTIVATIONS, "") | {"logistic": "sigmoid"})
_HE = ("relu", "gelu", "silu", "elu", "leaky_relu")
"""Activations that halve the variance, which He's initialization compensates."""

PROBABILITIES = {"Softmax": "nll", "LogSoftmax": "nll_loss", "Sigmoid": "bce"}
"""The last operator of models that compute probabilities, and the loss of their output."""


@dataclass(frozen=True)
class Network:
    """A network as an estimator stores it: complete, without files, and with known ends."""

    source: str | bytes
    """A `.pgraph` text, or ONNX."""
    batch: Dim
    """The first dimension of the input: the batch size, its name, or None."""
    shape: tuple[int | None, ...]
    """The dimensions of one sample; None where any size fits."""
    dtype: np.dtype[Any]
    """The element type of the input."""
    outputs: tuple[Dim, ...]
    """The dimensions of the output of one sample."""
    last: str = ""
    """The operator that computes the output."""
    layers: tuple[int, ...] = ()
    """The sizes of a perceptron's layers, inputs and outputs included."""
    activation: str = ""

    @property
    def is_binary(self) -> bool:
        """Whether the output is one number for each sample."""
        return self.outputs in ((), (1,))

    @property
    def classification_loss(self) -> str:
        """The loss that fits the output: of logits, or of probabilities."""
        if self.is_binary:
            return "bce" if self.last == "Sigmoid" else "bce_with_logits"
        return PROBABILITIES.get(self.last, "cross_entropy")

    def weights(self, seed: int) -> dict[str, Array]:
        """Initial weights of a perceptron from a seed; a model of the user has its own."""
        draw = INITIALIZERS["he_normal" if self.activation in _HE else "glorot_uniform"]
        return {
            f"w{number}": draw(shape, seed=[seed, number]).astype(self.dtype)
            for number, shape in enumerate(pairwise(self.layers), 1)
        }

    def samples(self, x: Array) -> Array:
        """Rows of features as samples of the network: `[n, 784]`  ->  `[n, 1, 28, 28]`."""
        if self.dtype.kind in "iu" and x.dtype.kind == "f" and (x != np.rint(x)).any():
            raise ModelError(
                f"the input of the model takes integers ({self.dtype}), and X has fractions",
                "X",
                "integers, such as numbers of words",
            )
        x = x.astype(self.dtype, copy=False)
        if len(self.shape) < 2:
            return x
        known = prod([size for size in self.shape if size is not None])
        unknown = self.shape.count(None)
        sizes = [-1 if size is None else size for size in self.shape]
        if unknown > 1 or not known or x.shape[1] % known:
            raise ModelError(
                f"{x.shape[1]} features do not fill a sample of {_text(self.shape)}",
                "X",
                "state all sizes in the type of the input, such as x: f32[N, 3, 32, 32]",
            )
        return x.reshape(len(x), *sizes)

    def check_features(self, features: int) -> None:
        """ModelError unless rows with this number of features fit the input."""
        known = [size for size in self.shape if size is not None]
        if len(known) == len(self.shape) and prod(known) != features:
            raise ModelError(
                f"the model takes {prod(known)} features, and X has {features}",
                "X",
                "model=lambda features, outputs: ... builds a model for the sizes of the data",
            )

    def check_outputs(self, wanted: int, what: str) -> None:
        """ModelError unless the output has a number for each class or target."""
        size = self.outputs[0] if self.outputs else 1
        if len(self.outputs) > 1:
            raise ModelError(
                f"the output has the shape {_text(self.outputs)} for each sample",
                "model",
                f"one number for each of the {what}: flatten it",
            )
        if isinstance(size, int) and size != wanted and not (wanted == 2 and self.is_binary):
            raise ModelError(
                f"the model has {size} outputs, and there are {wanted} {what}",
                "model",
                "model=lambda features, outputs: ... builds a model for the sizes of the data",
            )


def network_of(
    model: Given, features: int, outputs: int, hidden: object, activation: object, dtype: object
) -> Network:
    """The network for data of these sizes; a model of the user has its own layers and types."""
    if model is None:
        layers = (features, *_sizes(hidden), outputs)
        return perceptron(layers, _activation(activation), _float_type(dtype))
    if callable(model) and not isinstance(model, ModelSource | ModuleOp):
        make: Callable[[int, int], Any] = model
        model = make(features, outputs)
        if model is None:
            raise ParameterError(
                "the function returned no model",
                "model",
                "return a .pgraph text, a path, ONNX or a Builder",
            )
    if isinstance(model, type) or not _is_model(model):
        raise ParameterError(
            f"{model!r} is not a model",
            "model",
            "None for a perceptron of hidden=(100,), a .pgraph text, a path, ONNX, a Builder, or a "
            "function of the numbers of features and outputs",
        )
    found = _of_model(model)
    found.check_features(features)
    return found


def _is_model(model: object) -> bool:
    is_data = isinstance(model, str | bytes | ModelSource | ModuleOp) or path_of(model) is not None
    return is_data or hasattr(model, "SerializeToString")


def _of_model(model: Given) -> Network:
    """The network of a user's model."""
    module, compilation = load(model)
    if isinstance(model, str) and path_of(model) is None:
        source: str | bytes = str(model)
    else:
        source = export_model(module, compilation.weights).SerializeToString()
    inputs, graph = input_types(module), model_of(module).graph
    for what, names in (("inputs", (*inputs,)), ("outputs", graph.output_names)):
        if len(names) != 1:
            raise ModelError(
                f"the model has {len(names)} {what}: {', '.join(map(repr, names))}",
                "model",
                "an estimator takes a model with one of them; popgraph.Trainer trains any",
            )
    ((name, type_),) = inputs.items()
    sizes, out = dims(type_), dims(graph.yielded[0].type)
    if not sizes or out is None or not out:
        raise ModelError(
            f"the shape of {'the output' if sizes else f'input {name!r}'} is not known",
            "model",
            "give it a type with a batch dimension, such as x: f32[N, 4]",
        )
    batch, *sample = sizes
    last = graph.yielded[0].owner
    return Network(
        source,
        batch,
        tuple(size if isinstance(size, int) else None for size in sample),
        element_types.from_ir(type_.element_type).numpy,  # type: ignore[attr-defined]
        tuple(out[1:]),
        last.op_type if isinstance(last, OnnxOp) else "",
    )


def perceptron(layers: Sequence[int], activation: str, dtype: DType) -> Network:
    """A perceptron of these layers, the inputs first; its weights are zero at first."""
    lines, h, kind = [], "x", dtype.name
    for number, (inputs, outputs) in enumerate(pairwise(layers), 1):
        lines += [
            f"    weight w{number}: {kind}[{inputs}, {outputs}] = zeros",
            f"    weight b{number}: {kind}[{outputs}] = zeros",
        ]
        product, is_last = f"{h} @ w{number} + b{number}", number == len(layers) - 1
        name = "y" if is_last else f"h{number}"
        value = product if is_last else f"{ACTIVATIONS[activation]}({product})"
        lines.append(f"    {name} = {value}")
        h = name
    head = f"graph perceptron(x: {kind}[N, {layers[0]}]) -> (y: {kind}[N, {layers[-1]}]) {{"
    return Network(
        "\n".join([head, *lines, "}"]) + "\n",
        "N",
        (layers[0],),
        np.dtype(dtype.numpy),
        (layers[-1],),
        layers=tuple(layers),
        activation=activation,
    )


def _sizes(hidden: object) -> tuple[int, ...]:
    """The sizes of hidden layers; an integer is one layer."""
    sizes = (hidden,) if isinstance(hidden, int | np.integer) else hidden
    try:
        found = tuple(int(size) for size in sizes)  # type: ignore[attr-defined]
        fits = all(size >= 1 and size == given for size, given in zip(found, sizes, strict=True))  # type: ignore[call-overload]
    except (TypeError, ValueError):
        fits = False
    if not fits or isinstance(hidden, bool | str):
        raise ParameterError(
            f"hidden layers have positive sizes, not {hidden!r}",
            "hidden",
            "hidden=(100,), hidden=(64, 32), or hidden=() for a linear model",
        )
    return found


def _float_type(given: object) -> DType:
    """The element type of a perceptron."""
    for known in map(dtypes.BY_NAME.__getitem__, ("f32", "f64")):
        try:
            if np.dtype(given) == known.numpy:  # type: ignore[call-overload]
                return known
        except TypeError:
            break
    raise ParameterError(
        f"a perceptron computes in float32 or float64, not {given!r}",
        "dtype",
        "a model of your own may have other types: model=...",
    )


def _activation(given: object) -> str:
    name = _NAMES.find(given) if isinstance(given, str) else None
    if name is None:
        what, hint = _NAMES.unknown(str(given))
        raise ParameterError(what, "activation", hint)
    return name


def _text(shape: Sequence[Dim]) -> str:
    return f"[{', '.join('?' if size is None else str(size) for size in shape)}]"
