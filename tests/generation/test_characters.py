"""Tests that the language model example learns its text and writes a line of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples/characters.py"


def test_the_example_writes_a_line_of_its_text(tmp_path: Path) -> None:
    """The example itself compares the tokens with and without a cache."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(EXAMPLE.parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "\n better than ugly.\n" in done.stdout
