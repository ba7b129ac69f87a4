"""The adapter: models as graphs of the levels onnx, graphcore and structured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from model_explorer import Adapter, AdapterMetadata, ModelExplorerGraphs
from model_explorer.graph_builder import Graph, GraphNode, IncomingEdge, KeyValue, MetadataItem

from popgraph.cli import models
from popgraph.compiler import for_this_machine
from popgraph.passes.options import Options
from popgraph.viewer.document import Document
from popgraph.viewer.explorer import explorer_graphs


class PopgraphAdapter(Adapter):
    """Converts a model to graphs; unspecified sizes are 1."""

    metadata = AdapterMetadata(
        id="popgraph",
        name="PopGraph",
        description="The model as it was written, what is computed, and how.",
        fileExts=["pgraph", "onnx"],
    )

    def convert(self, model_path: str, settings: dict[str, Any]) -> ModelExplorerGraphs:
        path = Path(model_path)
        module, compilation, _ = models.opened(path, None, static=False, assumed=True)
        document = Document(
            path.name, module, compilation, for_this_machine(Options()), origin=path
        )
        return {"graphs": [_graph(row) for row in explorer_graphs(document)]}


def _graph(row: dict[str, Any]) -> Graph:
    return Graph(**row | {"nodes": [_node(node) for node in row["nodes"]]})


def _node(row: dict[str, Any]) -> GraphNode:
    made = {
        "attrs": _pairs(row["attrs"]),
        "incomingEdges": [IncomingEdge(**edge) for edge in row["incomingEdges"]],
        "outputsMetadata": [
            MetadataItem(one["id"], _pairs(one["attrs"])) for one in row["outputsMetadata"]
        ],
    }
    return GraphNode(**row | made)


def _pairs(rows: list[dict[str, str]]) -> list[KeyValue]:
    return [KeyValue(**row) for row in rows]
