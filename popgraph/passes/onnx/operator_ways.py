"""The implementation of each operator of ONNX, PopART and onnxruntime, by versions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from popgraph.dialects.onnx import all_schemas, is_removed
from popgraph.dialects.onnx.custom import OWN
from popgraph.dialects.onnx.schema_facts import (
    NOT_COMPILED,
    Schema,
    bodies,
    is_of_containers,
    latest,
    types_of,
)
from popgraph.operators.record import defined_operators, lowered_operators, lowering_of
from popgraph.passes.onnx.partition import BOUNDED, DATA_DECIDE_SIZES
from popgraph.support.extensions import provider_of


class Way(StrEnum):
    """The implementation of an operator."""

    LOWERING = "own lowering"
    FUNCTION = "ONNX's function"
    DEFINITION = "defined by ONNX's operators"
    BOUNDED = "own lowering, up to a bound"
    HOST = "host step"
    REMOVED = "removed by ONNX"
    NONE = "not yet"

    @property
    def is_compiled(self) -> bool:
        return self in (Way.LOWERING, Way.FUNCTION, Way.DEFINITION, Way.BOUNDED)


@dataclass(frozen=True)
class Row:
    """Consecutive versions of an operator with the same implementation."""

    domain: str
    name: str
    versions: tuple[int, ...]
    way: Way
    types: tuple[str, ...]
    """
    Element types of the first input, or of the output without inputs; () without a schema. The
    latest version has all types of older ones.
    """
    provider_of: str = ""
    """The distribution or module of the extension that provides it."""

    @property
    def title(self) -> str:
        return f"{self.domain}.{self.name}" if self.domain else self.name


def rows() -> list[Row]:
    """All known operators, sorted by domain and name."""
    found: list[Row] = []
    for schema in all_schemas():
        way, types = way_of(schema), types_of(latest(schema))
        if way.is_compiled:
            types = tuple(one for one in types if one not in NOT_COMPILED)
        one = Row(schema.domain, schema.name, (schema.since_version,), way, types)
        last = found[-1] if found else None
        if last and _without_versions(last) == _without_versions(one):
            found[-1] = Row(one.domain, one.name, last.versions + one.versions, one.way, one.types)
        else:
            found.append(one)
    standard = {(schema.domain, schema.name) for schema in all_schemas()}
    others = {
        key: Way.LOWERING for key in lowered_operators() if key not in standard and key[0] != OWN
    }
    others |= dict.fromkeys(defined_operators(), Way.DEFINITION)
    found += [Row(*key, (1,), way, (), _bringer(*key)) for key, way in others.items()]
    return sorted(found, key=lambda row: (row.domain, row.name, row.versions))


def _bringer(domain: str, name: str) -> str:
    lowering = lowering_of(domain, name)
    return "" if lowering is None else provider_of(lowering.__module__)


def _without_versions(row: Row) -> tuple[object, ...]:
    return row.domain, row.name, row.way, row.types


@cache
def way_of(schema: Schema) -> Way:
    """The implementation of one version of an ONNX operator."""
    key = (schema.domain, schema.name)
    if is_removed(schema):
        return Way.REMOVED
    if lowering_of(*key) is not None:
        return Way.LOWERING
    if schema.domain == "" and schema.name in BOUNDED:
        return Way.BOUNDED
    if schema.domain == "" and schema.name in DATA_DECIDE_SIZES:
        return Way.HOST
    if _has_body(schema):
        return Way.FUNCTION
    return Way.HOST if is_of_containers(schema) else Way.NONE


def _has_body(schema: Schema) -> bool:
    """Whether ONNX defines an operator by bodies, and at least one of them can be computed."""
    return any(all(map(_is_computed, body)) for body in bodies(schema))


def _is_computed(schema: Schema) -> bool:
    is_constant = schema.domain == "" and schema.name == "Constant"
    return is_constant or way_of(schema) in (Way.LOWERING, Way.FUNCTION)
