"""What does a C compiler get? Translation units, which know whose kernels stand in them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
RUNTIME = "runtime.h"
"""What every unit includes; it stands beside this file."""
HEADERS = (RUNTIME, "functions.h")
"""What generated C stands on."""


def headers() -> dict[str, str]:
    """The texts of the headers by name."""
    return {name: (HERE / name).read_text("utf-8") for name in HEADERS}


@dataclass(frozen=True)
class Kernel:
    """One function of C."""

    name: str
    """As the IR calls it."""
    text: str
    prototype: str
    location: str
    """Where it comes from, in the user's words."""


@dataclass(frozen=True)
class Unit:
    """A translation unit and the kernels in it, by the line where each begins."""

    text: str
    kernels: tuple[tuple[int, Kernel], ...] = ()

    def kernel_at(self, line: int) -> Kernel | None:
        """The kernel that a line of the text belongs to."""
        started = [kernel for first, kernel in self.kernels if first <= line]
        return started[-1] if started else None
