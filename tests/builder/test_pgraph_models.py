"""Tests that random ONNX models survive conversion to text and back."""

from __future__ import annotations

from hypothesis import given, settings
from onnx import ModelProto

from popgraph.builder.onnx.read import import_model
from popgraph.builder.onnx.write import export_model
from popgraph.builder.pgraph import parse, text_of
from popgraph.dialects.program import WeightStore
from popgraph.testing import model_difference, onnx_models
from tests.sampling import examples


@settings(max_examples=examples(150), deadline=None)
@given(onnx_models())
def test_any_model_comes_back_from_its_text(model: ModelProto) -> None:
    store = WeightStore()
    text = text_of(import_model(model, store), store)
    document = parse(text)
    back = export_model(document.module, document.weights)
    assert model_difference(model, back) == "", text
    assert text_of(document.module, document.weights) == text
