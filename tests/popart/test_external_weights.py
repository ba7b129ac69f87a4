"""Tests weights in external files: saving, loading, and writing trained values."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

import popgraph.popart as popart
from popgraph.popart.api.builder import Builder
from popgraph.popart.exceptions import popart_exception, popart_runtime_error

VALUES = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture(autouse=True)
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Changes to a working directory of the test."""
    home = tmp_path / "work"
    home.mkdir()
    monkeypatch.chdir(home)
    return home


def network() -> tuple[Builder, str]:
    """A model with two weights, `v` and `w`, and the name of its loss."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [1, 2], "x")
    v = builder.addInitializedInputTensor(np.ones((3, 1), np.float32), "v")
    w = builder.addInitializedInputTensor(VALUES, "w")
    y = builder.aiOnnx.matmul([builder.aiOnnx.matmul([x, w]), v])
    return builder, str(builder.aiGraphcore.l1loss([y], 1.0, popart.ReductionType.Sum))


def entries(model: bytes) -> dict[str, dict[str, str]]:
    """The external data entries of a model's weights."""
    return {
        tensor.name: {one.key: one.value for one in tensor.external_data}
        for tensor in onnx.load_model_from_string(model).graph.initializer
        if tensor.data_location == TensorProto.EXTERNAL
    }


def train(
    model: bytes | str, loss: str, rule: popart.Optimizer | None = None
) -> popart.TrainingSession:
    rule = rule or popart.ConstSGD(1.0)
    session = popart.TrainingSession(model, popart.DataFlow(1, [loss]), loss, rule)
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({"x": np.ones((1, 2), np.float32)}, anchors))
    assert anchors[loss] == VALUES.sum()
    return session


def test_weights_are_contiguous_in_the_file() -> None:
    builder, _ = network()
    builder.saveInitializersExternally(["w", "v"], "weights.bin")
    model = builder.getModelProto()
    assert entries(model) == {
        "w": {"location": "weights.bin", "length": "24", "offset": "0"},
        "v": {"location": "weights.bin", "length": "12", "offset": "24"},
    }
    assert Path("weights.bin").read_bytes() == VALUES.tobytes() + np.ones(3, "f4").tobytes()
    tensors = onnx.load_model_from_string(model).graph.initializer
    assert not any(tensor.float_data or tensor.raw_data for tensor in tensors)


def test_a_session_reads_the_file_and_modelToHost_writes_it() -> None:
    builder, loss = network()
    builder.saveInitializersExternally(["w"], "weights.bin")
    session = train(builder.getModelProto(), loss)
    session.modelToHost("trained.onnx")
    assert list(entries(Path("trained.onnx").read_bytes())) == ["w"]
    stored = np.fromfile("weights.bin", np.float32).reshape(2, 3)
    assert np.array_equal(stored, VALUES - 1)
    session.weightsToHost()
    assert np.array_equal(session.weights()["w"], stored)


def test_locations_can_be_moved_before_modelToHost() -> None:
    builder, loss = network()
    builder.saveInitializersExternally(["w"], "old.bin")
    session = train(builder.getModelProto(), loss)
    before = Path("old.bin").read_bytes()
    session.updateExternallySavedTensorLocations("old.bin", "new.bin")
    assert Path("new.bin").read_bytes() == before
    session.modelToHost("trained.onnx")
    assert entries(Path("trained.onnx").read_bytes())["w"]["location"] == "new.bin"
    assert Path("old.bin").read_bytes() == before
    assert Path("new.bin").read_bytes() == (VALUES - 1).tobytes()


def test_states_follow_the_weights_in_their_file() -> None:
    builder, loss = network()
    builder.saveInitializersExternally(["w"], "weights.bin")
    session = train(builder.getModelProto(), loss, popart.Adam({}))
    assert Path("weights.bin").stat().st_size == 76  # The session has appended the states.
    for _ in range(2):
        session.modelToHost("trained.onnx")
    held = entries(Path("trained.onnx").read_bytes())
    assert {id: place["offset"] for id, place in held.items()} == {
        "w": "0",
        "Accl1___w": "24",
        "Accl2___w": "48",
        "Step___w": "72",
    }
    assert Path("weights.bin").stat().st_size == 76
    session.weightsToHost()
    for tensor in onnx.load("trained.onnx").graph.initializer:
        found = numpy_helper.to_array(tensor)
        np.testing.assert_array_equal(found, session.weights()[tensor.name])
    other = popart.TrainingSession(
        "trained.onnx", popart.DataFlow(1, [loss]), loss, popart.Adam({})
    )
    for id, array in session.weights().items():
        assert other.weights()[id].shape == array.shape
        np.testing.assert_array_equal(other.weights()[id], array)
    other.prepareDevice()
    other.resetHostWeights("trained.onnx")
    other.weightsFromHost()
    other.modelToHost("again.onnx")
    assert entries(Path("again.onnx").read_bytes()) == held
    assert Path("weights.bin").stat().st_size == 76


