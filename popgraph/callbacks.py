"""Callbacks and learning-rate schedules under Keras' names."""

from __future__ import annotations

from popgraph.training.keras_callbacks import (
    Callback,
    CSVLogger,
    EarlyStopping,
    LambdaCallback,
    LearningRateScheduler,
    ModelCheckpoint,
    ReduceLROnPlateau,
    TerminateOnNaN,
)
from popgraph.training.schedules import (
    CosineDecay,
    CosineDecayRestarts,
    ExponentialDecay,
    InverseTimeDecay,
    LearningRateSchedule,
    PiecewiseConstantDecay,
    PolynomialDecay,
)
from popgraph.training.tensorboard import TensorBoard

__all__ = [
    "CSVLogger",
    "Callback",
    "CosineDecay",
    "CosineDecayRestarts",
    "EarlyStopping",
    "ExponentialDecay",
    "InverseTimeDecay",
    "LambdaCallback",
    "LearningRateSchedule",
    "LearningRateScheduler",
    "ModelCheckpoint",
    "PiecewiseConstantDecay",
    "PolynomialDecay",
    "ReduceLROnPlateau",
    "TensorBoard",
    "TerminateOnNaN",
]
