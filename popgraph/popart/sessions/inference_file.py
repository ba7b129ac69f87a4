"""Exports the model of a session for inference, as standard ONNX."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from popgraph.compiler.saving import check_kind, save_model
from popgraph.dialects.onnx import model_of
from popgraph.dialects.onnx.weight_names import weights_by_name
from popgraph.dialects.program import WeightStore
from popgraph.passes.base import Compilation
from popgraph.popart.model.model import SessionModel
from popgraph.support.arrays import Array
from popgraph.training.inference_form import to_inference
from popgraph.training.inference_model import without_loss
from popgraph.training.open_batch import open_batch
from popgraph.training.trained_weights import put_weights


def save_inference(path: Path, model: SessionModel, values: Mapping[str, Array]) -> None:
    """Writes a model with these weights, without loss and labels, for any batch size."""
    check_kind(path)
    loss, store = model.final_loss, WeightStore(model.weights)
    module = model.module.clone() if loss is None else without_loss(model.module, loss)
    held = weights_by_name(model_of(module).graph)
    put_weights(module, {name: one for name, one in values.items() if name in held}, store)
    to_inference(module)
    save_model(path, open_batch(module, store, {}) or module, Compilation(store))
