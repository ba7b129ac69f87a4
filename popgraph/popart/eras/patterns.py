"""PopONNX's patterns: their names in capitals, and those that are gone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from popgraph.builder.opset.enums import PatternsLevel
from popgraph.popart.api import patterns as modern
from popgraph.popart.eras.era import PLAIN_POPONNX, Era

GONE = (
    *("GemmDecomposition", "InPlace0", "LogSoftmaxOp", "SplitConvBias", "TanToSinOverCos"),
    "TanhGradOp",
)
"""Patterns that later times do without; they changed no result."""

_GONE = {name.lower() for name in GONE}


class Patterns(modern.Patterns):
    """`Patterns(["PostNRepl"])` switches all others off; a session asks for none of them."""

    ERA: ClassVar[Era] = PLAIN_POPONNX

    def __init__(
        self,
        patterns: PatternsLevel | Sequence[str] | None = None,
        *,
        level: PatternsLevel = PatternsLevel.Default,
    ) -> None:
        if not isinstance(patterns, PatternsLevel | None):
            patterns = [modern.spelt(name) for name in patterns if name.lower() not in _GONE]
        super().__init__(patterns, level=level)
        self.enableRuntimeAsserts(self.ERA.mandatory)

    def insists_on_needed(self) -> bool:
        return self.ERA.mandatory

    def __getattr__(self, name: str) -> bool:
        return bool(self._enabled) if name in GONE else super().__getattr__(name)

    def __setattr__(self, name: str, value: object) -> None:
        if name in GONE:
            object.__setattr__(self, name, bool(value))
        else:
            super().__setattr__(name, value)
