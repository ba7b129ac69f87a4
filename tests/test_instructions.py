"""Tests that instruction counts of generated code do not grow."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent.parent / "benchmarks"))
from instructions import (
    MODELS,
    STORED,
    TOLERANCE,
    compiler,
    instructions,
    obstacle,
    static_count,
)

KEPT = json.loads(STORED.read_text())
ADVICE = "if it is worth it: python benchmarks/instructions.py --write"


@pytest.mark.parametrize("name", MODELS)
def test_kernels_have_no_more_operations(name: str) -> None:
    """The sum of operations, since a good change may store more in order to compute less."""
    kept, found = KEPT["static"][name]["instructions"], static_count(name)["instructions"]
    assert found <= kept * (1 + TOLERANCE), f"{found} operations, not {kept}; {ADVICE}"


@pytest.mark.parametrize("name", MODELS)
def test_programs_execute_no_more_instructions(name: str) -> None:
    if obstacle():
        pytest.skip(obstacle())
    if compiler() != KEPT["compiler"]:
        pytest.skip(f"the counts are those of {KEPT['compiler']}, this is {compiler()}")
    kept, found = KEPT["instructions"][name], instructions(name)
    assert found <= kept * (1 + TOLERANCE), f"{found} instructions, not {kept}; {ADVICE}"
