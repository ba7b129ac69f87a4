"""The nodes of graphs as plain data, and how they are named."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

NAME_SCOPES = "pkg.torch.onnx.name_scopes"
"""The metadata in which PyTorch's exporter lists the modules of a node, and the node, as text."""
TEXT = r"""'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)\""""
TEXTS = re.compile(rf"\[(?:(?:{TEXT})(?:, |(?=\])))*\]")
"""A list of texts, as Python prints it."""
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
"""Operators that hold a tensor, or give it another form."""


@dataclass
class Operand:
    """What a node reads: the result of another node, or a tensor that the model holds."""

    name: str
    type: str
    node: int | None = None
    """The node that gives it."""
    held: bool = False
    """Whether the model holds it: a weight or a constant."""


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
    folded: bool = False
    """Whether it only gives a weight another form, so that it is shown as an operand."""


def plain(node: Node) -> dict[str, Any]:
    """As `dataclasses.asdict`, which copies all that there is, at a tenth of its time."""
    operands = {"inputs": node.inputs, "outputs": node.outputs}
    return vars(node) | {name: [vars(one) for one in given] for name, given in operands.items()}


def kind_of(domain: str, op_type: str) -> str:
    """What an operator is called: those of ONNX itself without their domain."""
    return f"{domain}::{op_type}" if domain else op_type


def scope_of(name: str, outer: str, modules: str | None = None) -> str:
    """The scope of a node: its modules, or the names before the last `/` of its own."""
    if modules is None:
        *scopes, _ = tuple(filter(None, name.split("/"))) or ("",)
        modules = "/".join(scopes)
    return "/".join(filter(None, (outer, modules)))


def scope_below(scope: str, name: str, label: str) -> str:
    """The scope of the nodes of a graph inside a node."""
    return "/".join(filter(None, (scope, f"{name} ({label})")))


def modules_of(metadata: Iterable[tuple[str, str]]) -> str | None:
    """
    The modules that a node is part of, outermost first, if PyTorch's exporter lists them.

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
    Marks the nodes that only give a weight another form.

    Only when others read them: a result of a graph, such as one of these, stays a node.
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
    """Whether it is a weight, or one in another form."""
    return operand.held or (operand.node is not None and nodes[operand.node].folded)
