"""Tests the listing of a model, as text and in notebooks."""

from __future__ import annotations

import numpy as np

import popgraph
from popgraph.builder.pgraph import parse

TEXT = "opset 21\n\ngraph g(x: f32[N, 4]) -> (y: f32[N, 4]) {\n    y = Softmax(x @ x - 1.0)\n}\n"


def built() -> popgraph.Builder:
    builder = popgraph.Builder()
    x = builder.addInputTensor(popgraph.TensorInfo("FLOAT", [2, 40]))
    w = builder.addInitializedInputTensor(
        np.ones((40, 3), np.float32) * np.arange(3, dtype=np.float32)
    )
    builder.addOutputTensor(builder.aiOnnx.matmul([x, w]))
    return builder


def test_a_builder_gives_the_text_of_its_model() -> None:
    text = built().to_pgraph()
    assert "graph" in text
    x = np.random.default_rng(0).standard_normal((2, 40)).astype(np.float32)
    (name,) = parse(text).module.body.block.first_op.graph.input_names  # type: ignore[union-attr]
    (found,) = popgraph.compile(parse(text).module)({name: x}).values()
    assert np.allclose(found, x @ (np.ones((40, 3)) * np.arange(3)), rtol=1e-4)


def test_any_model_has_a_text() -> None:
    document = parse(TEXT)
    assert popgraph.to_pgraph(document.module) == TEXT


def test_a_notebook_shows_colours_and_only_names_large_weights() -> None:
    shown = built()._repr_html_()
    assert "<span" in shown
    assert "weights.safetensors" in shown
    assert len(shown) < 5000
