"""Dynamic loss scaling: halved if gradients overflow, doubled after many good updates."""

from __future__ import annotations

from popgraph.support.dtypes import DType
from popgraph.support.errors import RunError

FIRST_SCALE = 2.0**15
"""A larger scale does not fit an f16 loss."""
GROWS_AFTER = 2000
"""Good updates before the scale is doubled, as in PyTorch's GradScaler."""
_LARGEST = {"f16": 2.0**15}
_LARGEST_OF_OTHERS = 2.0**24


def next_scale(scale: float, good_updates: int, loss: DType) -> float:
    """The scale after an update; zero good updates mean that this update was skipped."""
    if not good_updates:
        if scale <= 1:
            raise RunError(
                "the gradients are not finite, however small the loss scale",
                "loss_scale",
                "a smaller learning rate or clip=1.0; `check` shows the gradients of a batch",
            )
        return scale / 2
    largest = _LARGEST.get(loss.name, _LARGEST_OF_OTHERS)
    return min(2 * scale, largest) if good_updates % GROWS_AFTER == 0 else scale
