"""The nodes of graphs as plain data, and how they are named."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Operand:
    """What a node reads: the result of another node, or a tensor that the model holds."""

    name: str
    type: str
    node: int | None = None
    """The node that gives it."""
    held: bool = False
    """Whether it is a weight or a constant."""


@dataclass
class Node:
    """A node of a graph; those of kind `input` and `output` are the graph's own."""

    id: int
    kind: str
    """The operator or the operation."""
    name: str = ""
    scope: str = ""
    """The names of what it is part of, outermost first, with `/` between them."""
    inputs: list[Operand] = field(default_factory=list)
    outputs: list[Operand] = field(default_factory=list)
    attributes: dict[str, str] = field(default_factory=dict)
    text: str = ""
    """The operation as it is printed."""
    file: str = ""
    line: int = 0
    """Where a node of the model was written."""
    sources: list[int] = field(default_factory=list)
    """The nodes of the graph above that it comes from."""


def plain(node: Node) -> dict[str, Any]:
    """As `dataclasses.asdict`, which copies all that there is, at a tenth of its time."""
    operands = {"inputs": node.inputs, "outputs": node.outputs}
    return vars(node) | {name: [vars(one) for one in given] for name, given in operands.items()}


def kind_of(domain: str, op_type: str) -> str:
    """What an operator is called: those of ONNX itself without their domain."""
    return f"{domain}::{op_type}" if domain else op_type


def scope_of(name: str, outer: str) -> str:
    """The scope of a node: names have `/` between those of what a node is part of."""
    *scopes, _ = tuple(filter(None, name.split("/"))) or ("",)
    return "/".join(filter(None, (outer, *scopes)))


def scope_below(scope: str, name: str, label: str) -> str:
    """The scope of the nodes of a graph inside a node."""
    return "/".join(filter(None, (scope, f"{name} ({label})")))
