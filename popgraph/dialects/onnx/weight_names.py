"""Unique names of weights: graphs inside nodes may each have an initializer of one name."""

from __future__ import annotations

from collections import Counter

from popgraph.dialects.onnx.initializer import Initializer
from popgraph.dialects.onnx.op import Graph, OnnxOp
from popgraph.dialects.program import BytesAttr

ATTRIBUTE = "weight"
"""Holds the unique name of an initializer, where that is another one than its own."""


def weight_name(initializer: Initializer) -> str:
    """What an initializer is called as a variable, see `weights_by_name`."""
    held = initializer.attributes.get(ATTRIBUTE)
    return held.text if isinstance(held, BytesAttr) else initializer.value_name.text


def weights_by_name(graph: Graph) -> dict[str, Initializer]:
    """
    All initializers of a model's graph and of the graphs inside its nodes, by unique names.

    Where several inside have one name, each is called after the node and the graph that hold it:
    `y/else_branch/w`. They keep that name in every pass, whatever becomes of the others.
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
    """The name of an initializer behind those of the node and the graph that hold it."""
    holder = initializer.parent_op()
    node = None if holder is None else holder.parent_op()
    assert isinstance(holder, Graph) and isinstance(node, OnnxOp), "the graph is inside a node"
    names = [name for name, held in node.graphs().items() if holder in held]
    label = node.output_names[0] if node.output_names else node.op_type
    return "/".join((label, *names, initializer.value_name.text))


def _unique(name: str, taken: Counter[str]) -> str:
    """The name, with a number behind it if it is taken."""
    number, found = 1, name
    while found in taken:
        number += 1
        found = f"{name}.{number}"
    return found
