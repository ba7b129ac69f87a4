"""Operators without a gradient, with reasons."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from popgraph.dialects.onnx import all_schemas
from popgraph.dialects.onnx.record import record_of
from popgraph.operators.record import HOSTED, WITH_ZERO
from popgraph.passes.onnx.operator_ways import Row, Way, rows


class Flow(StrEnum):
    """Whether an operator has a gradient."""

    ALL = "by all inputs that can have one"
    SOME = "by some of its inputs"
    ZERO = "zero"
    """The result is locally constant, so training gets no information."""
    NONE = "none"


MOVES = "yes"
"""The measured slope of a result that changes with an input."""


def flows(slopes: Mapping[str, Mapping[str, str]]) -> dict[str, tuple[Flow, str]]:
    """The gradient of every supported operator, with the reason if it has none, by title."""
    latest = {row.title: row for row in rows()}
    return {
        title: (flow(row, slopes.get(title, {})), reason(row))
        for title, row in latest.items()
        if row.way != Way.REMOVED or title in slopes
    }


def flow(row: Row, slopes: Mapping[str, str]) -> Flow:
    """Whether an operator has a gradient, given measured slopes of its inputs."""
    if MOVES in slopes.values():
        return Flow.ALL if set(slopes.values()) == {MOVES} else Flow.SOME
    why = reason(row)
    if why:
        return Flow.ZERO if slopes or why in WITH_ZERO else Flow.NONE
    return Flow.ALL


def reason(row: Row) -> str:
    """The reason why an operator has no gradient; "" if it has one."""
    record = record_of(row.domain, row.name)
    if record is not None and record.without_gradient:
        return record.without_gradient
    if not _is_of_floats(row):
        return "it takes or gives no floats"
    match row.way:
        case Way.HOST:
            return HOSTED
        case Way.NONE:
            return "it is not computed yet"
        case Way.REMOVED:
            return "ONNX has removed it from this version"
        case _:
            return ""


FLOATS = ("tensor(float)", "tensor(double)", "tensor(float16)")


def _is_of_floats(row: Row) -> bool:
    """Whether the latest schema has float inputs and outputs, sequences included."""
    known = [one for one in all_schemas() if (one.domain, one.name) == (row.domain, row.name)]
    if not known or row.name == "If":
        return True
    schema = max(known, key=lambda one: one.since_version)
    return all(
        any(name in text for one in formals for text in one.types for name in FLOATS)
        for formals in (schema.inputs, schema.outputs)
    )