def test_mismatched_locations_are_refused() -> None:
    builder, loss = network()
    builder.saveInitializersExternally(["w"], "old.bin")
    session = train(builder.getModelProto(), loss)
    Path("other.bin").write_bytes(b"")
    move = session.updateExternallySavedTensorLocations
    with pytest.raises(popart_runtime_error, match=r"but file 'other\.bin' already exists"):
        move("old.bin", "other.bin")
    with pytest.raises(popart_runtime_error, match=r"but file 'none\.bin' does not exist"):
        move("none.bin", "new.bin")
    with pytest.raises(popart_runtime_error, match=r"external location set to 'other\.bin'"):
        move("other.bin", "new.bin")


def test_tensors_that_cannot_be_saved_are_refused() -> None:
    builder, _ = network()
    for ids, file, words in (
        (["x"], "weights.bin", "Tensor 'x' is not an initializer"),
        (["w"], "none/weights.bin", "its parent directory does not exist"),
    ):
        with pytest.raises(popart_exception, match=words):
            builder.saveInitializersExternally(ids, file)
    builder.saveInitializersExternally(["w"], "weights.bin")
    with pytest.raises(popart_exception, match="'w' already has an external data_location"):
        builder.saveInitializersExternally(["w"], "more.bin")


def test_the_transformer_saves_weights_as_the_builder_does() -> None:
    builder, loss = network()
    transformer = popart.GraphTransformer(builder.getModelProto())
    transformer.saveInitializersExternally(["w"], "weights.bin")
    with pytest.raises(popart_exception, match="already has an external data_location"):
        transformer.saveInitializersExternally(["w"], "more.bin")
    train(transformer.getModelProto(), loss)


def test_a_builder_loads_a_model_with_external_weights() -> None:
    builder, loss = network()
    builder.saveInitializersExternally(["w"], "weights.bin")
    again = popart.Builder(builder.getModelProto())
    assert entries(again.getModelProto()) == entries(builder.getModelProto())
    train(again.getModelProto(), loss)


def test_a_file_outside_is_read_by_the_process_that_wrote_it(tmp_path: Path) -> None:
    builder, loss = network()
    builder.saveInitializersExternally(["w"], str(tmp_path / "weights.bin"))
    builder.saveModelProto(str(tmp_path / "model.onnx"))
    train(str(tmp_path / "model.onnx"), loss)


def test_a_file_outside_from_other_processes_is_not_read(tmp_path: Path) -> None:
    builder, loss = network()
    (tmp_path / "secret.bin").write_bytes(VALUES.tobytes())
    model = onnx.load_model_from_string(builder.getModelProto())
    weight = next(one for one in model.graph.initializer if one.name == "w")
    weight.ClearField("raw_data")
    weight.ClearField("float_data")
    weight.data_location = TensorProto.EXTERNAL
    for location in (str(tmp_path / "secret.bin"), "../secret.bin"):
        del weight.external_data[:]
        weight.external_data.add(key="location", value=location)
        with pytest.raises(popart_exception, match="outside the working directory"):
            train(model.SerializeToString(), loss)


def test_a_missing_file_has_popart_s_message() -> None:
    builder, loss = network()
    builder.saveInitializersExternally(["w"], "weights.bin")
    Path("weights.bin").unlink()
    with pytest.raises(popart_exception) as raised:
        train(builder.getModelProto(), loss)
    assert "Unrecognised file name 'weights.bin' for externally stored tensor 'w'" in str(
        raised.value
    )
    assert "weights.bin, but it doesn't exist or is not accessible" in str(raised.value)


def test_data_next_to_a_model_precede_the_working_directory(tmp_path: Path) -> None:
    builder, loss = network()
    model = onnx.load_model_from_string(builder.getModelProto())
    for tensor in model.graph.initializer:
        if not tensor.raw_data:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor), tensor.name))
    beside = tmp_path / "beside"
    beside.mkdir()
    onnx.save_model(
        model,
        str(beside / "model.onnx"),
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
    )
    Path("weights.bin").write_bytes(b"\0" * 64)
    train(str(beside / "model.onnx"), loss)


def test_another_process_reads_a_file_of_its_working_directory() -> None:
    builder, loss = network()
    builder.saveInitializersExternally(["w"], "weights.bin")
    builder.saveModelProto("model.onnx")
    code = (
        "import numpy as np, popgraph.popart as popart\n"
        f"flow = popart.DataFlow(1, [{loss!r}])\n"
        "session = popart.InferenceSession(open('model.onnx', 'rb').read(), flow)\n"
        "session.prepareDevice()\n"
        "anchors = session.initAnchorArrays()\n"
        "x = np.ones((1, 2), np.float32)\n"
        "session.run(popart.PyStepIO({'x': x}, anchors))\n"
        f"print(float(anchors[{loss!r}]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.stdout.strip() == str(float(VALUES.sum())), done.stderr
