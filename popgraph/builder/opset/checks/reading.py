"""Converts nodes of the onnx dialect for PopART's rules."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from xdsl.ir import BlockArgument, SSAValue

from popgraph.builder.opset.checks.node import Node
from popgraph.builder.opset.graphcore_operator import DOMAIN
from popgraph.dialects.onnx import Graph, Initializer, OnnxOp, value_name
from popgraph.dialects.onnx.annotations import all_attributes
from popgraph.dialects.onnx.op import to_python
from popgraph.dialects.onnx.types import UNKNOWN, static_shape
from popgraph.dialects.program import WeightStore
from popgraph.support.arrays import Array
from popgraph.support.shapes import KNOWN_ELEMENTS, prod

VERSION = {DOMAIN: 1}
"""The version of operators without a schema."""


def nodes_of(graph: Graph, store: WeightStore) -> Iterator[tuple[OnnxOp, Node]]:
    """All nodes; the nodes of a subgraph follow their node."""
    index = 0
    for op in graph.block.walk():
        if isinstance(op, OnnxOp):
            yield op, node_of(op, store, index, outer=op.parent is graph.block)
            index += 1


def node_of(op: OnnxOp, store: WeightStore, index: int = 0, outer: bool = True) -> Node:
    """A node of the onnx dialect; inputs of subgraphs do not count as streamed."""
    operands = op.input_values()
    inputs = [value for value in operands if isinstance(value, BlockArgument)]
    return Node(
        op.op_type,
        VERSION.get(op.domain, op.since_version),
        op.node_name,
        _trimmed(["" if value is None else _name(value) for value in operands]),
        op.output_names,
        [UNKNOWN if value is None else value.type for value in operands],
        {name: to_python(value, store) for name, value in all_attributes(op, store).items()},
        op.domain,
        index,
        frozenset(at for at, value in enumerate(operands) if outer and value in inputs),
        {
            at: array
            for at, value in enumerate(operands)
            if value is not None and (array := _elements(value, store)) is not None
        },
    )


def _name(value: SSAValue) -> str:
    """The name of a value; for inputs of a graph still being read, the IR's name."""
    if isinstance(value, BlockArgument) and value.block.parent_op() is None:
        return value.name_hint or ""
    return value_name(value)


def _trimmed(names: list[str]) -> list[str]:
    """Drops trailing absent operands."""
    while names and not names[-1]:
        names.pop()
    return names


def _elements(value: SSAValue, store: WeightStore) -> Array | None:
    """The elements of a small constant; None if too large or not constant."""
    owner = value.owner
    shape = static_shape(value.type)
    if shape is not None and prod(shape) > KNOWN_ELEMENTS:
        return None
    if isinstance(owner, Initializer):
        array = owner.array(store)
    elif isinstance(owner, OnnxOp) and owner.op_type == "Constant":
        found = owner.attribute_values(store).get("value")
        if not isinstance(found, np.ndarray):
            return None
        array = found
    else:
        return None
    return array if array.size <= KNOWN_ELEMENTS else None
