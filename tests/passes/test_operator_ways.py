"""Tests that the table of operators is complete, unique, and agrees with docs/operators.json."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from onnx import defs

from popgraph.conformance.outcome import Computed, Status
from popgraph.dialects.onnx import all_schemas
from popgraph.operators.record import defined_operators, supported_operators
from popgraph.passes.onnx.operator_ways import Way, rows, way_of

RECORD = Path(__file__).parents[2] / "docs" / "operators.json"


def test_every_operator_version_is_in_one_row() -> None:
    listed = [
        (row.domain, row.name, version)
        for row in rows()
        for version in row.versions
        if (row.domain, row.name) not in defined_operators() and row.domain != "ai.graphcore"
    ]
    assert len(set(listed)) == len(listed)
    assert set(listed) == {(one.domain, one.name, one.since_version) for one in all_schemas()}
    assert {(row.domain, row.name) for row in rows()} >= {
        *supported_operators(),
        *defined_operators(),
    }


def test_the_record_has_types_of_all_operators() -> None:
    """Most admitted types work, and each of the others has a reason."""
    types = json.loads(RECORD.read_text())["types"]
    ways = {row.title: row.way for row in rows() if row.domain in ("", "ai.onnx.ml")}
    assert types.keys() <= ways.keys()
    assert len(types) > 210
    assert "i4" in types["Reshape"][0] and "f8e5m2" in types["Cast"][0]
    assert all(why for _, rest in types.values() for why in rest.values())


@pytest.mark.parametrize(
    ("name", "version", "way"),
    [
        ("Relu", 14, Way.LOWERING),
        ("Swish", 24, Way.FUNCTION),
        ("Attention", 23, Way.FUNCTION),
        ("RotaryEmbedding", 23, Way.FUNCTION),
        ("NonZero", 13, Way.BOUNDED),
        ("ImageDecoder", 20, Way.HOST),
        ("SequenceAt", 11, Way.LOWERING),
        ("StringConcat", 20, Way.HOST),
        ("GroupNormalization", 18, Way.LOWERING),
        ("Scatter", 11, Way.REMOVED),
        ("HardSigmoid", 6, Way.FUNCTION),
        ("HardSigmoid", 1, Way.FUNCTION),
        ("MaxRoiPool", 1, Way.LOWERING),
    ],
)
def test_ways_of_operators(name: str, version: int, way: Way) -> None:
    assert way_of(defs.get_schema(name, version, "")) == way


def test_the_record_agrees_with_the_ways_of_operators() -> None:
    """Operators that pass ONNX's tests have a way, and most operators in C pass some tests."""
    operators = json.loads(RECORD.read_text())["operators"]
    ways = {row.title: row.way for row in rows()}
    assert len(operators) > 150
    passing = {name for name, (cases, _) in operators.items() if cases.keys() & set(Computed)}
    assert not {name for name in passing if ways[name] == Way.NONE}
    known = {*Computed, Status.SKIPPED}
    assert not [name for name, (cases, _) in operators.items() if cases.keys() - known]
    hosts = {
        name
        for name, (cases, _) in operators.items()
        if cases.keys() & {Computed.HOST, Computed.MIXED}
    }
    assert not [name for name in hosts if ways[name] != Way.HOST]


def test_every_operator_has_a_way() -> None:
    assert not [row.title for row in rows() if row.way == Way.NONE]
