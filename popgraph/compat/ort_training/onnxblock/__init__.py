"""Blocks that build training, eval and optimizer models, as `onnxruntime.training.onnxblock`."""

from __future__ import annotations

from popgraph.compat.ort_training.onnxblock import blocks, loss, optim
from popgraph.compat.ort_training.onnxblock.blocks import Block
from popgraph.compat.ort_training.onnxblock.checkpoint_utils import (
    load_checkpoint_to_model,
    save_checkpoint,
)
from popgraph.compat.ort_training.onnxblock.model_accessor import (
    base,
    custom_op_library,
    empty_base,
)
from popgraph.compat.ort_training.onnxblock.onnxblock import ForwardBlock, TrainingBlock

__all__ = [
    "Block",
    "ForwardBlock",
    "TrainingBlock",
    "base",
    "blocks",
    "custom_op_library",
    "empty_base",
    "load_checkpoint_to_model",
    "loss",
    "optim",
    "save_checkpoint",
]
