"""Graphs inside nodes: what they give, as tensors that can be computed."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from popgraph.dialects.graphcore import ReshapeOp
from popgraph.dialects.graphcore.base import shape_of
from popgraph.dialects.onnx import Graph
from popgraph.dialects.onnx.types import describe, static_shape
from popgraph.operators.node import Node
from popgraph.support.errors import TypeMismatchError, UnsupportedError
from popgraph.support.shapes import prod


def check_outputs(node: Node, graph: Graph, count: int) -> None:
    """An error unless a graph inside gives as much as the node has outputs."""
    if count < node.output_count:
        raise TypeMismatchError(
            f"{node.op.op_type} has {node.output_count} outputs, "
            f"but its graph {graph.graph_name.text!r} gives {count}"
        )


def given_tensor(node: Node, graph: Graph, made: Sequence[SSAValue | None], index: int) -> SSAValue:
    """What a graph inside gives; an error if it is no tensor that can be computed."""
    value = made[index]
    if value is None:
        raise UnsupportedError(
            f"what the graph of {node.op.op_type} gives as {graph.output_names[index]!r}, "
            f"of type {describe(graph.yielded[index].type)}, cannot be computed",
            hint="PopGraph computes with dense tensors of numbers",
        )
    return value


def in_declared_shape(value: SSAValue, declared: SSAValue) -> SSAValue:
    """
    The value in the shape that the model says it has.

    The bodies by which ONNX defines activations make tensors of shape 1 out of scalars.
    """
    shape = static_shape(declared.type)
    if shape is None or shape == shape_of(value) or not prod(shape) == prod(shape_of(value)) == 1:
        return value
    return ReshapeOp(value, shape=shape).result
