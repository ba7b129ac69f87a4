"""The randomness of a session: its seed, and the state of what draws from it."""

from __future__ import annotations

from collections.abc import Sequence

from popgraph.builder.opset.arguments import typed
from popgraph.builder.opset.enums import SyntheticDataMode
from popgraph.popart.api.options import SessionOptions
from popgraph.popart.exceptions import popart_runtime_error
from popgraph.popart.sessions.engine import Engine


@typed
class Randomness:
    """Methods of a session that make what it draws repeatable."""

    _engine: Engine
    _options: SessionOptions

    def setRandomSeed(self, seedValue: int) -> None:
        """
        The seed that steps draw from, from its first step on. Without it, a program has seed 0.

        What `getRandomSeed` gave continues where that was: its high bits count the steps.
        """
        self._engine.set_seed(seedValue)

    def getRandomSeed(self) -> int:
        """The seed, plus 2^64 times the number of steps taken with it."""
        return self._engine.seed()

    def getRNGState(self) -> list[int]:
        """What `setRNGState` goes on from: seed and number of steps, in words of 32 bits."""
        self._check_state_is_kept("get")
        if self._options.syntheticDataMode is not SyntheticDataMode.Off:
            return []
        return self._engine.random_state()

    def setRNGState(self, rngValue: Sequence[int]) -> None:
        """Goes on drawing where the session was that gave the state."""
        self._check_state_is_kept("set")
        self._engine.set_random_state(rngValue)

    def _check_state_is_kept(self, verb: str) -> None:
        if not self._options.enableLoadAndOffloadRNGState:
            raise popart_runtime_error(
                f"Trying to {verb} the RNG state, but the session option "
                "enableLoadAndOffloadRNGState must be set to True.",
                f"{verb}RNGState",
                "set it, or keep what getRandomSeed gives",
            )
