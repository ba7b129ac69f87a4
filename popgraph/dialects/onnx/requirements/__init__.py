"""What an operator asks of its attributes and operands beyond what ONNX's own inference checks."""

from __future__ import annotations

from popgraph.dialects.onnx.requirements import (
    attentions,
    lookups,
    losses,
    matrices,
    movement,
    normalizations,
    optimizers,
    recurrences,
    resizing,
    sequences,
    signals,
    windows,
)
from popgraph.dialects.onnx.requirements.frame import Known, Seen, unmet

__all__ = [
    "Known",
    "Seen",
    "attentions",
    "lookups",
    "losses",
    "matrices",
    "movement",
    "normalizations",
    "optimizers",
    "recurrences",
    "resizing",
    "sequences",
    "signals",
    "unmet",
    "windows",
]
