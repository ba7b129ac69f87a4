"""Tests each version of each operator in all element types that it admits."""

from __future__ import annotations

from collections import Counter

import pytest

from popgraph.conformance.outcome import Status
from tests.every_type import pairs, schemas
from tests.sampling import share
from tests.type_outcomes import excuse, in_c, is_bad, measured

SHARES = 60
"""A run takes every sixtieth operator, `make test-all` all of them."""
AT_LEAST = 8300
"""Number of (version, type) pairs that pass if all are tested; raise it when more do."""


def operators() -> list[str]:
    return sorted({f"{one.domain}.{one.name}".lstrip(".") for one in schemas()})


def test_types_are_computed_as_schemas_say() -> None:
    """Runs types on the reference backend, and passing ones in C, too."""
    taken = set(share("every type", operators(), SHARES))
    found = [
        outcome
        for schema in schemas()
        if f"{schema.domain}.{schema.name}".lstrip(".") in taken
        for variable, type_ in pairs(schema)
        if (outcome := measured(schema, variable, type_, "reference")) is not None
    ]
    passed = [one.trial for one in found if one.status == Status.PASSED]
    compiled = list(in_c(passed))
    print(Counter(one.status.value for one in found), Counter(one.status.value for one in compiled))
    unexpected = [
        one for one in found if is_bad(one) and not excuse(one.trial.operator, one.trial.type)
    ]
    unexpected += filter(is_bad, compiled)
    assert not unexpected, "\n".join(f"{one.trial.title}: {one.reason}" for one in unexpected)
    assert len(taken) < len(operators()) or len(passed) >= AT_LEAST


def test_a_wrong_result_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test can fail: plants an Abs that returns its input."""
    monkeypatch.setattr(
        "popgraph.dialects.graphcore.functions.AbsOp.evaluate", lambda _, x: (x,), raising=True
    )
    (schema,) = (one for one in schemas() if one.name == "Abs" and one.since_version == 13)
    outcome = measured(schema, "T", "tensor(int8)", "reference")
    assert outcome is not None and outcome.status == Status.WRONG
