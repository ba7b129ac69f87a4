"""Tests that nodes that break a constraint of their operator are refused."""

from __future__ import annotations

import pytest
from onnx import defs

import popgraph
from popgraph.operators.record import supported_operators
from popgraph.support.errors import PopgraphError, UnsupportedError
from tests.dialects.broken_nodes import NODES, Broken, model_of, row

WITHOUT_NUMBERS = {"SequenceMap"}
"""Operators that ONNX defines by functions and that take no tensors."""


def operators() -> list[str]:
    """Operators that compile: by a lowering, or by a function body of ONNX."""
    lowered = {f"{domain}.{name}" if domain else name for domain, name in supported_operators()}
    composed = {
        schema.name
        for schema in defs.get_all_schemas()
        if not schema.domain
        and not schema.deprecated
        and (schema.has_function or schema.has_context_dependent_function)
    }
    return sorted(lowered | composed - WITHOUT_NUMBERS)


CASES = [(name, place) for name in sorted(NODES) for place in range(len(NODES[name]))]


def test_every_operator_has_broken_nodes() -> None:
    assert sorted(NODES) == operators()


def refused(operator: str, node: Broken) -> PopgraphError:
    with pytest.raises(PopgraphError) as caught:
        popgraph.compile(model_of(operator, node), backend="reference")
    return caught.value


@pytest.mark.parametrize(("operator", "place"), CASES)
def test_a_broken_node_is_refused(operator: str, place: int) -> None:
    error = refused(operator, NODES[operator][place])
    assert not isinstance(error, UnsupportedError), error
    assert operator.rpartition(".")[2] in error.where


@pytest.mark.parametrize("operator", [name for name in sorted(NODES) if "." not in name])
def test_too_many_inputs_and_unknown_attributes_are_refused(operator: str) -> None:
    schema = defs.get_schema(operator)
    if schema.max_input < 1000:
        assert refused(operator, row("f32[2] " * (schema.max_input + 1), opset=28))
    assert refused(operator, row("f32[2]", no_such_attribute=1, opset=28))
