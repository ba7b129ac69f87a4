"""Unique names of weights: initializers of different graphs may share a name."""

from __future__ import annotations

from collections import Counter

from popgraph.dialects.onnx.initializer import Initializer
from popgraph.dialects.onnx.op import Graph, OnnxOp
from popgraph.dialects.program import BytesAttr

ATTRIBUTE = "weight"
"""The attribute with the unique name of an initializer, if that differs from its own."""


def weight_name(initializer: Initializer) -> str:
    """The name of an initializer as a variable, see `weights_by_name`."""
    held = initializer.attributes.get(ATTRIBUTE)
    return held.text if isinstance(held, BytesAttr) else initializer.value_name.text


def weights_by_name(graph: Graph) -> dict[str, Initializer]:
    """
    All initializers of a model's graph and of graphs inside nodes, by unique names.

    If several share a name, the path of node and graph is added to those inside nodes:
    `y/else_branch/w`. An initializer keeps this name in all later passes.
    """
    found = list(graph.all_initializers)
    counts = Counter(map(weight_name, found))
    for initializer in found:
        if counts[weight_name(initializer)] > 1 and initializer.parent_op() is not graph:
            unique = _unique(_qualified(initializer), counts)
            counts[unique] += 1
            initializer.attributes[ATTRIBUTE] = BytesAttr.of(unique)
    return {weight_name(initializer): initializer for initializer in found}


def _qualified(initializer: Initializer) -> str:
    """The name of an initializer with the path of its node and graph as a prefix."""
    holder = initializer.parent_op()
    node = None if holder is None else holder.parent_op()
    assert isinstance(holder, Graph) and isinstance(node, OnnxOp), "the graph is inside a node"
    names = [name for name, held in node.graphs().items() if holder in held]
    label = node.output_names[0] if node.output_names else node.op_type
    return "/".join((label, *names, initializer.value_name.text))


def _unique(name: str, taken: Counter[str]) -> str:
    """The name, with a number appended if it is taken."""
    number, found = 1, name
    while found in taken:
        number += 1
        found = f"{name}.{number}"
    return found
