"""The scratch memory of Winograd's transforms."""

from __future__ import annotations

from dataclasses import dataclass


def padded_pitch(elements: int, line: int) -> int:
    """Rounds up to an odd number of cache lines, so that neighbours share no cache set."""
    return (-(-elements // line) | 1) * line


@dataclass(frozen=True)
class Scratch:
    """
    Pitches, in elements, of transformed tiles and of the sums of a panel.

    With 0 channels, the tiles are stored elsewhere.
    """

    tiles: int
    taps: int
    channels: int
    lanes: int
    line: int
    """Elements of a cache line."""

    @property
    def pitch(self) -> int:
        """Distance of two tiles."""
        return padded_pitch(self.channels, self.line) if self.channels else 0

    @property
    def data(self) -> int:
        """Distance of two taps of transformed tiles."""
        return padded_pitch(self.tiles * self.pitch, self.line) if self.channels else 0

    @property
    def sums(self) -> int:
        """Distance of two taps of sums."""
        return padded_pitch(self.tiles * self.lanes, self.line)

    @property
    def size(self) -> int:
        """Size of the scratch memory."""
        return self.taps * (self.data + self.sums)
