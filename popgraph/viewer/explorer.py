"""The graphs of a model in the format of Model Explorer, one per level."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from popgraph.dialects.levels import ONNX
from popgraph.viewer.document import Document

Row = dict[str, Any]
WHOLE = ""
"""The namespace of nodes without a scope."""


def explorer_graphs(document: Document) -> list[Row]:
    """
    The graphs of the levels onnx, graphcore and structured; scopes become namespaces.

    If lowering fails, only the first graph is returned, with the error as an attribute.
    """
    levels: dict[str, Sequence[Row]] = {ONNX: document.part("model")["graph"]}
    lowered = document.part("lowered")
    if error := lowered.get("error"):
        return [_graph(ONNX, levels) | {"groupNodeAttributes": {WHOLE: error}}]
    levels |= lowered["graphs"]
    return [_graph(level, levels) for level in levels]


def _graph(level: str, levels: Mapping[str, Sequence[Row]]) -> Row:
    nodes = levels[level]
    above = levels[list(levels)[max(0, list(levels).index(level) - 1)]]
    return {"id": level, "nodes": [_node(node, nodes, above) for node in nodes]}


def _node(node: Row, nodes: Sequence[Row], above: Sequence[Row]) -> Row:
    return {
        "id": str(node["id"]),
        "label": node["kind"],
        "namespace": node["scope"],
        "attrs": [_pair(*told) for told in _attributes(node, above)],
        "incomingEdges": [
            {
                "sourceNodeId": str(operand["node"]),
                "sourceNodeOutputId": str(_output(operand, nodes[operand["node"]])),
                "targetNodeInputId": str(number),
            }
            for number, operand in enumerate(node["inputs"])
            if operand["node"] is not None
        ],
        "outputsMetadata": [
            {
                "id": str(number),
                "attrs": [_pair("name", output["name"]), _pair("type", output["type"])],
            }
            for number, output in enumerate(node["outputs"])
        ],
    }


def _attributes(node: Row, above: Sequence[Row]) -> Iterator[tuple[str, str]]:
    if node["name"]:
        yield "name", node["name"]
    if node["line"]:
        yield "written at", f"{node['file']}:{node['line']}"
    for number in node["sources"]:
        yield "from", f"{above[number]['kind']} {above[number]['name']}".strip()
    for operand in node["inputs"]:
        if operand["node"] is None:
            yield "reads", f"{operand['name']} {operand['type']}"
    yield from node["attributes"].items()
    if node["text"]:
        yield "operation", node["text"]


def _output(operand: Row, giver: Row) -> int:
    """The index of the result that is read: the one with this name, or 0."""
    names = [output["name"] for output in giver["outputs"]]
    return names.index(operand["name"]) if operand["name"] in names else 0


def _pair(key: str, value: str) -> Row:
    return {"key": key, "value": value}
