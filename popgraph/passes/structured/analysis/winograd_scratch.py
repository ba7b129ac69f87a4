"""The scratch memory of Winograd's transforms."""

from __future__ import annotations

from dataclasses import dataclass


def padded_pitch(elements: int, line: int) -> int:
    """At least so many elements, in an odd number of lines of cache: neighbours share no set."""
    return (-(-elements // line) | 1) * line


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
    line: int
    """Elements of a cache line."""

    @property
    def pitch(self) -> int:
        """From tile to tile."""
        return padded_pitch(self.channels, self.line) if self.channels else 0

    @property
    def data(self) -> int:
        """From tap to tap of transformed tiles."""
        return padded_pitch(self.tiles * self.pitch, self.line) if self.channels else 0

    @property
    def sums(self) -> int:
        """From tap to tap of sums."""
        return padded_pitch(self.tiles * self.lanes, self.line)

    @property
    def size(self) -> int:
        """All of it."""
        return self.taps * (self.data + self.sums)
