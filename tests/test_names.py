"""Tests the suggestions for misspelt names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import popgraph
from popgraph.builder.pgraph import parse
from popgraph.support.errors import PopgraphError
from popgraph.support.names import closest


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("relu", ["Selu", "Relu", "Elu"], "Relu"),
        ("AXIS", ["input", "axis"], "axis"),
        ("Relu", ["relu", "Rely"], "relu"),
        ("Rellu", ["Selu", "Relu"], "Relu"),
        ("frobnicate", ["x", "y"], ""),
    ],
)
def test_closest_ignores_case(name: str, known: list[str], meant: str) -> None:
    assert closest(name, known) == meant


def test_names_are_compared_in_one_place() -> None:
    files = Path(popgraph.__file__).parent.rglob("*.py")
    assert [file.name for file in files if "get_close_matches" in file.read_text()] == ["names.py"]


@pytest.mark.parametrize(
    ("graph", "meant"),
    [
        ("(x: f32[2]) -> y { y = relu(x) }", "the closest name is Relu"),
        ("(X: f32[2]) -> y { y = Relu(x) }", "did you mean `X`?"),
        ("(x: f32[2]) -> y { y = Softmax(x, AXIS=0) }", "did you mean `axis`?"),
    ],
)
def test_texts_with_wrong_case_get_the_right_name(graph: str, meant: str) -> None:
    with pytest.raises(PopgraphError, match=re.escape(meant)):
        parse(f"graph g{graph}")
