"""A sketch of a large ONNX model: its graph, shown while the model itself is still being read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from popgraph.builder.onnx.outline import Outline, OutlineNode, outline_of
from popgraph.viewer.nodes import (
    Node,
    Operand,
    fold,
    kind_of,
    modules_of,
    plain,
    scope_below,
    scope_of,
)


def sketch_of(path: Path) -> str | None:
    """
    The quickly readable part of a model as JSON: nodes, edges, and the types in the file.

    Node numbers match the document, unless reading changes the model, as with values of structural
    inputs. Returns None for some damaged models; reading them whole reports the error.
    """
    try:
        return json.dumps(sketched(outline_of(path), path.name))
    except (RecursionError, TypeError, UnicodeError):  # Nested too deep; a name that is not text.
        return None


def sketched(outline: Outline, name: str) -> dict[str, Any]:
    """Converts an outline to nodes."""
    sketcher = _Sketcher()
    sketcher.inputs(outline)
    sketcher.block(outline, "")
    sketcher.outputs(outline)
    fold(sketcher.nodes, sketcher.results)
    return {"name": name, "graph": [plain(node) for node in sketcher.nodes]}


class _Sketcher:
    """Converts outlines to nodes, in the same order as `graphs`."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.results: set[int] = set()
        self._givers: dict[str, int | None] = {}
        """The node that computes each value; None for arguments of a body."""
        self._types: dict[str, str] = {}

    def inputs(self, outline: Outline) -> None:
        self._types |= outline.types
        for name in outline.inputs:
            node = self._add("input", name, "")
            node.outputs = [self._result(name)]
            self._givers[name] = node.id

    def outputs(self, outline: Outline) -> None:
        for name in outline.outputs:
            self._add("output", name, "").inputs = [self._operand(name)]

    def block(self, outline: Outline, scope: str) -> None:
        """Adds the nodes of a graph, each after the nodes of its subgraphs."""
        for node in outline.nodes:
            self._node(node, scope)

    def _node(self, node: OutlineNode, scope: str) -> None:
        name = node.name or next(filter(None, node.outputs), "")
        inner, kind = (
            scope_of(name, scope, modules_of(node.metadata)),
            kind_of(node.domain, node.op_type),
        )
        ends: list[Operand] = []
        for label, body in node.graphs:
            ends += self._body(body, scope_below(inner, name or kind, label))
        made = self._add(kind, name, inner)
        made.inputs = [*map(self._operand, filter(None, node.inputs)), *ends]
        self.results |= {one.node for one in ends if one.node is not None}
        made.outputs = [self._result(name) for name in node.outputs if name]
        self._givers |= dict.fromkeys(node.outputs, made.id)

    def _body(self, body: Outline, scope: str) -> list[Operand]:
        """Adds the nodes of a subgraph, whose names are local to it; returns its results."""
        outer = dict(self._givers), dict(self._types)
        self._givers |= dict.fromkeys(body.inputs)
        self._types |= body.types
        self.block(body, scope)
        given = [self._operand(name) for name in body.outputs]
        self._givers, self._types = outer
        return given

    def _operand(self, name: str) -> Operand:
        held = name not in self._givers
        return Operand(name, self._types.get(name, ""), self._givers.get(name), held)

    def _result(self, name: str) -> Operand:
        return Operand(name, self._types.get(name, ""))

    def _add(self, kind: str, name: str, scope: str) -> Node:
        node = Node(len(self.nodes), kind, name, scope)
        self.nodes.append(node)
        return node
