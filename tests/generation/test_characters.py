"""Tests that the example of a language model learns its text and writes it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples/characters.py"


def test_the_example_writes_a_line_of_its_text(tmp_path: Path) -> None:
    """It compares the tokens with and without a cache itself."""
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
