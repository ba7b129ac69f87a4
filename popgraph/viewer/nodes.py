"""Nodes of graphs as plain data, and their names."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

NAME_SCOPES = "pkg.torch.onnx.name_scopes"
"""Metadata key with the modules and the name of a node, written by PyTorch's exporter as a list."""
TEXT = r"""'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)\""""
TEXTS = re.compile(rf"\[(?:(?:{TEXT})(?:, |(?=\])))*\]")
"""A list of strings as Python prints it."""
FORMS = {
    "Constant",
    "Identity",
    "Cast",
    "CastLike",
    "Transpose",
    "Reshape",
    "Flatten",
    "Squeeze",
    "Unsqueeze",
    "QuantizeLinear",
    "DequantizeLinear",
    "com.microsoft::QuantizeLinear",
    "com.microsoft::DequantizeLinear",
}
"""Operators that hold a tensor or only change its form."""


@dataclass
class Operand:
    """An operand of a node: the result of another node, or a tensor held by the model."""

    name: str
    type: str
    node: int | None = None
    """The node that computes the operand."""
    held: bool = False
    """Whether the operand is a weight or a constant."""


@dataclass
class Node:
    """A node of a graph; the kinds `input` and `output` are the graph's interface."""

    id: int
    kind: str
    """The operator or operation."""
    name: str = ""
    scope: str = ""
    """Enclosing scopes, outermost first, separated by `/`."""
    inputs: list[Operand] = field(default_factory=list)
    outputs: list[Operand] = field(default_factory=list)
    attributes: dict[str, str] = field(default_factory=dict)
    text: str = ""
    """The printed operation."""
    file: str = ""
    line: int = 0
    """Source line of the node."""
    sources: list[int] = field(default_factory=list)
    """The source nodes in the graph of the level above."""
    folded: bool = False
    """Whether the node only changes the form of a weight, so that it is shown as an operand."""


def plain(node: Node) -> dict[str, Any]:
    """Same as `dataclasses.asdict`, which deep-copies, in a tenth of the time."""
    operands = {"inputs": node.inputs, "outputs": node.outputs}
    return vars(node) | {name: [vars(one) for one in given] for name, given in operands.items()}


def kind_of(domain: str, op_type: str) -> str:
    """The name of an operator; ONNX operators have no domain prefix."""
    return f"{domain}::{op_type}" if domain else op_type


def scope_of(name: str, outer: str, modules: str | None = None) -> str:
    """The scope of a node: its modules, or its own name up to the last `/`."""
    if modules is None:
        *scopes, _ = tuple(filter(None, name.split("/"))) or ("",)
        modules = "/".join(scopes)
    return "/".join(filter(None, (outer, modules)))


def scope_below(scope: str, name: str, label: str) -> str:
    """The scope of the nodes in a subgraph of a node."""
    return "/".join(filter(None, (scope, f"{name} ({label})")))


def modules_of(metadata: Iterable[tuple[str, str]]) -> str | None:
    """
    The modules of a node, outermost first, if PyTorch's exporter lists them.

    `['', 'layers.0', 'layers.0.attn', 'add']` -> `layers.0/attn`
    """
    text = dict(metadata).get(NAME_SCOPES, "")
    if not TEXTS.fullmatch(text):
        return None
    paths = [re.sub(r"\\(.)", r"\1", one or other) for one, other in re.findall(TEXT, text)]
    names: list[str] = []
    above = ""
    for path in paths[:-1]:
        names.append(path.removeprefix(f"{above}.") if above else path)
        above = path
    return "/".join(part for name in names for part in name.split("/") if part)


def fold(nodes: Sequence[Node], results: Collection[int]) -> None:
    """
    Marks nodes that only change the form of a weight as folded.

    A node without readers, or whose result is an output of its graph, stays a node.
    """
    read = {operand.node for node in nodes for operand in node.inputs}
    ends = {operand.node for node in nodes if node.kind == "output" for operand in node.inputs}
    for node in nodes:
        node.folded = (
            node.kind in FORMS
            and node.id in read
            and node.id not in ends
            and node.id not in results
            and all(_is_form(operand, nodes) for operand in node.inputs)
        )


def _is_form(operand: Operand, nodes: Sequence[Node]) -> bool:
    """Whether an operand is a weight, possibly in another form."""
    return operand.held or (operand.node is not None and nodes[operand.node].folded)
