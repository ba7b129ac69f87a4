"""Evaluates one node, by its operator's NumPy function or by its lowering."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto
from xdsl.ir import Attribute, Block, Region, SSAValue

from popgraph.dialects.onnx.attributes import ValueInfoAttr
from popgraph.dialects.onnx.host_values import holds_text
from popgraph.dialects.onnx.op import Graph, OnnxOp, Yield
from popgraph.dialects.onnx.record import record_of
from popgraph.dialects.onnx.schema_op import SchemaOp
from popgraph.dialects.onnx.types import UNKNOWN, tensor_type
from popgraph.dialects.onnx.view import NodeView
from popgraph.dialects.program import WeightStore
from popgraph.support import dtypes
from popgraph.support.pages import Page

TEXTS = Page("popgraph.operators.strings")
"""Evaluates a node on strings whose operator has no NumPy function."""

LOWERED = Page("popgraph.passes.onnx.evaluate_lowered")
"""
Evaluates a node by the graphcore operations of its lowering; None if it has no lowering.

This defines the meaning of every numeric operator. `passes` and `operators`, which this module
cannot import, provide both pages.
"""

SHAPES = ("Shape", "Size")
"""Operators that read only the shape of their operand."""


def evaluate_node(
    op: OnnxOp, values: Mapping[SSAValue, Any], store: WeightStore, opsets: Mapping[str, int]
) -> list[Any] | None:
    """
    The node's outputs in order, None for absent ones.

    `values` holds its operands; an operand that is None is absent. Returns None if only the
    function in the operator's schema, if any, defines it.
    """
    operands = [None if value is None else values[value] for value in op.input_values()]
    record = record_of(op.domain, op.op_type)
    if record is not None and record.compute is not None:
        with np.errstate(all="ignore"):
            found = record.compute(NodeView(op, store=store), *operands)
        return list(found) if isinstance(found, tuple) else [found]
    if not isinstance(op, SchemaOp):
        return None
    # Strings have no graphcore form, so no lowering.
    evaluated = TEXTS if any(map(holds_text, operands)) or makes_text(op) else LOWERED
    outputs: list[Any] | None = evaluated(op, operands, store, opsets)
    return outputs


def alone(op: SchemaOp, operands: Sequence[Any]) -> tuple[Graph, SchemaOp]:
    """A graph with a copy of the node alone; its inputs have the types of the operands."""
    block, node = block_of(op, operands)
    block.add_op(Yield(node.results))
    given = [ValueInfoAttr.of(f"x{at}", one.type) for at, one in enumerate(block.args)]
    made = [ValueInfoAttr.of(f"y{at}", one.type) for at, one in enumerate(node.results)]
    return Graph(op.op_type, given, made, Region(block)), node


def block_of(op: SchemaOp, operands: Sequence[Any]) -> tuple[Block, SchemaOp]:
    """The block of a graph with a copy of the node alone, without its end."""
    block = Block()
    inputs: list[SSAValue | None] = [
        None if one is None else block.insert_arg(_type(one), len(block.args)) for one in operands
    ]
    label = {name: value for name, value in op.attributes.items() if name == "name"}
    types = [UNKNOWN] * len(op.output_names)
    node = op.make(inputs, op.onnx_attributes(), {}, op.output_names, types, label)
    block.add_op(node)
    return block, node


def makes_text(op: OnnxOp) -> bool:
    """Whether a node converts numbers to strings."""
    is_cast = (op.domain, op.op_type) == ("", "Cast")
    return is_cast and op.attribute_values()["to"] in (TensorProto.STRING, "STRING")


def _type(value: Any) -> Attribute:
    if not isinstance(value, np.ndarray | np.generic) or holds_text(value):
        return UNKNOWN
    return tensor_type(dtypes.from_numpy(value.dtype), value.shape)
