"""Training and eval models: a model with a loss, its parameters as inputs, and its gradients."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import onnx
from onnx import ModelProto, NodeProto, TensorProto

from popgraph.compat.ort_training.errors import WrongCall, running
from popgraph.compat.ort_training.graphs import (
    TRAINING_DOMAIN,
    ancestors,
    check,
    initializers_to_inputs,
    keep_only,
    set_outputs,
)
from popgraph.passes.options import GRADIENT
from popgraph.support.names import closest
from popgraph.training.gradient_model import onnx_gradient

LAZY_RESET = "lazy_reset_grad"
"""The input that starts the accumulation of gradients again."""
_BUFFER, _OUT = "_grad.accumulation.buffer", "_grad.accumulation.out"


def is_accumulation(name: str) -> bool:
    """Whether an input of a training model belongs to the accumulation of gradients."""
    return name == LAZY_RESET or name.endswith(_BUFFER)


def gradient_name(parameter: str) -> str:
    """The name of a parameter's gradient in training and optimizer models."""
    return f"{parameter}_grad"


def eval_model(model: ModelProto, parameters: Collection[str]) -> ModelProto:
    """The model with its parameters as inputs; Dropout and BatchNormalization do not train."""
    made = ModelProto()
    made.CopyFrom(model)
    initializers_to_inputs(made, parameters)
    for node in made.graph.node:
        if node.op_type == "Dropout" and len(node.input) > 2:
            node.input[2] = ""
        if node.op_type == "BatchNormalization":
            for attribute in node.attribute:
                if attribute.name == "training_mode":
                    attribute.i = 0
            del node.output[1:]  # Statistics of the batch, which only training has.
    check(made)
    return made


def training_model(
    model: ModelProto,
    loss: str,
    trained: Sequence[str],
    parameters: Collection[str],
    sizes: Mapping[str, int] | None = None,
) -> ModelProto:
    """
    The forward and backward pass of a model, which also accumulates the gradients of `trained`.

    Parameters are inputs. `w_grad.accumulation.out` is the sum of the gradient of `w` and the input
    `w_grad.accumulation.buffer`, or the gradient alone if `lazy_reset_grad` is true.

    If all sizes are known, or `sizes` gives them, all operators are standard ones. Otherwise the
    gradients are one Gradient node of ONNX's training domain, which is valid for every size.
    """
    made = ModelProto()
    made.CopyFrom(model)
    initializers_to_inputs(made, parameters)
    if not trained:
        check(made)
        return made
    outputs = [one.name for one in made.graph.output]
    _check_trained(model, loss, trained)
    unknown = _unknown_sizes(made, sizes or {})
    if not unknown:
        made = _expanded(made, loss, trained, sizes or {})
    elif sizes:
        raise WrongCall(
            f"the size of {unknown[0]!r} is unknown",
            f"sizes={dict(sizes)}",
            "give all symbolic dimensions a size, or none",
        )
    else:
        _add_gradient_node(made, loss, trained)
    _add_accumulation(made, trained)
    set_outputs(made, [*outputs, *(name + _OUT for name in trained)])
    check(made)
    return made


def _check_trained(model: ModelProto, loss: str, trained: Sequence[str]) -> None:
    """WrongCall if the loss does not depend on a parameter that requires a gradient."""
    known = {one.name for one in (*model.graph.initializer, *model.graph.input)}
    needed = ancestors(model.graph, [loss])
    for name in trained:
        if name not in known:
            close = closest(name, known)
            listed = ", ".join(map(repr, sorted(known)[:8])) + ", ..." * (len(known) > 8)
            raise WrongCall(
                f"{name!r} requires a gradient, but the model has no such parameter",
                "requires_grad",
                f"did you mean {close!r}?" if close else f"it has {listed}",
            )
        if name not in needed:
            raise WrongCall(
                f"{name!r} requires a gradient, but the loss {loss!r} does not depend on it",
                "requires_grad",
                "leave it out, or list it in frozen_params",
            )


def _unknown_sizes(model: ModelProto, sizes: Mapping[str, int]) -> list[str]:
    """The dimensions of inputs without a size; WrongCall if `sizes` has other names."""
    symbols = _symbols(model)
    for name in sizes:
        if name not in symbols:
            listed = ", ".join(map(repr, filter(None, symbols))) or "none"
            raise WrongCall(
                f"the model has no symbolic dimension {name!r}",
                f"sizes={dict(sizes)}",
                f"it has {listed}",
            )
    return [name for name in symbols if name not in sizes]


