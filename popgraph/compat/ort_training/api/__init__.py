"""Training from artifacts, as `onnxruntime.training.api`."""

from __future__ import annotations

from popgraph.compat.ort_training.api.checkpoint_state import CheckpointState
from popgraph.compat.ort_training.api.lr_scheduler import LinearLRScheduler
from popgraph.compat.ort_training.api.module import Module
from popgraph.compat.ort_training.api.optimizer import Optimizer

__all__ = ["CheckpointState", "LinearLRScheduler", "Module", "Optimizer"]
