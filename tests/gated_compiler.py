"""A C compiler that waits or fails when a tuned program is compiled in the background."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

SECONDS = 60
"""Timeout after which a hanging build fails."""

SCRIPT = """#!/bin/sh
# Does something else before it compiles what quick programs do not consist of.
case " $* " in
*" -O1 "*) ;;
*" -c "*) ACT ;;
esac
exec cc "$@"
"""


def use_fresh_cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets a program cache of the test."""
    monkeypatch.setenv("POPGRAPH_CACHE_DIR", str(folder / "cache"))
    monkeypatch.delenv("POPGRAPH_PROGRAM_CACHE", raising=False)


def gated(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file whose existence lets the compiler of tuned programs continue."""
    path = folder / "gate"
    compile_by(folder, monkeypatch, f"while [ ! -e {path} ]; do sleep 0.02; done")
    yield path
    path.touch()


def compile_by(folder: Path, monkeypatch: pytest.MonkeyPatch, act: str) -> None:
    script = folder / "compiler"
    script.write_text(SCRIPT.replace("ACT", act))
    script.chmod(0o755)
    monkeypatch.setenv("CC", str(script))
