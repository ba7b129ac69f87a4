"""Scratch memory of Winograd's transforms."""

from __future__ import annotations

from dataclasses import dataclass

LINE = 16
"""Elements of a cache line."""


def apart(elements: int) -> int:
    """At least so many elements, in an odd number of cache lines: neighbours share no set."""
    return (-(-elements // LINE) | 1) * LINE


@dataclass(frozen=True)
class Scratch:
    """
    How far apart transformed tiles stand, in elements, and the sums of a panel.

    No channels: the tiles stand elsewhere.
    """

    tiles: int
    taps: int
    channels: int
    lanes: int

    @property
    def pitch(self) -> int:
        """From tile to tile."""
        return apart(self.channels) if self.channels else 0

    @property
    def data(self) -> int:
        """From tap to tap of transformed tiles."""
        return apart(self.tiles * self.pitch) if self.channels else 0

    @property
    def sums(self) -> int:
        """From tap to tap of sums."""
        return apart(self.tiles * self.lanes)

    @property
    def size(self) -> int:
        """All of it."""
        return self.taps * (self.data + self.sums)
