"""PopART's lists of operators: which are supported, with inputs, outputs and attributes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from popgraph.builder.opset.arguments import typed
from popgraph.builder.opset.enums import DataType
from popgraph.builder.opset.graphcore_operator import DOMAIN
from popgraph.dialects.onnx import all_schemas, is_removed
from popgraph.operators.record import defined_operators, supported_operators
from popgraph.popart.ir import gradient_types
from popgraph.popart.model.aborts import ABORT


@typed
@dataclass(frozen=True)
class OperatorIdentifier:
    """One version of an operator."""

    domain: str
    type: str
    version: int


@typed
def getSupportedOperations(includeInternal: bool = False) -> list[OperatorIdentifier]:
    """
    Every version of every supported operator.

    Internal operators are gradients, which occur only in `getIr`.
    """
    public = [
        OperatorIdentifier(domain or "ai.onnx", name, number)
        for (domain, name), versions in supported_operators().items()
        for number in versions
    ]
    public += [
        OperatorIdentifier(*key, 1) for key in (ABORT, *defined_operators()) if key[0] == DOMAIN
    ]
    internal = sorted(gradient_types()) if includeInternal else []
    return public + [OperatorIdentifier("ai.graphcore", name, 1) for name in internal]


@typed
def getUnsupportedOperations(opsetVersion: int) -> list[OperatorIdentifier]:
    """The unsupported operators of an ai.onnx version."""
    known = set(supported_operators())
    newest: dict[str, int] = {}
    for schema in all_schemas():
        if schema.domain or is_removed(schema) or schema.since_version > opsetVersion:
            continue
        newest[schema.name] = max(newest.get(schema.name, 0), schema.since_version)
    return [
        OperatorIdentifier("ai.onnx", name, number)
        for name, number in sorted(newest.items())
        if ("", name) not in known
    ]


@dataclass(frozen=True)
class _Input:
    name: str
    supportedTensors: list[DataType]
    constant: bool = False


@dataclass(frozen=True)
class _Output:
    name: str
    supportedTensors: list[DataType]


@dataclass(frozen=True)
class _Attribute:
    supportedValuesRegex: str = "*"


@typed
@dataclass(frozen=True)
class OpDefinition:
    """Inputs and outputs in order with their allowed element types, and attributes."""

    Input: ClassVar = _Input
    Output: ClassVar = _Output
    Attribute: ClassVar = _Attribute

    inputs: list[_Input] = field(default_factory=list)
    outputs: list[_Output] = field(default_factory=list)
    attributes: dict[str, _Attribute] = field(default_factory=dict)


@typed
def getSupportedOperationsDefinition(
    includeInternal: bool = False,
) -> dict[OperatorIdentifier, OpDefinition]:
    """The schema of each supported operator; empty for operators that ONNX does not define."""
    schemas = {(one.domain or "ai.onnx", one.name, one.since_version): one for one in all_schemas()}
    found = {}
    for identifier in getSupportedOperations(includeInternal):
        key = (identifier.domain, identifier.type, identifier.version)
        found[identifier] = _of_schema(schemas[key]) if key in schemas else OpDefinition()
    return found


def _of_schema(schema: Any) -> OpDefinition:
    return OpDefinition(
        [_Input(one.name, _types(one.types)) for one in schema.inputs],
        [_Output(one.name, _types(one.types)) for one in schema.outputs],
        {name: _Attribute() for name in schema.attributes},
    )


def _types(texts: Sequence[str]) -> list[DataType]:
    """PopART's data types among the allowed types of a schema."""
    names = [one.removeprefix("tensor(").removesuffix(")").upper() for one in sorted(texts)]
    return [DataType[name] for name in names if name in DataType.__members__]
