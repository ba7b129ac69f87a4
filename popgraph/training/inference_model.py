"""The inference model: a model without its loss and without everything that only the loss needs."""

from __future__ import annotations

from collections.abc import Collection

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import OpResult, SSAValue

from popgraph.dialects.onnx import Graph, model_of
from popgraph.dialects.onnx.attributes import ValueInfoAttr
from popgraph.dialects.onnx.containers import value_name
from popgraph.dialects.onnx.outputs import drop_unused, set_outputs
from popgraph.dialects.onnx.types import dims
from popgraph.support.errors import ModelError


def without_loss(module: ModuleOp, loss: str, terms: Collection[str] = ()) -> ModuleOp:
    """
    Copies a model without its loss and the terms of the loss; its outputs are the predictions.

    Nodes, weights and inputs that only these need, such as labels, are removed. Without another
    output, the operand of the loss becomes the prediction.
    """
    found = module.clone()
    graph = model_of(found).graph
    keep = [number for number, name in enumerate(graph.output_names) if name not in (loss, *terms)]
    if keep:
        set_outputs(graph, [(graph.outputs.data[one], graph.yielded[one]) for one in keep])
    elif (value := _prediction(graph, loss)) is not None:
        set_outputs(graph, [(ValueInfoAttr.of(value_name(value), value.type), value)])
    else:
        raise ModelError(
            "the model has no output besides its loss",
            f"loss {loss!r}",
            "addOutputTensor(prediction), for the output of the trained model",
        )
    drop_unused(found)
    return found


def with_prediction(module: ModuleOp, loss: str) -> ModuleOp:
    """Adds the operand of the loss as an output if the loss is the only one."""
    graph = model_of(module).graph
    value = _prediction(graph, loss)
    if set(graph.output_names) == {loss} and value is not None:
        old = list(zip(graph.outputs, graph.yielded, strict=True))
        set_outputs(graph, [(ValueInfoAttr.of(value_name(value), value.type), value), *old])
    return module


def _prediction(graph: Graph, loss: str) -> SSAValue | None:
    """The last non-scalar value on which the loss depends."""
    value = dict(zip(graph.output_names, graph.yielded, strict=True)).get(loss)
    while isinstance(value, OpResult):
        if dims(value.type) not in ((), (1,)):
            return value
        value = next((one for one in value.op.operands if isinstance(one, OpResult)), None)
    return None
