"""Trained weights, written into the model that they belong to."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects.builtin import ModuleOp

from popgraph.backends.base import Executable
from popgraph.dialects.onnx import Initializer, model_of
from popgraph.dialects.onnx.tensorproto import from_value
from popgraph.dialects.onnx.weight_names import weights_by_name
from popgraph.dialects.program import WeightStore
from popgraph.support.arrays import Array


def put_weights(module: ModuleOp, values: Mapping[str, Array], store: WeightStore) -> None:
    """Gives a model's initializers these values; those it lacks (optimizer state) are added."""
    graph = model_of(module).graph
    held = weights_by_name(graph)
    first = graph.block.first_op
    assert first is not None, "a graph ends with onnx.Yield"
    for name, array in values.items():
        value = from_value(array, store)
        if name in held:
            held[name].properties["value"] = value
        else:
            graph.block.insert_op_before(Initializer(name, value), first)


def trained_weights(module: ModuleOp, executable: Executable) -> dict[str, Array]:
    """The values that a program holds for the initializers of a model."""
    names = weights_by_name(model_of(module).graph)
    return {name: executable.read(name) for name in names if name in executable.variables}
