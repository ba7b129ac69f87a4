"""The modules of eras, for tests of programs of each era."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from popgraph import compat
from popgraph.popart.eras.era import ERAS, LAST, Era
from popgraph.support.arrays import Array

OLD = [era for era in ERAS if era is not LAST]
POPONNX = [era for era in OLD if era.module == "poponnx"]
by_name: dict[str, Any] = {"ids": lambda era: era.name}


@pytest.fixture
def names_taken_away() -> Iterator[None]:
    yield
    compat.disable()
    assert not any(name.partition(".")[0] in compat.ALIASES for name in sys.modules)


def module_of(era: Era) -> ModuleType:
    compat.enable(era.name)
    return importlib.import_module(era.module)


def weight_by_input(old: Any) -> tuple[Any, str, str, str]:
    builder = old.Builder()
    x = builder.addInputTensor(old.TensorInfo("FLOAT", [2, 3]))
    w = builder.addInitializedInputTensor(np.full((2, 3), 2, np.float32))
    return builder, x, w, builder.aiOnnx.mul([x, w], debugPrefix="product")


def run_once(old: Any, session: Any, inputs: dict[str, Array]) -> dict[str, Array]:
    session.setDevice(old.DeviceManager().createCpuDevice(backend="reference"))
    session.prepareDevice()
    session.weightsFromHost()
    anchors: dict[str, Array] = session.initAnchorArrays()
    session.run(old.PyStepIO(inputs, anchors))
    return anchors
