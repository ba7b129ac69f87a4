"""Delayed weights: a pipeline without accumulation runs later batches before an update."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from popgraph.backends.base import Executable
from popgraph.engine.stages import Stages
from popgraph.passes.graphcore.training.autodiff import DELAYED
from popgraph.support.arrays import Array
from popgraph.support.errors import UnsupportedError


def weight_delays(stages: Stages, weights: Iterable[str], *, communicates: bool) -> dict[str, int]:
    """Delay, in batches, of each weight of a pipeline that updates after every batch."""
    found = {id: delay for id in weights if (delay := stages.delay(id))}
    shared = next((id for id in found if len(stages.stages_of(id)) > 1), None)
    if shared is not None:
        raise _unsupported(
            f"several stages read the weight {shared}, but the pipeline updates it while batches "
            "are in flight"
        )
    if found and communicates:
        raise _unsupported(
            "replicas that differ or communicate cannot update weights while batches are in flight"
        )
    return found


def _unsupported(what: str) -> UnsupportedError:
    return UnsupportedError(what, "stages", "accumulate")


class DelayedWeights:
    """
    Emulates the stale weights of a pipeline when its stages run sequentially.

    The forward pass of a batch reads weights without the gradients of the `delays` previous
    batches. Every step begins and ends with an empty pipeline.
    """

    def __init__(self, delays: Mapping[str, int]) -> None:
        self._delays = delays
        self._past: dict[str, deque[Array]] = {}

    @property
    def has_delays(self) -> bool:
        return bool(self._delays)

    def begin_step(self) -> None:
        for id, delay in self._delays.items():
            self._past[id] = deque(maxlen=delay + 1)

    def enter(self, executable: Executable) -> None:
        """Writes the delayed weights of the next batch."""
        for id, past in self._past.items():
            past.append(executable.read(id))
            executable.write(DELAYED + id, past[0])
