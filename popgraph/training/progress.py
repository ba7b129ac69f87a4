"""The progress of training: everything to resume from besides the program's variables."""

from __future__ import annotations

from dataclasses import dataclass, field

from popgraph.training.history import History


@dataclass
class Progress:
    """The position in the data, and the measurements so far."""

    epoch: int = 0
    """Epochs completed."""
    batch: int = 0
    """Batches of the current epoch already taken."""
    first_epoch: int = 0
    """Epoch at which the current `fit`, or the one a checkpoint resumes, began."""
    first_step: int = 0
    history: History = field(default_factory=History)
