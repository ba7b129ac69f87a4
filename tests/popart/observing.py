"""Observes what options of a session and patterns change, on a few small models."""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Callable, Mapping
from contextlib import chdir
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import popgraph.popart as popart
from popgraph.support.memo import cached_property

BATCHES = 3
"""Batches of a step: the number of pipeline stages, including that of the loss."""
Given = tuple[tuple[str, Any], ...]


def _weight(builder: Any, rng: np.random.Generator, name: str, *shape: int, dtype: Any) -> str:
    values = (rng.normal(size=shape) * 0.5).astype(dtype)
    return str(builder.addInitializedInputTensor(values, name))


def _network(dtype: Any = np.float32, rows: int = 4, *, trains: bool = True) -> tuple[Any, str]:
    """A network with Conv, a norm, matmuls, Softmax and two stages; its loss takes class labels."""
    builder, rng = popart.Builder(), np.random.default_rng(1)
    named = "FLOAT16" if dtype is np.float16 else "FLOAT"

    def weight(name: str, *shape: int) -> str:
        return _weight(builder, rng, name, *shape, dtype=dtype)

    x = builder.addInputTensor(named, [rows, 2, 4, 4], "x")
    label = builder.addInputTensor("INT32", [rows], "label")
    with builder.virtualGraph(0), builder.pipelineStage(0), builder.executionPhase(0):
        y = builder.aiOnnx.conv([x, weight("kernel", 4, 2, 3, 3)], pads=[1, 1, 1, 1])
        (y, *_) = builder.aiGraphcore.groupnormalization(
            [y, weight("scale", 4), weight("shift", 4)], 2
        )
        shape = builder.aiOnnx.constant(np.array([rows, 64], np.int64))
        y = builder.aiOnnx.reshape([y, shape])
        y = builder.aiOnnx.relu([y])
    with builder.virtualGraph(1), builder.pipelineStage(1), builder.executionPhase(1):
        y = builder.aiOnnx.matmul([y, weight("w", 64, 3)])
        y = builder.aiOnnx.add([y, weight("b", 3)])
        y = builder.aiOnnx.softmax([y])
        if trains:
            y = builder.aiGraphcore.nllloss([y, label])
    return builder, y


def _infinite() -> tuple[Any, str]:
    """A model that computes the logarithm of negative numbers."""
    builder, rng = popart.Builder(), np.random.default_rng(1)
    x = builder.addInputTensor("FLOAT", [4, 8], "x")
    w = _weight(builder, rng, "w", 8, 8, dtype=np.float32)
    y = builder.aiOnnx.log([builder.aiOnnx.matmul([x, w])])
    return builder, builder.aiGraphcore.l1loss([y], 0.1)


def _drawing() -> tuple[Any, str]:
    """A model with random numbers and f16 rounding."""
    builder, rng = popart.Builder(), np.random.default_rng(1)
    x = builder.addInputTensor("FLOAT16", [4, 8], "x")
    y = builder.aiOnnx.matmul([x, _weight(builder, rng, "w", 8, 8, dtype=np.float16)])
    y = builder.aiOnnx.dropout([y], 1, 0.5)[0]
    return builder, builder.aiGraphcore.l1loss([y], 0.1)


MODELS: Mapping[str, Callable[[], tuple[Any, str]]] = {
    "training": _network,
    "halves": lambda: _network(np.float16),
    "drawing": _drawing,
    "infinite": _infinite,
    "inference": lambda: _network(trains=False),
}


@dataclass(frozen=True)
class Setting:
    """A model, and the options of its session."""

    model: str = "training"
    given: Given = ()
    """Options with their values, in the order in which they are set."""
    off: frozenset[str] = frozenset()
    """Patterns that are off."""
    optimizer: str = "momentum"
    device: str = "cpu"

    def __hash__(self) -> int:
        return hash((self.model, str(self.given), self.off, self.optimizer, self.device))

    def with_option(self, name: str, value: Any) -> Setting:
        return replace(self, given=(*self.given, (name, value)))

    def session(self) -> Any:
        builder, result = MODELS[self.model]()
        options = popart.SessionOptions()
        for name, value in self.given:
            member = getattr(options, name)
            if callable(member):
                member(value)
            else:
                setattr(options, name, value)
        known = popart.Patterns().enabled()
        patterns = popart.Patterns(sorted(known - self.off)).enableRuntimeAsserts(False)
        flow = popart.DataFlow(BATCHES, {result: popart.AnchorReturnType("All")})
        proto = builder.getModelProto()
        manager = popart.DeviceManager()
        device = (
            manager.createCpuDevice(backend="reference")
            if self.device == "cpu"
            else manager.createIpuModelDevice({"numIPUs": 2, "tilesPerIPU": 64})
        )
        if self.model == "inference":
            return popart.InferenceSession(
                proto, flow, device, patterns=patterns, userOptions=options
            )
        return popart.TrainingSession(
            proto, flow, result, self._rule(), device, patterns=patterns, userOptions=options
        )

    def _rule(self) -> Any:
        match self.optimizer:
            case "momentum":
                return popart.SGD(
                    {
                        "defaultLearningRate": (0.1, False),
                        "defaultMomentum": (0.9, True),
                        "lossScaling": (4.0, False),
                    }
                )
            case _:
                return popart.Adam({"defaultLearningRate": (0.01, False)})


