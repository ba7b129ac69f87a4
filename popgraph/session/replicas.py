"""The replicas of a model, which one program runs in turn."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from popgraph.backends.base import Executable
from popgraph.support.arrays import Array


class Replicas:
    """
    Replicas share a program: it is run for one after the other.

    What they have in common (trained weights, optimizer state) stays in the program, where the
    gradients of all of them add up. Of `own`, such as running statistics, each replica has values
    of its own, which are put into the program before its turn.
    """

    def __init__(self, count: int, own: Collection[str]) -> None:
        self.count = count
        self._own = tuple(own) if count > 1 else ()
        self._values: list[Mapping[str, Array]] = []
        self._inside = 0

    def enter(self, executable: Executable, replica: int) -> None:
        """Puts the values of a replica into the program, and keeps those that were there."""
        if not self._own:
            return
        held = {id: executable.read(id) for id in self._own}
        if not self._values:
            self._values = [held] * self.count
        if replica != self._inside:
            self._values[self._inside] = held
            for id, value in self._values[replica].items():
                executable.write(id, value)
            self._inside = replica

    def restart(self) -> None:
        """The program's values are new ones, which are those of every replica."""
        self._values, self._inside = [], 0
