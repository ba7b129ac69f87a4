"""The ONNX exporter."""

from __future__ import annotations

from onnx import ModelProto
from xdsl.dialects.builtin import ModuleOp

from popgraph.dialects.onnx.containers import model_of
from popgraph.dialects.onnx.protos import write_model
from popgraph.dialects.program import WeightStore


def export_model(module: ModuleOp, store: WeightStore) -> ModelProto:
    """
    The model; equal to the one that was imported where no pass has changed it.

    The elements of all tensors stand in the message itself, also of those that were read from
    files beside the model (as `onnx.load` does it).
    """
    return write_model(model_of(module), store)
