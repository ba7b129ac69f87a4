"""How far a training is: what there is to know of it beside the variables of its program."""

from __future__ import annotations

from dataclasses import dataclass, field

from popgraph.training.history import History


@dataclass
class Progress:
    """Where a training is in its data, and what was measured on the way."""

    epoch: int = 0
    """Epochs that have ended."""
    batch: int = 0
    """Batches of the current epoch that were taken."""
    first_epoch: int = 0
    """Where the `fit` began that runs now, or the one that a checkpoint goes on with."""
    first_step: int = 0
    history: History = field(default_factory=History)
