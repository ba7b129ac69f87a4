"""Moves a finished graph into a writer, which can then append to it."""

from __future__ import annotations

from xdsl.ir import SSAValue

from popgraph.dialects.onnx.containers import value_name
from popgraph.dialects.onnx.initializer import Initializer
from popgraph.dialects.onnx.op import Graph, OnnxOp
from popgraph.dialects.onnx.writer import GraphWriter


def adopt(writer: GraphWriter, graph: Graph, *, infer: bool) -> dict[str, SSAValue]:
    """
    Moves the contents of a graph into a writer; returns the values by name.

    `infer` infers the types of results again, otherwise those of the graph stay. Outputs are not
    set, so that the writer can continue. The graph itself is consumed.
    """
    values: dict[str, SSAValue] = {}
    for info, argument in zip(graph.inputs, list(graph.block.args), strict=True):
        values[info.text] = writer.add_input(info.text, argument.type, info=info)
        argument.replace_all_uses_with(values[info.text])
    for op in list(graph.block.ops):
        if isinstance(op, Initializer):
            values[op.value_name.text] = _adopt_initializer(writer, op)
        elif isinstance(op, OnnxOp):
            op.detach()
            types = None if infer else [result.type for result in op.results]
            for result in writer.add_op(op, types):
                values[value_name(result)] = result
    return values


def _adopt_initializer(writer: GraphWriter, op: Initializer) -> SSAValue:
    place = 0 if op.place is None else op.place.value.data
    made = writer.add_initializer(op.value_name.text, op.value, input=op.input, place=place)
    op.result.replace_all_uses_with(made)
    return made
