"""What does the environment ask to see of a compilation, and where does it go?"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TextIO, TypeAlias

from xdsl.dialects.builtin import ModuleOp

from popgraph.support.errors import PassError, PopgraphError

PASSES, IR, KERNELS, SOURCE = 1, 2, 3, 4
"""What `POPGRAPH_DEBUG` shows from which level on."""

_KERNELS = frozenset({"tile.kernel", "func.func"})
"""Operations that hold loops: modules with these are shown at level KERNELS only."""


@dataclass(frozen=True)
class Settings:
    """
    The debug settings, all off by default.

    `POPGRAPH_DEBUG=1..4` shows passes and their times; the IR after each pass that changed
    something; kernels, too; the C. `POPGRAPH_DUMP=dir` writes numbered IR files and the C.
    `POPGRAPH_STOP_AFTER=pass` ends the compilation there. `POPGRAPH_CHECK=1` checks after every
    pass that the module is still well formed and means the same.
    """

    level: int = 0
    dump: Path | None = None
    stop_after: str | None = None
    check: bool = False

    @staticmethod
    def from_environment(environment: Mapping[str, str] | None = None) -> Settings:
        given = os.environ if environment is None else environment
        dump = given.get("POPGRAPH_DUMP", "")
        return Settings(
            _level(given.get("POPGRAPH_DEBUG", "")),
            Path(dump) if dump else None,
            given.get("POPGRAPH_STOP_AFTER", "") or None,
            given.get("POPGRAPH_CHECK", "") not in ("", "0"),
        )


def _level(text: str) -> int:
    if text in ("", "0"):
        return 0
    if text not in ("1", "2", "3", "4"):
        raise PassError(
            f"POPGRAPH_DEBUG is {text!r}",
            "the environment",
            "1 shows passes and times, 2 the IR, 3 kernels, 4 the C",
        )
    return int(text)


class Named(Protocol):
    """A pass, as far as this room knows passes."""

    @property
    def name(self) -> str: ...


SameMeaning: TypeAlias = Callable[[Any, ModuleOp, ModuleOp, Any], None]
"""Raises unless a pass kept the meaning: called with the pass, before, after and the weights."""


@dataclass
class Observer:
    """Watches the passes of one compilation: shows, writes, measures and checks."""

    settings: Settings = field(default_factory=Settings)
    print_after: Collection[str] = ()
    """Passes after which the IR is shown, whatever the level."""
    same_meaning: SameMeaning | None = None
    output: TextIO = field(default_factory=lambda: sys.stderr)
    _count: int = 0

    @staticmethod
    def from_environment(same_meaning: SameMeaning | None = None) -> Observer:
        return Observer(Settings.from_environment(), same_meaning=same_meaning)

    @property
    def stop_after(self) -> str | None:
        return self.settings.stop_after

    @contextmanager
    def watching(self, step: Named, module: ModuleOp, weights: object) -> Iterator[None]:
        """Around the run of one pass over `module`."""
        before = self._before(module)
        start = time.perf_counter()
        yield
        seconds = time.perf_counter() - start
        self._count += 1
        if self.settings.level >= PASSES:
            self._say(f"{self._count:3} {step.name:28} {seconds * 1e3:9.2f} ms")
        if before is not None:
            self._report_changes(step, before, module)
            self._check(step, before, module, weights)
        elif step.name in self.print_after:
            self._show(step, str(module))

    def _before(self, module: ModuleOp) -> ModuleOp | None:
        """The module as it was, if anyone will compare."""
        wanted = self.settings.level >= IR or self.settings.dump or self.settings.check
        return module.clone() if wanted else None

    def _report_changes(self, step: Named, before: ModuleOp, module: ModuleOp) -> None:
        changed = not before.is_structurally_equivalent(module)
        if not changed and step.name not in self.print_after:
            return
        text = str(module)
        shown = self.settings.level >= (KERNELS if _has_kernels(module) else IR)
        if shown or step.name in self.print_after:
            self._show(step, text)
        if self.settings.dump is not None:
            write_dump(self.settings.dump, f"{self._count:02}_{step.name}.mlir", text + "\n")

    def _check(self, step: Named, before: ModuleOp, module: ModuleOp, weights: object) -> None:
        if not self.settings.check:
            return
        module.verify()
        if self.same_meaning is not None:
            self.same_meaning(step, before, module, weights)

    def _show(self, step: Named, text: str) -> None:
        self._say(f"// after {step.name}\n{text}")

    def _say(self, text: str) -> None:
        print(text, file=self.output)


def note_source(name: str, text: str) -> None:
    """To be called with every C text before it is compiled: shown or written when asked for."""
    settings = Settings.from_environment()
    if settings.level >= SOURCE:
        print(f"// {name}\n{text}", file=sys.stderr)
    if settings.dump is not None:
        write_dump(settings.dump, name, text)


def write_dump(folder: Path, name: str, text: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    except OSError as error:
        raise PopgraphError(
            f"{folder / name} cannot be written: {error.strerror}",
            "POPGRAPH_DUMP",
            "name a folder that can be written to",
        ) from error


def _has_kernels(module: ModuleOp) -> bool:
    return any(op.name in _KERNELS for op in module.walk())
