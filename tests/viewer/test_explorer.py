"""Tests the graphs that Model Explorer shows, and its adapter where it is installed."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import pytest

import popgraph
from popgraph.viewer.explorer import explorer_graphs

EXAMPLES = Path(__file__).parents[2] / "examples"
DIGITS = EXAMPLES / "digits_cnn.pgraph"


def test_every_level_is_a_graph_with_scopes_and_edges() -> None:
    document = popgraph.view(DIGITS, sizes={"N": 1}).document
    graphs = explorer_graphs(document)
    assert [graph["id"] for graph in graphs] == ["onnx", "graphcore", "structured"]
    for graph in graphs:
        nodes = {node["id"]: node for node in graph["nodes"]}
        assert len(nodes) == len(graph["nodes"])
        for node in graph["nodes"]:
            for edge in node["incomingEdges"]:
                outputs = nodes[edge["sourceNodeId"]]["outputsMetadata"]
                assert edge["sourceNodeOutputId"] in [one["id"] for one in outputs]
    written, core, _ = (graph["nodes"] for graph in graphs)
    convolution = written[1]
    assert convolution["label"] == "Conv" and convolution["namespace"] == "h"
    attributes = {one["key"]: one["value"] for one in convolution["attrs"]}
    assert (
        attributes["written at"] == "digits_cnn.pgraph:13"
        and "kernel_shape" not in attributes["reads"]
    )
    assert {"key": "type", "value": "f32[1, 8, 8, 8]"} in convolution["outputsMetadata"][0]["attrs"]
    pool = next(node for node in core if node["label"] == "max_pool")
    assert {"key": "from", "value": "MaxPool h2"} in pool["attrs"]


def test_an_edge_names_the_result_that_is_read() -> None:
    halves = "(a, b) = Split(x, axis=1, num_outputs=2)"
    text = f"graph g(x: f32[4, 6]) -> (y) {{\n  {halves}\n  y = b - a\n}}\n"
    written = explorer_graphs(popgraph.view(text).document)[0]["nodes"]
    (difference,) = (node for node in written if node["label"] == "Sub")
    assert [edge["sourceNodeOutputId"] for edge in difference["incomingEdges"]] == ["1", "0"]


def test_a_model_that_is_not_lowered_says_why() -> None:
    text = "graph g(x: f32[3], n: i64[1]) -> (y) {\n  y = Expand(x, n)\n}\n"
    (graph,) = explorer_graphs(popgraph.view(text).document)
    assert "must be constant" in graph["groupNodeAttributes"][""]["what"]


def test_the_adapter_returns_the_same_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("model_explorer", reason="the adapter stands on Model Explorer")
    monkeypatch.syspath_prepend(str(EXAMPLES / "model_explorer"))
    from popgraph_model_explorer.main import PopgraphAdapter

    found = PopgraphAdapter().convert(str(DIGITS), {})["graphs"]
    written = popgraph.view(DIGITS, sizes={"N": 1}).document
    for graph, row in zip(found, explorer_graphs(written), strict=True):
        shown = asdict(graph)
        assert shown["id"] == row["id"]
        for node, expected in zip(shown["nodes"], row["nodes"], strict=True):
            assert expected.items() <= node.items()
    assert PopgraphAdapter.metadata.fileExts == ["pgraph", "onnx"]
    sys.modules.pop("popgraph_model_explorer.main")
