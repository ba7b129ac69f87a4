"""Conversion from graphcore to onnx: a graph as a model of standard ONNX operators."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from xdsl.dialects.builtin import ModuleOp

from popgraph.dialects.graphcore import GRAPHCORE, BitcastOp
from popgraph.dialects.graphcore.base import Composite, GraphcoreOp, dtype_of, shape_of
from popgraph.dialects.onnx.attributes import ValueInfoAttr
from popgraph.dialects.onnx.types import tensor_type
from popgraph.dialects.onnx.writer import GraphWriter
from popgraph.dialects.program import WeightStore
from popgraph.passes.analysis.graph import only_graph
from popgraph.passes.graphcore.expand import Expand
from popgraph.passes.graphcore.to_onnx import (
    contractions,  # noqa: F401 (registers its forms, as do the next ones)
    control,  # noqa: F401
    elementwise,  # noqa: F401
    movement,  # noqa: F401
    reductions,  # noqa: F401
)
from popgraph.passes.graphcore.to_onnx.printer import FORMS, OPERATORS, REASONS, Printer, form_of
from popgraph.passes.graphcore.training.variables import UPDATED

OPSET = 20
"""The operator set: 19 has dilations of AveragePool, 20 IsNaN of bf16."""
BITCAST_OPSET = 26
"""The operator set of models that reinterpret bits: BitCast is new in 26."""
NARROW_OPSETS = {"u4": 21, "i4": 21, "f4e2m1": 23, "f8e8m0": 24, "u2": 25, "i2": 25}
"""The operator sets in which narrow types are new."""


def whole_composites() -> tuple[str, ...]:
    """Composites with a form of their own, which need not be expanded."""
    return tuple(op.name.removeprefix("graphcore.") for op in FORMS if issubclass(op, Composite))


def expansion() -> Expand:
    """The pass that expands all composites without a form."""
    return Expand(whole_composites())


EXPANDED = "expanded into other operations"


def listed_forms() -> list[tuple[str, str]]:
    """Each operation of graphcore with its ONNX form, or the reason why it has none."""
    rows = []
    for op in GRAPHCORE.operations:
        name = op.name.removeprefix("graphcore.")
        if op in FORMS:
            rows.append((name, OPERATORS[op]))
        elif issubclass(op, Composite):
            rows.append((name, EXPANDED))
        else:
            rows.append((name, f"no: {REASONS[op]}"))  # type: ignore[index]
    return sorted(rows)


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
    operations = [op for op in graph.walk() if isinstance(op, GraphcoreOp)]
    for op in operations:
        form_of(op)
    writer = GraphWriter({"": _opset_of(operations)}, weights, name=graph.sym_name.data)
    printer = Printer(writer, weights)
    updates = {one.variable.text: one.value for one in graph.updates()}
    outputs = {
        **graph.outputs,
        **{UPDATED + name: value for name, value in updates.items()},
    }
    variables = {one.variable.text: one for one in graph.variables()}
    printer.names.update((*graph.inputs, *variables, *outputs))
    for name, value in graph.inputs.items():
        type_ = tensor_type(dtype_of(value), shape_of(value))
        printer.values[value] = writer.add_input(name, type_)
    place = len(graph.inputs)
    for name, variable in variables.items():
        info, result = None, variable.result
        if name in updates or name in overridable:
            info = ValueInfoAttr.of(name, tensor_type(dtype_of(result), shape_of(result)))
        array = weights.array(variable.literal)
        printer.values[result] = writer.add_initializer(name, array, input=info, place=place)
        place += info is not None
    printer.print_block(graph.block)
    printer.outputs([printer(value) for value in outputs.values()], list(outputs))
    return writer.module()


def _opset_of(operations: Sequence[GraphcoreOp]) -> int:
    """The least operator set from `OPSET` on that has these operations and their types."""
    types = {dtype_of(value).name for op in operations for value in (*op.operands, *op.results)}
    has_bits = any(isinstance(op, BitcastOp) for op in operations)
    return max(
        OPSET,
        BITCAST_OPSET if has_bits else OPSET,
        *(NARROW_OPSETS[name] for name in types & NARROW_OPSETS.keys()),
    )


__all__ = [
    "FORMS",
    "OPSET",
    "REASONS",
    "UPDATED",
    "expansion",
    "graphcore_to_onnx",
    "listed_forms",
    "whole_composites",
]
