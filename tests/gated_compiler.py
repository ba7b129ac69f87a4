"""A C compiler that waits or fails when a tuned program is compiled in the background."""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

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

_STACKS = tempfile.TemporaryFile()  # noqa: SIM115, children write into it, too
if hasattr(signal, "SIGRTMIN"):
    faulthandler.register(signal.SIGRTMIN, _STACKS)


def assert_tuned(program: Any) -> None:
    """Waits for the tuned program; a timeout shows where this process and its children wait."""
    if not program.wait(SECONDS):
        pytest.fail(f"there is no tuned program after {SECONDS} s at most\n{_stacks()}")
    assert program.tuned


def _stacks() -> str:
    """The stacks of all threads of this process and its children, with the children's commands."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid():
                found.append(f"{entry.name}: {(entry / 'cmdline').read_text()!r}")
                os.kill(int(entry.name), signal.SIGRTMIN)
                time.sleep(1)  # Texts of two processes would mix.
    signal.raise_signal(signal.SIGRTMIN)
    _STACKS.seek(0)
    return "\n".join([*found, _STACKS.read().decode(errors="replace")])


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
    # A child of this process that builds a program would hold the file open: "text file busy".
    write = ["sh", "-c", 'cat > "$0"; chmod 755 "$0"', str(script)]
    subprocess.run(write, input=SCRIPT.replace("ACT", act), text=True, check=True)
    monkeypatch.setenv("CC", str(script))
