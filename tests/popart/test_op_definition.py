"""Tests PopART's definitions of supported operators."""

from __future__ import annotations

from popgraph.builder.opset.enums import DataType
from popgraph.popart.operators import (
    OperatorIdentifier,
    getSupportedOperations,
    getSupportedOperationsDefinition,
)


def test_every_supported_operation_is_defined() -> None:
    found = getSupportedOperationsDefinition(False)
    assert list(found) == getSupportedOperations(False)
    assert len(found) > 500


def test_a_definition_is_that_of_the_schema() -> None:
    found = getSupportedOperationsDefinition(includeInternal=False)
    conv = found[OperatorIdentifier("ai.onnx", "Conv", 1)]
    assert [one.name for one in conv.inputs] == ["X", "W", "B"]
    assert [one.name for one in conv.outputs] == ["Y"]
    assert set(conv.inputs[0].supportedTensors) == {
        DataType.FLOAT,
        DataType.FLOAT16,
        DataType.DOUBLE,
    }
    assert {"kernel_shape", "pads", "strides"} <= set(conv.attributes)
