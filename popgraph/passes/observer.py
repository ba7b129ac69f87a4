"""Observes a pass pipeline: timing, IR dumps, proofs, and checks of form and meaning."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Self, TextIO, TypeAlias

from xdsl.dialects.builtin import ModuleOp

from popgraph.dialects.check import check_ir
from popgraph.dialects.program import WeightStore
from popgraph.passes.base import Pass
from popgraph.passes.validation.validate import validate
from popgraph.support.debug import IR, KERNELS, PASSES, Settings, write_dump
from popgraph.support.logs import log_of
from popgraph.support.progress import reporting

_KERNELS = frozenset({"func.func"})
"""Operations that contain loops: modules with these are shown at level KERNELS only."""

SameMeaning: TypeAlias = Callable[[Pass, ModuleOp, ModuleOp, WeightStore], None]
"""Raises unless a pass kept the meaning; takes the pass, both modules and the weights."""


@dataclass
class Observer:
    """Observes the passes of one compilation: prints, dumps, times and checks."""

    settings: Settings = field(default_factory=Settings)
    print_after: Collection[str] = ()
    """Passes after which the IR is shown at any level."""
    same_meaning: SameMeaning | None = None
    output: TextIO = field(default_factory=lambda: sys.stderr)
    text: Callable[[ModuleOp], str] = str
    """Formats a module for display; dumps are always complete."""
    _count: int = 0

    @classmethod
    def from_environment(cls, same_meaning: SameMeaning | None = None) -> Self:
        return cls(Settings.from_environment(), same_meaning=same_meaning)

    @property
    def stop_after(self) -> str | None:
        return self.settings.stop_after

    @property
    def checks(self) -> SameMeaning | None:
        """The comparison of meaning for each pass, if the settings request it."""
        return self.same_meaning if self.settings.check else None

    @contextmanager
    def watching(self, step: Pass, module: ModuleOp, weights: WeightStore) -> Iterator[None]:
        """Observes the run of one pass over `module`."""
        before = self._before(step, module)
        start = time.perf_counter()
        with reporting(f"pass {step.name}"):
            yield
        seconds = time.perf_counter() - start
        self._count += 1
        log_of("transform").debug("%s took %.2f ms", step.name, seconds * 1e3)
        if self.settings.level >= PASSES:
            self._say(f"{self._count:3} {step.name:28} {seconds * 1e3:9.2f} ms")
        if before is not None and self._is_compared:
            self._report_changes(step, before, module)
            self._check(step, before, module, weights)
        elif step.name in self.print_after:
            self._show(step, self.text(module))
        if before is not None and self._is_proven(step):
            self._prove(step, before, module)

    def _before(self, step: Pass, module: ModuleOp) -> ModuleOp | None:
        """A copy of the module, if it is compared after the pass."""
        return module.clone() if self._is_compared or self._is_proven(step) else None

    @property
    def _is_compared(self) -> bool:
        settings = self.settings
        return settings.level >= IR or settings.dump is not None or settings.check

    def _is_proven(self, step: Pass) -> bool:
        return self.settings.prove and step.WRITES_CALLS

    def _report_changes(self, step: Pass, before: ModuleOp, module: ModuleOp) -> None:
        changed = not before.is_structurally_equivalent(module)
        if not changed and step.name not in self.print_after:
            return
        shown = self.settings.level >= (KERNELS if _has_kernels(module) else IR)
        if shown or step.name in self.print_after:
            self._show(step, self.text(module))
        if self.settings.dump is not None:
            name = f"{self._count:02}_{step.name}.mlir"
            write_dump(self.settings.dump, name, f"{module!s}\n")

    def _check(self, step: Pass, before: ModuleOp, module: ModuleOp, weights: WeightStore) -> None:
        if not self.settings.check:
            return
        check_ir(module, text=False)
        if self.checks is not None:
            self.checks(step, before, module, weights)

    def _prove(self, step: Pass, before: ModuleOp, module: ModuleOp) -> None:
        """Proves the accesses of a program; a certificate joins the dumps."""
        made = validate(step.name, before, module)
        if made is None:
            return
        log_of("transform").debug("%s", made.summary)
        if self.settings.level >= PASSES:
            self._say(f"    {made.summary}")
        if self.settings.dump is not None:
            name = f"{self._count:02}_{step.name}.certificate.txt"
            write_dump(self.settings.dump, name, str(made))

    def _show(self, step: Pass, text: str) -> None:
        self._say(f"// after {step.name}\n{text}")

    def _say(self, text: str) -> None:
        print(text, file=self.output)


def _has_kernels(module: ModuleOp) -> bool:
    return any(op.name in _KERNELS for op in module.walk())
