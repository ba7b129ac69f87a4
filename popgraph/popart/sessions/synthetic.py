"""Synthetic data: generated inputs, and anchors that are discarded."""

from __future__ import annotations

import numpy as np

from popgraph.builder.opset.enums import SyntheticDataMode
from popgraph.engine.streams import Stream
from popgraph.popart.api.step_io import StepIO
from popgraph.support.arrays import Array

_SEED = 0


class SyntheticIO(StepIO):
    """Zeros or random numbers, generated once, in place of the program's arrays."""

    def __init__(self, mode: SyntheticDataMode) -> None:
        self._mode, self._batches = mode, dict[str, Array]()
        self._generator = np.random.default_rng(_SEED)

    def read(self, stream: Stream) -> Array:
        if stream.id not in self._batches:
            self._batches[stream.id] = self._drawn(stream).astype(stream.dtype.numpy)
        return self._batches[stream.id]

    def _drawn(self, stream: Stream) -> Array:
        match self._mode:
            case SyntheticDataMode.RandomNormal:
                drawn = self._generator.standard_normal(stream.shape)
                return drawn if stream.dtype.is_float else np.abs(drawn)
            case SyntheticDataMode.RandomUniform:
                return self._generator.random(stream.shape)
            case _:
                return np.zeros(stream.shape)

    def write(self, stream: Stream, value: Array) -> None:
        """Discards the value; on an IPU, anchors stay on the device."""
