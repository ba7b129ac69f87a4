"""Tests that features of IPUs are refused with PopART's messages."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from popgraph.popart.api.builder import Builder
from popgraph.popart.api.dataflow import DataFlow
from popgraph.popart.api.devices import DeviceManager
from popgraph.popart.api.optimizers import ConstSGD
from popgraph.popart.exceptions import popart_exception, poplar_exception
from popgraph.popart.sessions.inference_session import InferenceSession
from popgraph.popart.sessions.training_session import TrainingSession


@pytest.fixture
def session() -> InferenceSession:
    builder = Builder()
    weight = builder.addInitializedInputTensor(np.ones(2, np.float32))
    y = builder.aiOnnx.add([builder.addInputTensor("FLOAT", [2]), weight])
    builder.addOutputTensor(y)
    device = DeviceManager().createIpuModelDevice({})
    return InferenceSession(builder.getModelProto(), DataFlow(1, [y]), device)


def test_executables_are_not_saved(session: InferenceSession, tmp_path: Path) -> None:
    path = str(tmp_path / "executable")
    for save in (session.saveExecutable, session.saveVariables, session.compileAndExport):
        with pytest.raises(popart_exception) as caught:
            save(path)
        assert caught.value.args[0] == "Executables for device type ipu-model cannot be saved"
    assert not Path(path).exists()


def test_executables_are_not_loaded(session: InferenceSession, tmp_path: Path) -> None:
    path = tmp_path / "executable"
    with pytest.raises(popart_exception, match="Could not open file"):
        session.loadExecutable(str(path))
    path.write_bytes(b"PopEF")
    with pytest.raises(popart_exception, match="Failed to load serialized PopART executable"):
        session.loadExecutable(str(path))


def test_external_locations_require_external_weights(
    session: InferenceSession, tmp_path: Path
) -> None:
    old, new = tmp_path / "old", str(tmp_path / "new")
    with pytest.raises(popart_exception, match="does not exist"):
        session.updateExternallySavedTensorLocations(str(old), new)
    old.write_bytes(b"")
    with pytest.raises(popart_exception, match="No ONNX model initializers have external location"):
        session.updateExternallySavedTensorLocations(str(old), new)


def test_there_are_no_streams_of_poplar() -> None:
    builder = Builder()
    weight = builder.addInitializedInputTensor(np.ones(2, np.float32))
    loss = builder.aiGraphcore.identityloss([weight])
    session = TrainingSession(builder.getModelProto(), DataFlow(1, [loss]), loss, ConstSGD(0.1))
    session.broadcastWeights()
    session.updateEngineCache()
    with pytest.raises(poplar_exception, match="There is no stream 'h2d_x'"):
        session.connectStreamToCallback("h2d_x", print)
