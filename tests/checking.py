"""Checks of IR in tests that make many modules: their texts take turns."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from popgraph.dialects import check
from tests.sampling import is_looked_at

SHARE = 4
"""To parse a text takes longer than the pass that wrote it: one in so many is parsed a day."""


def check_ir(module: ModuleOp, *, text: bool = True) -> None:
    """As the package's own; whether the text is read depends on how many operations there are."""
    if text:
        size = sum(1 for _ in module.walk())
        text = is_looked_at("modules whose text is parsed again", size, SHARE)
    check.check_ir(module, text=text)
