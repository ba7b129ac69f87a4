"""The ONNX exporter."""

from __future__ import annotations

from typing import TypeAlias

from onnx import ModelProto
from xdsl.dialects.builtin import ModuleOp

from popgraph.dialects.onnx.containers import model_of
from popgraph.dialects.onnx.protos import write_model
from popgraph.dialects.program import WeightStore

Proto: TypeAlias = ModelProto
"""The message of a model, for modules that do not import onnx."""


def export_model(module: ModuleOp, store: WeightStore) -> ModelProto:
    """
    Exports a module; the result equals the imported model unless passes changed it.

    All tensors are stored in the message itself, also those read from external files (as
    `onnx.load` does).
    """
    return write_model(model_of(module), store)
