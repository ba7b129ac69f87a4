"""Delayed weights: a pipeline without accumulation runs later batches before an update."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from popgraph.backends.base import Executable
from popgraph.engine.stages import Stages
from popgraph.passes.graphcore.training.autodiff import DELAYED
from popgraph.support.arrays import Array
from popgraph.support.errors import UnsupportedError


def delays_of(stages: Stages, weights: Iterable[str], *, talks: bool) -> dict[str, int]:
    """How old weights are when batches of a pipeline meet them that updates them at once."""
    found = {id: delay for id in weights if (delay := stages.delay(id))}
    shared = next((id for id in found if len(stages.stages_of(id)) > 1), None)
    if shared is not None:
        raise _unsupported(
            f"the weight {shared} is read in several stages of a pipeline that updates it while "
            "batches are under way"
        )
    if found and talks:
        raise _unsupported(
            "replicas that differ or talk to each other cannot update weights while batches are "
            "under way"
        )
    return found


def _unsupported(what: str) -> UnsupportedError:
    return UnsupportedError(what, "stages", "accumulate")


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
