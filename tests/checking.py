"""Checks IR in tests that build many modules, parsing a sample of their texts."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from popgraph.dialects import check
from tests.sampling import is_sampled

SHARE = 4
"""One text in this many is parsed a day, since parsing takes longer than most passes."""


def check_ir(module: ModuleOp, *, text: bool = True) -> None:
    """The package's `check_ir`; the number of operations decides whether the text is parsed."""
    if text:
        size = sum(1 for _ in module.walk())
        text = is_sampled("modules whose text is parsed again", size, SHARE)
    check.check_ir(module, text=text)
