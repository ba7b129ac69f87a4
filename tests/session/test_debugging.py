"""Tests PopART's names for where things were made."""

from __future__ import annotations

import popgraph.session as popart
from popgraph.builder.popart.builder import Builder
from popgraph.session.debugging import (
    DebugContext,
    DebugInfo,
    NumIOTiles,
    OutOfMemoryError,
    SourceLocation,
)


def test_a_context_names_an_input_in_all_its_forms() -> None:
    place = SourceLocation("f", "program.py", 3)
    info = DebugInfo(DebugContext("layer"), "framework")
    for context in (DebugContext("x"), DebugContext("x", place), DebugContext(info, "x")):
        assert Builder().addInputTensor("FLOAT", [1], context) == "x"
    assert Builder().addInputTensor("FLOAT", [1], DebugContext()) == "input"
    assert DebugContext("x", place) == DebugContext(name="x", loc=place) != DebugContext("x")


def test_infos_have_numbers_and_values() -> None:
    one, other = DebugInfo("x", "framework"), DebugInfo("x", "framework")
    one.setValue("key", "value")
    assert one.values == {"key": "value"}
    assert one.getId() != other.getId()


def test_names_that_ask_for_nothing() -> None:
    assert (NumIOTiles(), NumIOTiles(32)) == (0, 32)
    assert OutOfMemoryError().isSuccessful()
    assert repr(OutOfMemoryError()) == "popart.OutOfMemoryError: No memory_allocation_err raised"
    popart.initializePoplarDebugInfo("infos.json", "json")
    popart.closePoplarDebugInfo()