def _symbols(model: ModelProto) -> list[str]:
    """The symbolic dimensions of inputs; "" for unnamed ones and for shapes of unknown rank."""
    found = list[str]()
    for one in model.graph.input:
        kind = one.type.tensor_type
        found += [dim.dim_param for dim in kind.shape.dim if not dim.HasField("dim_value")]
        found += [] if kind.HasField("shape") else [""]
    return list(dict.fromkeys(found))


def _expanded(
    model: ModelProto, loss: str, trained: Sequence[str], sizes: Mapping[str, int]
) -> ModelProto:
    """The backward pass in standard operators, with gradients `w_grad`."""
    with running():
        made: ModelProto = onnx_gradient(model, loss, wrt=trained, sizes=sizes)
    names = {GRADIENT + name: gradient_name(name) for name in trained}
    for node in made.graph.node:
        for field in (node.input, node.output):
            field[:] = [names.get(name, name) for name in field]
    for one in (*made.graph.output, *made.graph.value_info):
        one.name = names.get(one.name, one.name)
    return made


def _add_gradient_node(model: ModelProto, loss: str, trained: Sequence[str]) -> None:
    """Appends one Gradient node; it reads all inputs of the model."""
    others = [one.name for one in model.graph.input if one.name not in trained]
    read = ancestors(model.graph, [loss])
    others = [name for name in others if name in read]
    model.graph.node.append(
        onnx.helper.make_node(
            "Gradient",
            [*trained, *others],
            [gradient_name(name) for name in trained],
            name="gradients",
            domain=TRAINING_DOMAIN,
            xs=list(trained),
            zs=others,
            y=loss,
        )
    )
    model.opset_import.append(onnx.helper.make_opsetid(TRAINING_DOMAIN, 1))


def _add_accumulation(model: ModelProto, trained: Sequence[str]) -> None:
    """Adds the buffers and sums of gradients."""
    graph = model.graph
    types = {one.name: one for one in graph.input}
    for name in trained:
        for made, suffix in ((graph.input.add(), _BUFFER), (graph.value_info.add(), _OUT)):
            made.CopyFrom(types[name])
            made.name = name + suffix
        gradient, total = gradient_name(name), f"{gradient_name(name)}.accumulation.sum"
        graph.node.append(onnx.helper.make_node("Add", [name + _BUFFER, gradient], [total]))
        graph.node.append(
            onnx.helper.make_node("Where", [LAZY_RESET, gradient, total], [name + _OUT])
        )
    graph.input.append(onnx.helper.make_tensor_value_info(LAZY_RESET, TensorProto.BOOL, [1]))


@dataclass(frozen=True)
class ReadModel:
    """A training model without its accumulation, as `Module` compiles it."""

    model: ModelProto
    """The forward pass; with `loss` empty, the backward pass and outputs `w_grad`, too."""
    outputs: tuple[str, ...]
    """The outputs without gradients."""
    trained: tuple[str, ...]
    loss: str = ""
    """The loss of a Gradient node, which has been removed."""


def read_training_model(model: ModelProto, where: str) -> ReadModel:
    """The parts of a training model; WrongCall if another tool has written it."""
    foreign = [node for node in model.graph.node if node.domain == "com.microsoft"]
    if any(node.op_type == "InPlaceAccumulatorV2" for node in foreign):
        raise WrongCall(
            "onnxruntime-training has written this training model; its operators are its own",
            where,
            "generate the artifacts again, with popgraph.compat.ort_training.artifacts",
        )
    names = [one.name for one in model.graph.output]
    trained = tuple(name.removesuffix(_OUT) for name in names if name.endswith(_OUT))
    outputs = tuple(name for name in names if not name.endswith(_OUT))
    found = [node for node in model.graph.node if node.domain == TRAINING_DOMAIN]
    gradients = [node for node in found if node.op_type == "Gradient"]
    made = ModelProto()
    made.CopyFrom(model)
    if not gradients:
        keep_only(made, [*outputs, *_declared_gradients(made, trained)])
        return ReadModel(made, outputs, trained)
    loss = _text(gradients[0], "y")
    made.graph.node.remove(gradients[0])
    keep_only(made, list(dict.fromkeys([*outputs, loss])))
    return ReadModel(made, outputs, trained, loss)


def _declared_gradients(model: ModelProto, trained: Sequence[str]) -> list[str]:
    """The names of the gradients, each with the type of its parameter."""
    types = {one.name: one for one in model.graph.input}
    for name in trained:
        made = model.graph.value_info.add()
        made.CopyFrom(types[name])
        made.name = gradient_name(name)
    return [gradient_name(name) for name in trained]


def _text(node: NodeProto, name: str) -> str:
    return next(str(one.s, "utf-8") for one in node.attribute if one.name == name)
