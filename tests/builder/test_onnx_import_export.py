"""Tests that ONNX's own test models survive import and export."""

from __future__ import annotations

import gc
from pathlib import Path

import onnx
import pytest
from onnx.backend.test.case.test_case import TestCase
from xdsl.context import Context
from xdsl.parser import Parser

from popgraph.builder.onnx.read import import_model
from popgraph.builder.onnx.write import export_model
from popgraph.conformance.cases import node_cases
from popgraph.dialects.program import WeightStore
from popgraph.dialects.registry import register

LIGHT = sorted(Path(onnx.__file__).parent.glob("backend/test/data/light/*.onnx"))


@pytest.fixture(scope="module")
def cases() -> list[TestCase]:
    found = list(node_cases())
    gc.freeze()  # Two million objects live until the end: each search for garbage would walk them.
    return found


@pytest.fixture(scope="module")
def context() -> Context:
    made = Context()
    register(made)
    return made


def differences(model: onnx.ModelProto, context: Context) -> str:
    """The first difference after a round trip through the IR and its text; empty if none."""
    store = WeightStore()
    module = import_model(model, store)
    module.verify()
    text = str(module)
    parsed = Parser(context, text).parse_module()
    parsed.verify()
    if not parsed.is_structurally_equivalent(module):
        return "the parsed module differs"
    if str(parsed) != text:
        return "the parsed module prints otherwise"
    if export_model(parsed, store) != model:
        return "the exported model differs"
    return ""


@pytest.mark.parametrize("part", range(8))
def test_every_node_test_comes_back_equal(
    cases: list[TestCase], context: Context, part: int
) -> None:
    assert len(cases) > 1500
    wrong = {}
    for case in cases[part::8]:
        try:
            found = differences(case.model, context)
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
        if found:
            wrong[case.name] = found
    assert wrong == {}


@pytest.mark.parametrize("path", LIGHT, ids=lambda path: path.stem)
def test_classic_networks_come_back_equal(path: Path, context: Context) -> None:
    assert differences(onnx.load(path), context) == ""
