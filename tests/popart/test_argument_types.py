"""Tests that arguments of wrong types raise TypeErrors with the messages of PopART's binding."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import fields
from enum import Enum
from inspect import Parameter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from popgraph.builder.opset.enums import PopartEnum
from popgraph.compat import popart as compatible
from popgraph.popart.surface import entries
from popgraph.support.argument_types import admits, anything, resolved

popart: Any = compatible
"""PopART's module, untyped, since tests call it with wrong types."""

WORDS = r"^\w*\(\): incompatible (function|constructor) arguments\. The following argument types"


class Wrong:
    """A type that no parameter accepts."""


def network() -> popart.Builder:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 2], "x")
    w = builder.addInitializedInputTensor(np.ones((2, 2), np.float32), "w")
    builder.addOutputTensor(builder.aiGraphcore.l1loss([builder.aiOnnx.matmul([x, w])], 1.0))
    return builder


BUILDER = network()
(LOSS,) = BUILDER.getOutputTensorIds()
MODEL = BUILDER.getModelProto()
CPU = popart.DeviceManager().createCpuDevice()
FLOW = popart.DataFlow(1, [LOSS])
MADE: list[Any] = [
    BUILDER,
    popart.InferenceSession(MODEL, FLOW, CPU),
    popart.TrainingSession(MODEL, FLOW, LOSS, popart.ConstSGD(0.1), CPU),
    BUILDER.aiGraphcore,
    *(popart.Builder(opsets={"ai.onnx": version}).aiOnnx for version in range(6, 12)),
    *(popart.SGD({}), popart.ConstSGD(0.1), popart.Adam({}), popart.Adaptive({})),
    *(FLOW, popart.AnchorReturnType("All"), CPU, popart.TensorInfo("FLOAT", [2])),
    *(popart.GraphTransformer(MODEL), popart.PyStepIO({}, {}), popart.PyWeightsIO({})),
    popart.PyStepIOCallback(print, print, print, print),
    popart.SGD({}).learningRates(),
    popart.OperatorIdentifier("ai.onnx", "Add", 1),
    popart.ClipNormSettings.clipAllWeights(1.0),
    popart.getLogger("session"),
    *(popart.L1Loss("x", "y", 0.1), popart.NllLoss("x", "l", "y"), popart.IdentityLoss("x", "y")),
]
"""Instances whose methods are called with wrong arguments."""

OWN = {
    *("Adam.mode_of", "Adaptive.mode_of"),
    *(
        f"{io}.{name}"
        for io in ("PyStepIO", "PyStepIOCallback")
        for name in ("check", "are_contiguous", "read", "write")
    ),
    "AnchorReturnType.keeps",
    *("AnchorReturnType.prefix", "AttributeContextManager()", "KeyValueContextManager()"),
    *("NameContextManager()", "AiGraphcoreOpset1()"),
    *("L1Loss.placed", "NllLoss.placed", "IdentityLoss.placed"),
}
"""Members that PopART lacks, or whose instances only the builder creates."""

OTHERWISE = {
    ("TensorInfo()", "args"): "Can not create TensorInfo with args",
    ("InferenceSession.resetHostWeights", "modelProtoOrFilename"): "Cannot call resetHostWeights",
    ("TrainingSession.resetHostWeights", "modelProtoOrFilename"): "cannot read a model from Wrong",
    ("Builder()", "modelProtoOrFilename"): "cannot read a model from Wrong",
    ("InferenceSession()", "fnModel"): "InferenceSession(): the argument dataFlow is missing",
    ("TrainingSession()", "fnModel"): "TrainingSession(): the argument dataFlow is missing",
}
"""Messages of other forms: from PopART's own Python code, or since models have many forms here."""

ABSTRACT = (popart.Optimizer, popart.StepIO, popart.Loss)


def classes() -> Iterator[type]:
    for entry in entries():
        thing = None if entry.owner else getattr(popart, entry.name)
        is_plain = inspect.isclass(thing) and not issubclass(thing, BaseException | PopartEnum)
        if is_plain and thing not in (popart.NumIOTiles, *ABSTRACT):
            yield thing


def object_of(kind: type) -> Any:
    """An instance of `MADE`, or an uninitialized one: arguments are checked before the instance."""
    made = next((one for one in MADE if type(one) is kind), None)
    if made is not None:
        return made
    try:
        return kind()
    except TypeError:
        return kind.__new__(kind)


def functions() -> Iterator[tuple[str, Any]]:
    """Every public function, constructor and method of PopART."""
    for entry in entries():
        thing = None if entry.owner else getattr(popart, entry.name)
        if inspect.isfunction(thing):
            yield entry.name, thing
    for kind in classes():
        yield f"{kind.__name__}()", kind
        made = object_of(kind)
        for name, member in inspect.getmembers(kind, callable):
            if name.startswith("_") or isinstance(member, type):
                continue
            yield f"{kind.__name__}.{name}", getattr(made, name)


