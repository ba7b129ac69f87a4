"""Tests that unknown argument names, and values of other types, are errors that say so."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

import popgraph
from popgraph import callbacks
from popgraph.support.errors import ArgumentError
from popgraph.training.keras_names import EvaluateNames, FitNames, PredictNames

PUBLIC: dict[str, Callable[..., Any]] = {
    name: value
    for name in dir(popgraph)
    if inspect.isfunction(value := getattr(popgraph, name))
    and any(one.kind == one.KEYWORD_ONLY for one in inspect.signature(value).parameters.values())
}
KERAS = {"fit": FitNames, "predict": PredictNames, "evaluate": EvaluateNames}
METHODS = {name: getattr(popgraph.Trainer, name) for name in ("fit", "predict", "evaluate")}


def test_public_functions_are_found() -> None:
    assert {"compile", "train", "generate", "view"} <= PUBLIC.keys()


@pytest.mark.parametrize("name", [*PUBLIC, "Trainer", "Decoder", *METHODS])
def test_unknown_arguments_are_named(name: str) -> None:
    called = METHODS.get(name) or getattr(popgraph, name)
    known = [one for one in inspect.signature(called).parameters if one != "self"]
    if name in METHODS:
        known = [*known[:-1], *KERAS[name].__annotations__]
    with pytest.raises(ArgumentError) as failure:
        called(**{f"{known[-1]}s": 1})
    assert f"has no argument '{known[-1]}s'" in str(failure.value)
    assert f"did you mean {known[-1]!r}? it has {', '.join(known)}" in str(failure.value)
    assert isinstance(failure.value, TypeError | popgraph.PopgraphError)


def test_names_of_other_frameworks_are_recognized() -> None:
    with pytest.raises(ArgumentError, match="did you mean 'batch'"):
        popgraph.train("model.onnx", {}, batch_size=5)  # type: ignore[call-arg]


@pytest.mark.parametrize("call", [popgraph.compile, popgraph.train, popgraph.Trainer])
def test_missing_arguments_are_python_s_errors(call: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match="missing"):
        call()


CALLED = {**PUBLIC, "Trainer": popgraph.Trainer, "Decoder": popgraph.Decoder}
CALLED |= {
    name: getattr(callbacks, name)
    for name in callbacks.__all__
    if inspect.signature(getattr(callbacks, name)).parameters
}
CALLED |= {one.__name__: one for one in (popgraph.Options, popgraph.Machine, popgraph.Tuning)}
SWITCHES = [
    (name, one)
    for name, called in CALLED.items()
    for one, parameter in inspect.signature(called).parameters.items()
    if parameter.annotation in ("bool", "bool | None")
]


def test_switches_are_found() -> None:
    assert {
        *(("compile", "quick"), ("Trainer", "quick"), ("quantize", "per_channel")),
        *(("EarlyStopping", "restore_best_weights"), ("ExponentialDecay", "staircase")),
        *(("Options", "winograd"), ("Machine", "fuses_multiply_add")),
    } < {*SWITCHES}


@pytest.mark.parametrize(("name", "argument"), SWITCHES)
def test_a_text_is_no_switch(name: str, argument: str) -> None:
    """A text such as "no" would count as true."""
    required = {
        one: 1 if parameter.annotation == "float" else "net.pgraph"
        for one, parameter in inspect.signature(CALLED[name]).parameters.items()
        if parameter.default is parameter.empty
    }
    with pytest.raises(ArgumentError) as caught:
        CALLED[name](**required, **{argument: "no"})
    assert caught.value.where in (argument, f"{name}.{argument}")
    assert "not 'no' (str)" in caught.value.what and "default" in caught.value.hint


@pytest.mark.parametrize("kind", [popgraph.Options, popgraph.Machine, popgraph.Tuning])
def test_fields_of_another_type_are_named(kind: Any) -> None:
    """Without a check, they end in an AttributeError in some pass."""
    for one in fields(kind):
        with pytest.raises(ArgumentError) as caught:
            kind(**{one.name: Wrong()})
        assert caught.value.where == f"{kind.__name__}.{one.name}"


class Wrong:
    """A type that no field accepts."""


def test_passes_are_disabled_by_a_list_or_a_set() -> None:
    for names in (["fuse-elementwise"], {"fuse-elementwise"}):
        made = popgraph.Options(disabled=names)  # type: ignore[arg-type]
        assert made.disabled == frozenset(names)
    with pytest.raises(ArgumentError, match="disabled is frozenset of str, not 'cse'"):
        popgraph.Options(disabled="cse")  # type: ignore[arg-type]
