"""Debug settings from the environment, and their output."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from popgraph.support.errors import PassError, PopgraphError
from popgraph.support.writing import write_atomically

PASSES, IR, KERNELS, SOURCE = 1, 2, 3, 4
"""The lowest level of `POPGRAPH_DEBUG` that shows each kind of output."""


@dataclass(frozen=True)
class Settings:
    """
    The debug settings, all off by default.

    `POPGRAPH_DEBUG=1..4` shows passes and their times; then also the IR after each pass that
    changed it; kernels; the C code. `POPGRAPH_DUMP=dir` writes numbered IR files and the C code.
    `POPGRAPH_STOP_AFTER=pass` ends the compilation there. `POPGRAPH_CHECK=1` verifies the module
    and its results after every pass, `2` proves the memory accesses of the program without running
    it, `3` does both.
    """

    level: int = 0
    dump: Path | None = None
    stop_after: str | None = None
    check: bool = False
    prove: bool = False

    @staticmethod
    def from_environment(environment: Mapping[str, str] | None = None) -> Settings:
        given = os.environ if environment is None else environment
        dump, check = given.get("POPGRAPH_DUMP", ""), given.get("POPGRAPH_CHECK", "")
        return Settings(
            _level(given.get("POPGRAPH_DEBUG", "")),
            Path(dump) if dump else None,
            given.get("POPGRAPH_STOP_AFTER", "") or None,
            check not in ("", "0", "2"),
            check in ("2", "3"),
        )


def _level(text: str) -> int:
    if text in ("", "0"):
        return 0
    if text not in ("1", "2", "3", "4"):
        raise PassError(
            f"POPGRAPH_DEBUG must be a level from 0 to 4, not {text!r}",
            "the environment",
            "1 shows passes and times, 2 the IR, 3 kernels, 4 the C",
        )
    return int(text)


def note_source(name: str, text: str) -> None:
    """Shows or dumps a C source, if enabled; called before each compilation."""
    settings = Settings.from_environment()
    if settings.level >= SOURCE:
        print(f"// {name}\n{text}", file=sys.stderr)
    if settings.dump is not None:
        write_dump(settings.dump, name, text)


def write_dump(folder: Path, name: str, text: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / name, [text.encode()])
    except OSError as error:
        raise PopgraphError(
            f"{folder / name} cannot be written: {error.strerror}",
            "POPGRAPH_DUMP",
            "name a folder that can be written to",
        ) from error