def sample(kind: Any) -> Any:
    """A value that a parameter accepts."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return next(iter(kind))
    found = ["x", 1, 1.0, {}, [], print, *MADE, np.ones(1)]
    return next((one for one in found if admits(kind)(one)), None)


def calls() -> Iterator[tuple[str, str, Callable[[], object]]]:
    """Every function with one wrong argument, and valid values for the others."""
    for name, function in functions():
        if name in OWN:
            continue
        called = inspect.unwrap(function.__init__ if isinstance(function, type) else function)
        names = getattr(called, "__globals__", {})
        parameters = [
            one for one in inspect.signature(function).parameters.values() if one.name != "self"
        ]
        kinds = {one.name: resolved(one.annotation, names) for one in parameters}
        for wrong in parameters:
            kind = kinds[wrong.name]
            is_all = wrong.kind is Parameter.VAR_POSITIONAL and len(parameters) <= 2
            if not is_all and (kind is Parameter.empty or admits(kind) is anything):
                continue
            given = {
                one.name: sample(kinds[one.name])
                for one in parameters
                if one.default is Parameter.empty and "VAR" not in one.kind.name
            }
            if any(value is None for value in given.values()):
                continue  # Only PopGraph itself can provide such a value.
            args = [Wrong()] if wrong.kind is Parameter.VAR_POSITIONAL else []
            named = given if args else given | {wrong.name: Wrong()}
            yield name, wrong.name, lambda f=function, a=args, n=named: f(*a, **n)


CALLS = list(calls())


def test_many_functions_are_called() -> None:
    assert len(CALLS) > 900


@pytest.mark.parametrize("owner", sorted({name.split(".")[0] for name, _, _ in CALLS}))
def test_wrong_arguments_have_the_messages_of_the_binding(owner: str) -> None:
    for name, parameter, call in CALLS:
        if name.split(".")[0] == owner:
            words = OTHERWISE.get((name, parameter), WORDS)
            errors = TypeError if words is WORDS else Exception
            with pytest.raises(errors, match=words):
                print(name, parameter, call())


@pytest.mark.parametrize(
    "kind",
    [kind for kind in classes() if "__dataclass_fields__" in vars(kind)],
    ids=lambda kind: kind.__name__,
)
def test_attributes_have_their_types(kind: type) -> None:
    for one in fields(kind):
        with pytest.raises((TypeError, AttributeError)):
            setattr(object_of(kind), one.name, Wrong())
            print(one.name)


def test_values_of_settings_are_converted_to_their_type() -> None:
    options = popart.SessionOptions()
    options.accumulationFactor = np.int64(4)
    options.outlineThreshold = 2
    options.enableOutlining = 0
    options.explicitRecomputation = None
    assert type(options.accumulationFactor) is int
    assert type(options.outlineThreshold) is float
    assert options.enableOutlining is False
    assert options.explicitRecomputation is False


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("accumulationFactor", 2.0),
        ("accumulationFactor", "2"),
        ("outlineThreshold", "1"),
        ("enableOutlining", "yes"),
        ("engineOptions", {"a": 1}),
        ("engineOptions", [("a", "b")]),
        ("virtualGraphMode", 1),
        ("virtualGraphSplitRatios", "12"),
        ("virtualGraphSplitRatios", [None]),
        ("dotChecks", ["FINAL"]),
        ("hardwareInstrumentations", {0}),
        ("logDir", Path("log")),
        ("weightTensorLocationSettings", popart.TensorStorage.OnChip),
    ],
)
def test_settings_of_wrong_types_keep_the_old_value(name: str, value: object) -> None:
    options = popart.SessionOptions()
    with pytest.raises(TypeError, match=r"1\. \(self: SessionOptions, arg0: "):
        setattr(options, name, value)
    assert getattr(options, name) == getattr(popart.SessionOptions(), name)


def test_messages_name_the_signature_and_the_arguments() -> None:
    with pytest.raises(TypeError) as caught:
        popart.DataFlow("1", anchorTensors=[])
    assert str(caught.value).splitlines() == [
        "__init__(): incompatible constructor arguments. The following argument types are "
        "supported:",
        "    1. DataFlow(batchesPerStep: int, anchorTensors: Mapping[str, AnchorReturnType] | "
        "Iterable[str] = (), anchorReturnType: AnchorReturnType | None = None, *, "
        "anchorIds: Iterable[str] | None = None)",
        "",
        "Invoked with: '1'; kwargs: anchorTensors=[]",
    ]
