"""Writes trained weights into the model that they belong to."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects.builtin import ModuleOp

from popgraph.backends.base import Executable
from popgraph.dialects.onnx import Initializer, model_of
from popgraph.dialects.onnx.attributes import TensorAttr
from popgraph.dialects.onnx.tensorproto import from_value
from popgraph.dialects.onnx.weight_names import weights_by_name
from popgraph.dialects.program import WeightStore
from popgraph.support.arrays import Array


def put_weights(module: ModuleOp, values: Mapping[str, Array], store: WeightStore) -> None:
    """
    Sets the initializers of a model; each value keeps the field of its ONNX message.

    Values without an initializer (optimizer state) follow, sorted by name, as PopART orders them.
    """
    graph = model_of(module).graph
    held = weights_by_name(graph)
    for name, initializer in held.items():
        if name in values:
            before, value = initializer.properties["value"], from_value(values[name], store)
            assert isinstance(before, TensorAttr)
            initializer.properties["value"] = before.with_elements(value.held)
    first = next(op for op in graph.block.ops if not isinstance(op, Initializer))
    for name in sorted(values.keys() - held.keys()):
        added = Initializer(name, from_value(values[name], store).typed())
        graph.block.insert_op_before(added, first)


def trained_weights(module: ModuleOp, executable: Executable) -> dict[str, Array]:
    """The values that a program holds for the initializers of a model."""
    names = weights_by_name(model_of(module).graph)
    return {name: executable.read(name) for name in names if name in executable.variables}
