"""Runs the command `python -m popgraph.compat` in the process of a test, and restores its state."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from popgraph.compat import children, libraries
from popgraph.compat.__main__ import main

VARIABLES = (children.ERA_VARIABLE, children.PASSED_ERA_VARIABLE, children.LOAD_VARIABLE)


def run_command(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    """Runs the command with the arguments of a command line."""
    for variable in VARIABLES:
        monkeypatch.setenv(variable, "")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    monkeypatch.setattr(libraries, "LOADED", list(libraries.LOADED))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", ["popgraph.compat", *arguments])
    main()
