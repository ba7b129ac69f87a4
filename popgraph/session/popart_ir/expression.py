"""An operator as an expression of others: how patterns say what they replace it by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from popgraph.builder.opset.tensorinfo import TensorInfo
from popgraph.session.popart_ir.graph import Op, OpGraph, Value

Argument: TypeAlias = "Expression | int | float"
"""What an operator computes, an input of the one replaced by its index, or a scalar."""


@dataclass(frozen=True)
class Expression:
    """An operator applied to arguments."""

    type: str
    arguments: tuple[Argument, ...]
    attributes: Mapping[str, Value] = field(default_factory=dict)
    elements: str = ""
    """The element type of the result, where it is not that of the first argument."""


def of(type_: str, *arguments: Argument, elements: str = "", **attributes: Value) -> Expression:
    return Expression(type_, arguments, attributes, elements)


def replace_by(graph: OpGraph, op: Op, expression: Expression) -> Op:
    """Replaces an operator with one output by an expression; the operator that has its output."""
    output = op.output
    result = build(graph, op, expression)
    graph.remove(op)
    last = graph.producer(result)
    assert last is not None, "an expression computes something"
    graph.rename_output(last, 0, output)
    del graph.infos[result]
    return last


def build(graph: OpGraph, op: Op, expression: Expression) -> str:
    """Adds what an expression needs before an operator; the tensor of its value."""
    ids = [_argument(graph, op, one) for one in expression.arguments]
    info = TensorInfo(
        expression.elements or graph.infos[ids[0]].data_type(),
        np.broadcast_shapes(*(graph.shape(id) for id in ids)),
    )
    return added(graph, op, expression.type, ids, info, dict(expression.attributes))


def _argument(graph: OpGraph, op: Op, argument: Argument) -> str:
    if isinstance(argument, Expression):
        return build(graph, op, argument)
    if isinstance(argument, int):
        return op.inputs[argument]
    like = graph.infos[op.inputs[min(op.inputs)]]
    return graph.constant("scalar", argument, TensorInfo(like.data_type(), []))


def added(
    graph: OpGraph,
    op: Op,
    type_: str,
    inputs: list[str],
    info: TensorInfo,
    attributes: dict[str, Value] | None = None,
) -> str:
    """Adds an operator before another one, with its settings; the new tensor that it computes."""
    result = graph.fresh(op.output, info)
    graph.add(
        Op(
            type_,
            dict(enumerate(inputs)),
            {0: result},
            dict(attributes or {}),
            op.settings,
            backward=op.backward,
        ),
        before=op,
    )
    return result


def reshaped(graph: OpGraph, op: Op, id: str, shape: list[int]) -> str:
    """Adds a Reshape before an operator."""
    info = TensorInfo(graph.infos[id].data_type(), shape)
    return added(graph, op, "Reshape", [id], info)


def finish(graph: OpGraph, op: Op, result: str) -> None:
    """Removes an operator, whose output is now what the producer of `result` computes."""
    output, last = op.output, graph.producer(result)
    assert last is not None, "something took the operator's place"
    graph.remove(op)
    graph.rename_output(last, 0, output)
    graph.infos.pop(result)
