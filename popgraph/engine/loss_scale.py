"""The loss scale that follows the gradients: halved if they overflow, doubled if they do not."""

from __future__ import annotations

from popgraph.support.dtypes import DType
from popgraph.support.errors import RunError

FIRST_SCALE = 2.0**15
"""Larger scales do not fit a loss of half precision."""
GROWS_AFTER = 2000
"""Good updates until the scale is doubled, as in PyTorch's GradScaler."""
_LARGEST = {"f16": 2.0**15}
_LARGEST_OF_OTHERS = 2.0**24


def next_scale(scale: float, good_updates: int, loss: DType) -> float:
    """The scale after an update, which was skipped if no good update has been since."""
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