def _digest(text: str | bytes) -> str:
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()[:12]


def _program(session: Any) -> str:
    """The compiled module, and its options."""
    code = session._program.code
    return f"{code.module}\n{code.options}\n{code.period}"


def _results(session: Any) -> str:
    """Anchors, weights, the saved file and the generator state of two steps on the same data."""
    session.prepareDevice()
    session.setRandomSeed(3)
    session.weightsFromHost()
    rng = np.random.default_rng(2)
    several = session.accumulationFactor, session.replicationFactor
    lead = [BATCHES, *(n for n in several if n > 1)]
    arrays = {}
    for id in session._program.inputs:
        info = session.getInfo(id)
        shape = [*lead, *info.shape()]
        arrays[id] = (
            rng.integers(0, 3, shape).astype(np.int32)
            if id == "label"
            else rng.normal(size=shape).astype(info.data_type_lcase())
        )
    found = []
    for _ in range(2):
        anchors = session.initAnchorArrays()
        session.run(popart.PyStepIO(arrays, anchors))
        found += [f"{id} {_digest(array.tobytes())}" for id, array in sorted(anchors.items())]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "saved.onnx"
        session.modelToHost(str(file))
        found.append(_digest(file.read_bytes()))
    session.weightsToHost()
    found += [f"{id} {_digest(array.tobytes())}" for id, array in sorted(session.weights().items())]
    forward = popart.PyStepIO(arrays, session.initAnchorArrays())
    found.append(_or_error(lambda: str(session.run("implicitPipeliningFwdOnly", forward))))
    found.append(_or_error(lambda: str(session.getRNGState())))
    found.append(_or_error(lambda: str(session.writeWeights(popart.PyWeightsIO({})))))
    return "\n".join(found)


def _report(session: Any) -> str:
    """A summary without times, and the modelled cycles."""
    session.prepareDevice()
    session.weightsFromHost()
    summary = re.sub(r"[\d.]+ us", "", session.getSummaryReport())
    session._runs.inputs = {}
    return f"{summary}\n{_or_error(lambda: str(session.getCycleCount()))}"


class Observed:
    """The observations of a setting, computed on demand; an error is an observation, too."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting

    def __getitem__(self, part: str) -> str:
        """One of `program`, `results`, `ir` and `report`."""
        return str(getattr(self, part))

    @cached_property
    def session(self) -> Any:
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            Path("drawn").mkdir()
            made = self.setting.session()
            self.files = " ".join(
                f"{one.relative_to(folder)} {_digest(one.read_bytes())}"
                for one in sorted(Path(folder).rglob("*.dot"))
            )
            return made

    @cached_property
    def program(self) -> str:
        return _or_error(lambda: _program(self.session))

    @cached_property
    def ir(self) -> str:
        """The IR as JSON, and its drawings (`dotChecks`)."""
        json = popart.IrSerializationFormat.JSON
        return _or_error(lambda: f"{self.session._serializeIr(json)}\n{self.files}")

    @cached_property
    def results(self) -> str:
        return _or_error(lambda: _results(self.session))

    @cached_property
    def report(self) -> str:
        """The report on an IPU model, which reports require."""
        on_ipus = replace(self.setting, device="ipu")
        return _or_error(lambda: _report(on_ipus.session()))


def _or_error(made: Callable[[], str]) -> str:
    try:
        return made()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@cache
def observed(setting: Setting) -> Observed:
    return Observed(setting)


def differing(one: Setting, other: Setting, *parts: str) -> set[str]:
    """The parts in which two settings differ."""
    first, second = observed(one), observed(other)
    return {part for part in parts if first[part] != second[part]}
