"""Tests PopART's functions that raise errors, and its error classes."""

from __future__ import annotations

import pytest

import popgraph.popart as popart
from popgraph.builder.opset import enums
from popgraph.engine import errors
from popgraph.popart import exceptions
from popgraph.support.errors import UnsupportedError


@pytest.mark.parametrize(
    ("name", "kind", "base"),
    [
        ("popart_error", exceptions.popart_exception, Exception),
        (
            "popart_internal_error",
            exceptions.popart_internal_exception,
            exceptions.popart_exception,
        ),
        ("popart_runtime_error", exceptions.popart_runtime_error, exceptions.popart_exception),
        ("poplibs_error", exceptions.poplibs_exception, Exception),
        ("poplar_error", exceptions.poplar_exception, Exception),
        ("poplar_runtime_error", exceptions.poplar_runtime_error, exceptions.poplar_exception),
        (
            "application_runtime_error",
            exceptions.poplar_application_runtime_error,
            exceptions.poplar_runtime_error,
        ),
        (
            "system_runtime_error",
            exceptions.poplar_system_runtime_error,
            exceptions.poplar_runtime_error,
        ),
        (
            "recoverable_runtime_error",
            exceptions.poplar_recoverable_runtime_error,
            exceptions.poplar_system_runtime_error,
        ),
        (
            "unrecoverable_runtime_error",
            exceptions.poplar_unrecoverable_runtime_error,
            exceptions.poplar_system_runtime_error,
        ),
        (
            "unknown_runtime_error",
            exceptions.poplar_unknown_runtime_error,
            exceptions.poplar_system_runtime_error,
        ),
    ],
)
def test_each_kind_of_error_is_raised_with_its_message(
    name: str, kind: type[Exception], base: type[Exception]
) -> None:
    with pytest.raises(base) as raised:
        getattr(popart, f"_throw_{name}")("some words")
    assert type(raised.value) is kind
    assert raised.value.args[0] == "some words"


def test_a_recoverable_error_names_the_recovery() -> None:
    kind = "recoverable_runtime_error"
    with pytest.raises(exceptions.poplar_recoverable_runtime_error) as raised:
        getattr(popart, f"_throw_{kind}")("reset")
    assert raised.value.recoveryAction is enums.RecoveryAction.IPU_RESET


def test_gradient_operators_are_listed_on_request() -> None:
    public = popart.getSupportedOperations(False)
    everything = popart.getSupportedOperations(True)
    assert set(public) < set(everything)
    assert popart.OperatorIdentifier("ai.graphcore", "ReluGrad", 1) in everything
    definitions = popart.getSupportedOperationsDefinition
    assert len(definitions(True)) > len(definitions(False))


ENGINE_ERRORS = [
    errors.UnknownOutputError("y", {"x"}),
    errors.UnknownWeightError("w"),
    errors.WeightBytesError("w", 4, 8),
    errors.WeightShapeError("w", (1,), (2,)),
    errors.WeightTypeError("w"),
]


def test_every_error_of_the_engine_has_a_popart_message() -> None:
    kinds = {one for one in vars(errors).values() if isinstance(one, type)}
    own = {one for one in kinds if one.__module__ == errors.__name__}
    assert {type(one) for one in ENGINE_ERRORS} == {one for one in own if not one.__subclasses__()}
    for error in ENGINE_ERRORS:
        with pytest.raises(exceptions.popart_exception) as raised, exceptions.as_popart_errors():
            raise error
        assert type(raised.value).__module__ == exceptions.__name__
        assert raised.value.what != error.what


@pytest.mark.parametrize("where", ["groups", "ranks", "replicas", "stages"])
def test_option_names_of_the_engine_are_those_of_sessions(where: str) -> None:
    with pytest.raises(popart.popart_exception) as raised, exceptions.as_popart_errors():
        raise UnsupportedError("not together", where, "accumulate")
    assert type(raised.value) is exceptions.popart_unsupported_exception
    assert raised.value.where != where
    assert raised.value.hint == "options.enableGradientAccumulation = True"
