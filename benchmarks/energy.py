"""Energy that the processor packages take, by the counters of RAPL."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

POWERCAP = Path("/sys/class/powercap")


class Meter:
    """The energy counters of all packages."""

    def __init__(self, folder: Path = POWERCAP) -> None:
        zones = sorted(folder.glob("intel-rapl:*")) if folder.is_dir() else []
        # A zone with two colons is a part of a package, such as its cores.
        self._zones = [zone for zone in zones if zone.name.count(":") == 1]
        self.obstacle = self._obstacle(folder)
        """The reason why energy cannot be measured here; "" if it can."""
        if self.obstacle:
            self._zones = []

    def _obstacle(self, folder: Path) -> str:
        if not self._zones:
            return f"this machine has no RAPL counters in {folder}"
        try:
            self.read()
        except OSError as error:
            return f"the RAPL counters cannot be read: {error.strerror}"
        return ""

    def read(self) -> list[int]:
        """The counters in microjoules, one for each package."""
        return [int((zone / "energy_uj").read_text()) for zone in self._zones]

    def joules(self, before: Sequence[int], after: Sequence[int]) -> float:
        """The energy between two readings, during which a counter may wrap around once."""
        total = 0
        for zone, first, last in zip(self._zones, before, after, strict=True):
            span = int((zone / "max_energy_range_uj").read_text()) if last < first else 0
            total += last - first + span
        return total / 1e6
