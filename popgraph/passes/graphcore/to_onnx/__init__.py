"""Conversion from graphcore to onnx: a graph as a model of standard ONNX operators."""

from __future__ import annotations

from collections.abc import Collection

from xdsl.dialects.builtin import ModuleOp

from popgraph.dialects.graphcore.base import Composite, GraphcoreOp, dtype_of, shape_of
from popgraph.dialects.onnx.attributes import ValueInfoAttr
from popgraph.dialects.onnx.types import tensor_type
from popgraph.dialects.onnx.writer import GraphWriter
from popgraph.dialects.program import WeightStore
from popgraph.passes.analysis.graph import only_graph
from popgraph.passes.graphcore.expand import Expand
from popgraph.passes.graphcore.to_onnx import (
    contractions,
    control,
    elementwise,
    movement,
    reductions,
)
from popgraph.passes.graphcore.to_onnx.printer import FORMS, REASONS, Printer, form_of

OPSET = 20
"""The operator set: 19 has dilations of AveragePool, 20 IsNaN of bf16."""

ROOMS = (contractions, control, elementwise, movement, reductions)
"""The modules whose import fills the table."""

UPDATED = "UpdatedVar___"
"""Prefix of the outputs with the values of variables after a step."""


def whole_composites() -> tuple[str, ...]:
    """Composites with a form of their own, which need not be expanded."""
    return tuple(op.name.removeprefix("graphcore.") for op in FORMS if issubclass(op, Composite))


def expansion() -> Expand:
    """The pass that expands all composites without a form."""
    return Expand(whole_composites())


def graphcore_to_onnx(
    module: ModuleOp, weights: WeightStore, overridable: Collection[str] = ()
) -> ModuleOp:
    """
    The graph of a graphcore module as a model of the onnx level, in standard operators.

    Inputs, outputs and variables keep their names. Variables become initializers; those in
    `overridable`, and all that the graph updates, are inputs as well, with their initial value as
    the default. An update of `w` becomes the output `UpdatedVar___w`. UnsupportedError for an
    operation without a form.
    """
    graph = only_graph(module)
    for op in graph.walk():
        if isinstance(op, GraphcoreOp):
            form_of(op)
    writer = GraphWriter({"": OPSET}, weights, name=graph.sym_name.data)
    printer = Printer(writer, weights)
    updates = {op.variable.text: op.value for op in graph.updates()}
    outputs = {
        **graph.outputs,
        **{UPDATED + name: value for name, value in updates.items()},
    }
    variables = {op.variable.text: op for op in graph.variables()}
    printer.names.update((*graph.inputs, *variables, *outputs))
    for name, value in graph.inputs.items():
        type_ = tensor_type(dtype_of(value), shape_of(value))
        printer.values[value] = writer.add_input(name, type_)
    place = len(graph.inputs)
    for name, op in variables.items():
        info = None
        if name in updates or name in overridable:
            info = ValueInfoAttr.of(name, tensor_type(dtype_of(op.result), shape_of(op.result)))
        array = weights.array(op.literal)
        printer.values[op.result] = writer.add_initializer(name, array, input=info, place=place)
        place += info is not None
    printer.print_block(graph.block)
    printer.outputs([printer(value) for value in outputs.values()], list(outputs))
    return writer.module()


__all__ = [
    "FORMS",
    "OPSET",
    "REASONS",
    "UPDATED",
    "expansion",
    "graphcore_to_onnx",
    "whole_composites",
]
