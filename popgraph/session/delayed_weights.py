"""Weights of a pipeline that trains without accumulation: later batches come by before updates."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from popgraph.backends.base import Executable
from popgraph.passes.graphcore.training.autodiff import DELAYED
from popgraph.support.arrays import Array


class DelayedWeights:
    """
    Gives each batch the weights that it would meet in a pipeline.

    On its way to the loss it meets those that lack the gradients of the `delays` batches before
    it. A step begins with an empty pipeline, and ends with one.
    """

    def __init__(self, delays: Mapping[str, int]) -> None:
        self._delays = delays
        self._past: dict[str, deque[Array]] = {}

    @property
    def are_any(self) -> bool:
        return bool(self._delays)

    def begin_step(self) -> None:
        self._past = {id: deque(maxlen=delay + 1) for id, delay in self._delays.items()}

    def enter(self, executable: Executable) -> None:
        """Before each batch of a step."""
        for id, past in self._past.items():
            past.append(executable.read(id))
            executable.write(DELAYED + id, past[0])
