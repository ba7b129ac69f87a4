"""Tests PopART's warnings about unsupported and deprecated features."""

from __future__ import annotations

import subprocess
import sys
import warnings

import numpy as np
import pytest

import popgraph.popart as popart
from popgraph.popart.api.builder import Builder
from tests.popart.popart_graphs import weight


def warnings_in(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The warnings, without the prefix of their module."""
    lines = capsys.readouterr().err.splitlines()
    return [line.split(" ", 1)[1] for line in lines if " W: " in line]


def prepared(builder: Builder, *anchors: str) -> popart.InferenceSession:
    device = popart.DeviceManager().createCpuDevice(backend="reference")
    flow = popart.DataFlow(1, list(anchors))
    session = popart.InferenceSession(builder.getModelProto(), flow, device)
    session.prepareDevice()
    return session


@pytest.mark.parametrize(("kind", "gates"), [("gru", 3), ("rnn", 1)])
def test_recurrences_run_over_whole_sequences(
    kind: str, gates: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """GRU and RNN ignore sequence lengths; only LSTM applies them."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [3, 1, 2], "x")
    lengths = builder.addInputTensor("INT32", [1], "lengths")
    matrices = [np.ones((1, gates * 2, 2), np.float32), np.full((1, gates * 2, 2), 0.5, np.float32)]
    bias = np.zeros((1, gates * 4), np.float32)
    given = [builder.aiOnnx.constant(one) for one in (*matrices, bias)]
    all_, last = getattr(builder.aiOnnx, kind)([x, *given, lengths], 2)
    session = prepared(builder, all_, last)
    (line,) = warnings_in(capsys)
    assert "sequence_lens' " in line and line.endswith("will be ignored")
    anchors = session.initAnchorArrays()
    data = {"x": np.ones((3, 1, 2), np.float32), "lengths": np.ones(1, np.int32)}
    session.run(popart.PyStepIO(data, anchors))
    assert np.all(anchors[all_])
    np.testing.assert_array_equal(anchors[last].ravel(), anchors[all_][-1].ravel())


def test_topk_is_always_sorted(capsys: pytest.CaptureFixture[str]) -> None:
    builder = popart.Builder(opsets={"ai.onnx": 11, "ai.graphcore": 1})
    x = builder.addInputTensor("FLOAT", [4])
    count = builder.aiOnnxOpset11.constant(np.array([2], np.int64))
    values, _ = builder.aiOnnxOpset11.topk([x, count], sorted=0)
    prepared(builder, values)
    assert [line[line.index("topk") :] for line in warnings_in(capsys)] == [
        "topk op when sort==false is not supported!"
    ]


def test_constructors_of_clip_norm_settings(capsys: pytest.CaptureFixture[str]) -> None:
    made = popart.ClipNormSettings.clipWeights(["w"], 1.0)
    assert not warnings_in(capsys)
    with pytest.warns(DeprecationWarning, match="Using deprecated constructor ClipNormSettings"):
        old = popart.ClipNormSettings(["w"], 1.0)
    assert "clipWeights' and 'clipAllWeights' instead." in warnings_in(capsys)[0]
    assert old == made != popart.ClipNormSettings.clipAllWeights(1.0)
    made.maxNorm, made.weightIds = 2.0, ["v"]
    assert (made.weightIds, made.maxNorm) == (["v"], 2.0)


def test_a_name_of_an_option_is_deprecated_by_popart_itself(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        popart.SessionOptions().defaultPrefetchBufferingDepth = 2
    assert "popart:popart" in capsys.readouterr().err


def test_popxl_cache_dir_overrides_popart_cache_dir(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("POPART_CACHE_DIR", "a")
    assert popart.SessionOptions().cachePath == "a"
    monkeypatch.setenv("POPXL_CACHE_DIR", "b")
    options = popart.SessionOptions()
    assert (options.enableEngineCaching, options.cachePath) == (True, "b")
    assert "Both POPART_CACHE_DIR ('a') and POPXL_CACHE_DIR ('b') are set" in warnings_in(capsys)[0]


def test_unused_inputs_have_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2], "x")
    shaped = builder.addInputTensor("FLOAT", [2], "shaped")
    y = builder.aiOnnx.reshape([x, builder.aiOnnx.shape([shaped])])
    session = prepared(builder, y)
    ones = np.ones(2, np.float32)
    session.run(popart.PyStepIO({"x": ones, "shaped": ones}, session.initAnchorArrays()))
    (line,) = warnings_in(capsys)
    assert "The input Tensor shaped to the ONNX Model does not appear in the optimized" in line


def test_a_session_has_no_texts() -> None:
    builder = popart.Builder()
    builder.addInitializedInputTensor(np.array(["a"]), "words")
    y = builder.aiOnnx.abs([builder.addInputTensor("FLOAT", [2])])
    with pytest.raises(popart.popart_exception, match="words holds no numbers"):
        prepared(builder, y)


def test_unknown_members_and_values() -> None:
    with pytest.raises(popart.popart_exception, match="9 is not a value of InitType"):
        popart.Builder().aiGraphcore.init([2], 1, 9)
    with pytest.raises(popart.popart_exception, match="No input shape info for Tensor `x' in "):
        popart.InputShapeInfo().get("x")


def test_grouped_weights_are_not_constants(capsys: pytest.CaptureFixture[str]) -> None:
    builder = popart.Builder()
    settings = popart.VariableSettings(popart.VariableRetrievalMode.AllReplicas)
    w = builder.addInitializedInputTensor(np.ones(2, np.float32), settings, "w")
    y = builder.aiOnnx.mul([builder.addInputTensor("FLOAT", [2]), w])
    options = popart.SessionOptions()
    options.enableReplicatedGraphs, options.replicatedGraphCount = True, 2
    flow = popart.DataFlow(1, [y])
    popart.InferenceSession(builder.getModelProto(), flow, userOptions=options)
    (line,) = warnings_in(capsys)
    assert line.endswith(
        'Tensor w was declined as a target of optimization "constantWeights" on the grounds that '
        "the tensor's VariableSettings(commGroupType=All, groupSize=0, retrievalMode=AllReplicas) "
        "do not allow for the TensorType::Variable to be initialized as a TensorType::Const"
    )


def test_a_narrowed_input_has_one_warning() -> None:
    """Runs in its own process, since only the first warning of a process is shown."""
    program = """
import numpy as np, popgraph.popart as popart
builder = popart.Builder()
x = builder.addInputTensor("INT32", [2], "x")
y = builder.aiOnnx.abs([x])
device = popart.DeviceManager().createCpuDevice(backend="reference")
session = popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [y]), device)
session.prepareDevice()
for _ in range(2):
    session.run(popart.PyStepIO({x: np.ones(2, np.int64)}, session.initAnchorArrays()))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (
        done.stderr.count("Copying (host) tensor x from INT64 to INT32. Will only warn once") == 1
    )


def test_the_final_state_with_sequence_lengths_has_no_gradient(
    capsys: pytest.CaptureFixture[str],
) -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [3, 1, 2], "x")
    lengths = builder.addInputTensor("INT32", [1], "lengths")
    matrices = [weight(builder, 1, 8, 2), weight(builder, 1, 8, 2), weight(builder, 1, 16)]
    _, _, state = builder.aiOnnx.lstm([x, *matrices, lengths], 3)
    scale = weight(builder, 1, 1, 2)
    loss = builder.aiGraphcore.l1loss([builder.aiOnnx.mul([state, scale])], 1.0)
    device = popart.DeviceManager().createCpuDevice(backend="reference")
    flow, rule = popart.DataFlow(1, [loss]), popart.ConstSGD(0.5)
    session = popart.TrainingSession(builder.getModelProto(), flow, loss, rule, device)
    (line,) = warnings_in(capsys)
    assert "the cell state output (LSTMOp output Y_c)" in line
    session.prepareDevice()
    session.weightsFromHost()
    data = {"x": np.ones((3, 1, 2), np.float32), "lengths": np.full(1, 2, np.int32)}
    session.run(popart.PyStepIO(data, session.initAnchorArrays()))
    session.weightsToHost()
    held = {matrices[0]: np.empty((1, 8, 2), np.float32), scale: np.empty((1, 1, 2), np.float32)}
    session.readWeights(popart.PyWeightsIO(held))
    assert np.all(held[matrices[0]] == 1)
    assert not np.any(held[scale] == 1)
