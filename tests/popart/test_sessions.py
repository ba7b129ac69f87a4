"""Tests sessions: weights, devices, reports, the order of calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import popgraph.popart as popart
from popgraph.support.arrays import Array
from popgraph.support.errors import PopgraphError, UnsupportedError

START = np.arange(6, dtype=np.float32).reshape(3, 2)


def linear() -> tuple[popart.Builder, str, str, str]:
    """A model x @ w with the names of x, the output and the loss."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [1, 3])
    w = builder.addInitializedInputTensor(START, "w")
    y = builder.aiOnnx.matmul([x, w])
    builder.addOutputTensor(y)
    return builder, x, y, builder.aiGraphcore.l1loss([y], 1.0, popart.ReductionType.Sum)


def training(
    optimizer: popart.Optimizer | None = None, **named: object
) -> tuple[popart.TrainingSession, Callable[[], None]]:
    """A session and a function that runs one step; the gradient of "w" is all ones."""
    builder, x, _, loss = linear()
    cpu = popart.DeviceManager().createCpuDevice(backend="reference")
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, []),
        loss,
        optimizer or popart.ConstSGD(1.0),
        **{"deviceInfo": cpu, **named},  # type: ignore[arg-type]
    )
    stepio = popart.PyStepIO({x: np.ones((1, 3), np.float32)}, {})
    return session, lambda: session.run(stepio)


def inference(constant: bool, device: popart.DeviceInfo | None = None) -> popart.InferenceSession:
    builder, _, y, _ = linear()
    options = popart.SessionOptions()
    options.constantWeights = constant
    return popart.InferenceSession(
        builder.getModelProto(),
        popart.DataFlow(1, [y]),
        device or popart.DeviceManager().createCpuDevice(backend="reference"),
        userOptions=options,
    )


def weight(session: popart.TrainingSession | popart.InferenceSession) -> Array:
    held = np.empty_like(START)
    session.weightsToHost()
    session.readWeights(popart.PyWeightsIO({"w": held}))
    return held


def message(call: Callable[[], object], kind: type[Exception] = popart.popart_exception) -> str:
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value.args[0])


def test_training_moves_the_weights() -> None:
    session, step = training()
    session.prepareDevice()
    session.weightsFromHost()
    for count in range(3):
        np.testing.assert_array_equal(weight(session), START - count)
        step()
    session.weightsFromHost()
    np.testing.assert_array_equal(weight(session), START)


def test_read_weights_does_not_fetch() -> None:
    session, step = training()
    session.prepareDevice()
    session.weightsFromHost()
    step()
    held = np.empty_like(START)
    session.readWeights(popart.PyWeightsIO({"w": held, "unknown": np.empty(1)}))
    np.testing.assert_array_equal(held, START)
    assert message(
        lambda: session.readWeights(popart.PyWeightsIO({"w": np.empty(2, np.float32)}))
    ) == ("sizes (in bytes) of src (24) and dst (8) differ in hostStreamToHost for w")


def test_calls_in_the_wrong_order(capsys: pytest.CaptureFixture[str]) -> None:
    session, step = training()
    assert "no compiled engine" in message(session.loadEngineAndConnectStreams)
    assert message(session.weightsToHost) == (
        "Devicex::prepare() must be called before Devicex::weightsToHost("
        "const std::map<TensorId, MutableVoidData> &) is called."
    )
    session.setRandomSeed(1)
    assert "no random behaviour" in capsys.readouterr().err
    assert session.getRandomSeed() == 0
    session.prepareDevice()
    assert message(step) == (
        "Must call weightsFromHost before run as the model has initializers and the session has "
        "been created in training mode"
    )


def test_written_weights_are_used_once_they_are_sent() -> None:
    session, step = training()
    session.prepareDevice()
    session.weightsFromHost()
    session.writeWeights(popart.PyWeightsIO({"w": START * 10}))
    np.testing.assert_array_equal(weight(session), START)
    session.weightsFromHost()
    step()
    np.testing.assert_array_equal(weight(session), START * 10 - 1)


def test_weights_keep_their_shapes() -> None:
    session, _ = training()
    session.prepareDevice()
    held = popart.PyWeightsIO({"w": np.zeros((1, *START.shape), np.float32)})
    sizes = " ".join(map(str, START.shape))
    assert message(lambda: session.writeWeights(held), popart.popart_internal_exception) == (
        "The shape of the MutableVoidData for IO does not not match the expected write region of "
        f"this tensor. Tensor Write ({START.ndim}): [{sizes}] != MutableVoidData "
        f"({START.ndim + 1}): [1 {sizes}]"
    )


def test_constant_weights_stay() -> None:
    session = inference(constant=True)
    session.prepareDevice()
    held = popart.PyWeightsIO({"w": START})
    assert message(lambda: session.writeWeights(held)) == (
        "Cannot call writeWeights when constantWeights is set. Set `constantWeights` to False in "
        "the `SessionOption`s when initialising the session to enable this behaviour."
    )
    assert message(lambda: session.resetHostWeights(linear()[0].getModelProto())).startswith(
        "Cannot call resetHostWeights when constantWeights is set"
    )
    np.testing.assert_array_equal(weight(session), START)


def test_inference_with_weights_that_change(device: popart.DeviceInfo) -> None:
    session = inference(constant=False, device=device)
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    [y] = anchors
    stepio = popart.PyStepIO({"input": np.ones((1, 3), np.float32)}, anchors)
    for factor in (1, 7):
        session.writeWeights(popart.PyWeightsIO({"w": START * factor}))
        session.weightsFromHost()
        session.run(stepio)
        np.testing.assert_array_equal(anchors[y], [[6 * factor, 9 * factor]])


def test_a_model_can_be_saved_and_its_state_come_back(tmp_path: Path) -> None:
    momentum = popart.SGD({"defaultLearningRate": (1.0, True), "defaultMomentum": (0.5, True)})
    session, step = training(momentum)
    path = tmp_path / "model.onnx"
    session.prepareDevice()
    session.weightsFromHost()
    step()
    session.modelToHost(str(path))
    initializers = onnx.load(path).graph.initializer
    assert all(one.float_data and not one.raw_data for one in initializers)
    saved = {one.name: onnx.numpy_helper.to_array(one) for one in initializers}
    assert set(saved) == {"w", "Accl___w"}
    np.testing.assert_array_equal(saved["w"], START - 1)
    np.testing.assert_array_equal(saved["Accl___w"], np.full((3, 2), 0.5, np.float32))
    step()
    straight_on = weight(session)
    np.testing.assert_array_equal(straight_on, START - 2.5)

    other, other_step = training(momentum)
    other.prepareDevice()
    other.resetHostWeights(str(path))
    assert message(other_step).startswith("Must call weightsFromHost before run")
    other.weightsFromHost()
    other_step()
    np.testing.assert_array_equal(weight(other), straight_on)


COMBINED = popart.SGD({"defaultMomentum": (0.5, True)})
SEPARATE = popart.SGD(
    {"defaultMomentum": (0.5, True)},
    accumulatorAndMomentum=popart.SGDAccumulatorAndMomentum.Separate,
)


@pytest.mark.parametrize(
    ("optimizer", "off", "states"),
    [
        (COMBINED, "", {"Accl___w"}),
        (COMBINED, "disableGradAccumulationTensorStreams", {"Accl___w"}),
        (COMBINED, "disableOptimizerStateTensorStreams", {"Accl___w"}),
        (COMBINED, "both", set()),
        (SEPARATE, "", {"Accl1___w"}),
        (SEPARATE, "disableGradAccumulationTensorStreams", {"Accl1___w"}),
        (SEPARATE, "disableOptimizerStateTensorStreams", set()),
        (popart.Adam({}), "", {"Accl1___w", "Accl2___w", "Step___w"}),
    ],
)
def test_streamed_states_are_saved(
    optimizer: popart.Optimizer, off: str, states: set[str], tmp_path: Path
) -> None:
    """Accumulators are not saved, since they are zero between steps."""
    options = popart.SessionOptions()
    options.enableGradientAccumulation, options.accumulationFactor = True, 2
    if off in ("both", "disableGradAccumulationTensorStreams"):
        options.disableGradAccumulationTensorStreams = True
    if off in ("both", "disableOptimizerStateTensorStreams"):
        options.disableOptimizerStateTensorStreams = True
    session, _ = training(optimizer, userOptions=options)
    session.prepareDevice()
    session.modelToHost(tmp_path / "model.onnx")
    initializers = onnx.load(tmp_path / "model.onnx").graph.initializer
    assert {one.name for one in initializers} == {"w"} | states


STATES: dict[str, tuple[Any, list[str]]] = {
    "plain": (lambda: popart.SGD({}), []),
    "combined": (lambda: COMBINED, ["Accl___"]),
    "separate": (lambda: SEPARATE, ["Accl1___"]),
    "Adam": (lambda: popart.Adam({}), ["Accl1___", "Accl2___", "Step___"]),
    "Lamb": (
        lambda: popart.Adam({}, mode=popart.AdamMode.LambNoBias),
        ["Accl1___", "Accl2___"],
    ),
    "AdaDelta": (
        lambda: popart.Adaptive({}, mode=popart.AdaptiveMode.AdaDelta),
        ["Accl1___", "Accl2___"],
    ),
    "inference": (lambda: None, []),
}


@pytest.mark.parametrize(("accumulation", "replicas"), [(1, 1), (2, 2)])
@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("name", STATES)
def test_saved_weights_keep_order_and_fields_of_the_model(
    name: str, raw: bool, accumulation: int, replicas: int, tmp_path: Path
) -> None:
    """Weights keep the order of the model; states follow, sorted by name, in typed fields."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [1, 2], "x")
    given = {"z": np.float32, "whole": np.int32, "half": np.float16, "b": np.float32}
    for id, kind in given.items():
        w = builder.addInitializedInputTensor(np.ones((2, 2), kind), id)
        x = builder.aiOnnx.matmul([x, builder.aiOnnx.cast([w], "FLOAT")])
    held = builder.aiOnnx.constant(np.ones((2, 2), np.float32))
    loss = builder.aiGraphcore.l1loss([builder.aiOnnx.matmul([x, held])], 1.0)
    model = onnx.load_from_string(builder.getModelProto())
    for tensor in model.graph.initializer if raw else ():
        tensor.CopyFrom(
            onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor), tensor.name)
        )
    options = popart.SessionOptions()
    options.enableReplicatedGraphs, options.replicatedGraphCount = replicas > 1, replicas
    optimizer, states = STATES[name][0](), STATES[name][1]
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": replicas})
    device.backend = "reference"
    flow, content = popart.DataFlow(1, [loss]), model.SerializeToString()
    session: Any
    if optimizer is None:
        session = popart.InferenceSession(content, flow, device, userOptions=options)
    else:
        options.enableGradientAccumulation = accumulation > 1
        options.accumulationFactor = accumulation
        session = popart.TrainingSession(
            content, flow, loss, optimizer, device, userOptions=options
        )
    session.prepareDevice()
    session.weightsFromHost()
    session.modelToHost(tmp_path / "model.onnx")
    saved = onnx.load(tmp_path / "model.onnx").graph.initializer
    trained = sorted(id for id, kind in given.items() if kind is not np.int32)
    added = [state + id for state in states for id in trained]
    assert [one.name for one in saved] == [*given, *added]
    for before, after in zip(model.graph.initializer, saved, strict=False):
        assert before == after
    assert not any(one.raw_data for one in list(saved)[len(given) :])
    numbers = [one for one in saved if one.data_type == onnx.TensorProto.FLOAT]
    assert raw or all(one.float_data for one in numbers)


@pytest.mark.parametrize("place", ["nowhere/model.onnx", "."])
def test_a_model_that_cannot_be_saved(tmp_path: Path, place: str) -> None:
    session, _ = training(popart.ConstSGD(0.1))
    session.prepareDevice()
    with pytest.raises(popart.popart_exception) as caught:
        session.modelToHost(tmp_path / place)
    assert caught.value.args[0] == f"Failed to open file {tmp_path / place}"
    assert caught.value.__notes__[-1].startswith("  the file cannot be written: ")


@pytest.mark.parametrize("given", [{}, {"enableOutlining": False}, 3])
def test_options_are_session_options(given: object) -> None:
    builder = popart.Builder()
    y = builder.aiOnnx.relu([builder.addInputTensor(popart.TensorInfo("FLOAT", [2]), "x")])
    builder.addOutputTensor(y)
    device = popart.DeviceManager().createCpuDevice(backend="reference")
    with pytest.raises(TypeError, match=r"userOptions: SessionOptions \| None"):
        popart.InferenceSession(
            builder.getModelProto(),
            popart.DataFlow(1, [y]),
            device,
            userOptions=given,  # type: ignore[arg-type]
        )


def test_a_saved_state_is_the_first_state_of_a_new_session(tmp_path: Path) -> None:
    momentum = popart.SGD({"defaultLearningRate": (1.0, True), "defaultMomentum": (0.5, True)})
    session, step = training(momentum)
    session.prepareDevice()
    session.weightsFromHost()
    step()
    session.modelToHost(tmp_path / "model.onnx")
    builder = popart.Builder(str(tmp_path / "model.onnx"))
    resumed = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, []),
        "L1:0",
        momentum,
        popart.DeviceManager().createCpuDevice(backend="reference"),
    )
    resumed.prepareDevice()
    resumed.weightsFromHost()
    resumed.run(popart.PyStepIO({"input": np.ones((1, 3), np.float32)}, {}))
    np.testing.assert_array_equal(weight(resumed), START - 2.5)


def test_mismatched_weights() -> None:
    session, _ = training()
    builder = popart.Builder()
    y = builder.aiOnnx.relu([builder.addInitializedInputTensor(np.zeros(2, np.float32), "w")])
    assert message(lambda: session.resetHostWeights(builder.getModelProto())) == (
        "Trying to reset weights using tensor with non matching tensor info. Tensor ID: w"
    )
    builder = popart.Builder()
    y = builder.aiOnnx.relu([builder.addInitializedInputTensor(np.zeros(2, np.float32), "v")])
    builder.addOutputTensor(y)
    proto = builder.getModelProto()
    assert message(lambda: session.resetHostWeights(proto)) == (
        "resetWeights, no tensor 'v' in tensors"
    )
    session.resetHostWeights(proto, ignoreWeightsInModelWithoutCorrespondingHostWeight=True)


def test_sources_that_are_not_models() -> None:
    flow = popart.DataFlow(1, ["x"])
    for source in ("no such file", b"no model"):
        text = message(lambda source=source: popart.InferenceSession(source, flow))  # type: ignore[misc]
        assert text.startswith("Failed to load a ModelProto from the string ")
        assert text.endswith(
            "Check that it is either a valid path to an existing onnx model file, or is a valid "
            "onnx ModelProto string."
        )


def test_open_shapes_require_input_shape_info(device: popart.DeviceInfo) -> None:
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", ["fubar", 2]))
    y = builder.aiOnnx.reducesum([x], axes=[0])
    proto, flow = builder.getModelProto(), popart.DataFlow(1, [y])
    assert message(lambda: popart.InferenceSession(proto, flow)) == (
        f"Input tensor '{x}' must be specified in InputShapeInfo, as it has shape [fubar, 2], "
        "which uses an unknown value 'fubar'."
    )
    shapeless = onnx.ModelProto.FromString(proto)
    shapeless.graph.input[0].type.tensor_type.ClearField("shape")
    unknown = shapeless.SerializeToString()
    assert message(lambda: popart.InferenceSession(unknown, flow)) == (
        f"Could not find tensor {x} in InputShapeInfo, but no shape is specified in the onnx model"
    )
    shapes = popart.InputShapeInfo()
    shapes.add(x, popart.TensorInfo("FLOAT", [3, 2]))
    session = popart.InferenceSession(proto, flow, device, shapes)
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({x: START}, anchors))
    np.testing.assert_array_equal(anchors[y], [[6, 9]])


def test_mismatched_losses() -> None:
    builder = popart.Builder()
    probabilities = builder.addInitializedInputTensor(np.ones((2, 4, 3), np.float32))
    labels = builder.addInputTensor("INT32", [2, 4])
    each = builder.aiGraphcore.nllloss([probabilities, labels], popart.ReductionType.NoReduction)
    assert (
        message(
            lambda: popart.TrainingSession(
                builder.getModelProto(), popart.DataFlow(1, []), each, popart.ConstSGD(0.1)
            )
        )
        == f"Loss tensor, '{each}', must be a scalar tensor"
    )
    assert (
        message(
            lambda: popart.TrainingSession(
                builder.getModelProto(), popart.DataFlow(1, []), "lost", popart.ConstSGD(0.1)
            )
        )
        == "Could not find loss tensor 'lost' in main graph tensors"
    )
    wrong = builder.aiGraphcore.nllloss([probabilities, builder.addInputTensor("INT32", [2, 5])])
    assert message(
        lambda: popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [wrong]))
    ) == (
        "The label tensor (INT32   [2 5]) must have shape [2 4] to match all but the final "
        "dimension of the probabilities tensor (FLOAT   [2 4 3]) in Op 101 (ai.graphcore.Nll:1). "
    )


def test_tensor_infos_of_a_session() -> None:
    session, _ = training()
    assert session.getInfo("w") == popart.TensorInfo("FLOAT", [3, 2])
    assert {"input", "w", "MatMul:0", "L1:0"} <= set(session.getTensorIds())
    for id in ("UpdatedVar___w", "Gradient___w"):
        assert id in session.getTensorIds()
        assert session.getInfo(id) == popart.TensorInfo("FLOAT", [3, 2])
    assert message(lambda: session.getInfo("nothing")) == "TensorId nothing does not exist"


def test_names_that_are_reserved() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [1], "Gradient___x")
    y = builder.aiOnnx.relu([x])
    assert message(
        lambda: popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [y]))
    ) == (
        "Provided tensor Gradient___x has an invalid name: clash with reserved prefix Gradient___"
    )


def test_an_inference_session_has_no_values_of_an_optimizer_to_send() -> None:
    session = inference(constant=True)
    assert "Devicex::prepare() must be called" in message(session.optimizerFromHost)
    session.prepareDevice()
    session.optimizerFromHost()


def test_reports() -> None:
    session = inference(constant=True)
    assert message(session.getSummaryReport).endswith(
        "Session must have been prepared before a report can be fetched"
    )
    session.prepareDevice()
    for report in (session.getSummaryReport, session.getReport, session.getSerializedGraph):
        text = message(report, popart.poplar_exception)
        assert text == "Profiling is disabled for current device type."
    model = popart.DeviceManager().createIpuModelDevice({})
    model.backend = "reference"
    session = inference(constant=True, device=model)
    session.prepareDevice()
    assert "input: f32[1, 3]" in session.getSummaryReport()


def test_options_that_would_change_results_are_refused() -> None:
    options = popart.SessionOptions()
    options.accumulationFactor = 2
    assert message(lambda: training(userOptions=options)) == (
        "enableGradientAccumulation is false, but accumulationFactor > 1. Either enable gradient "
        "accumulation, or set the accumulation factor to 1"
    )
    options.enableGradientAccumulation = True
    builder, _, y, _ = linear()
    assert (
        message(
            lambda: popart.InferenceSession(
                builder.getModelProto(), popart.DataFlow(1, [y]), userOptions=options
            )
        )
        == "Gradient Accumulation only available when training."
    )


def test_all_options_of_popart_exist() -> None:
    options = popart.SessionOptions()
    assert (options.cachePath, options.outlineThreshold) == ("session_cache", 1.0)
    assert options.virtualGraphMode is popart.VirtualGraphMode.Off
    options.engineOptions["a"] = "b"
    assert popart.SessionOptions().engineOptions == {}
    options.weightTensorLocationSettings.location.storage = popart.TensorStorage.OffChip
    with pytest.raises(AttributeError):
        options.noSuchOption = 1  # type: ignore[attr-defined]
    with pytest.warns(DeprecationWarning, match="defaultPrefetchBufferingDepth"):
        options.defaultPrefetchBufferingDepth = 3
    assert options.defaultBufferingDepth == 3
    session, _ = training(userOptions=options)
    assert message(session.prepareDevice, popart.poplar_exception) == "Unrecognised option 'a'"


def test_annotations_of_locations_and_groups() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2])
    location = popart.TensorLocation(popart.TensorStorage.OffChip)
    location.shardingDomain = popart.CommGroup(popart.CommGroupType.Consecutive, 2)
    numbers = [int(location.storage), 0, 0, 0, int(popart.CommGroupType.Consecutive), 2]
    numbers[1:4] = [
        int(location.loadTileSet),
        int(location.storageTileSet),
        int(location.replicatedTensorSharding),
    ]
    with builder.outputTensorLocation(location), builder.commGroup(1, 4):
        y = builder.aiOnnx.relu([x])
    z, u = builder.aiOnnx.relu([y]), builder.aiOnnx.relu([y])
    builder.outputTensorLocation(z, location)
    builder.outputTensorLocation(u)
    w = builder.aiOnnx.relu([u])
    builder.outputTensorLocation({w}, value=location)
    assert builder.getInt64VectorNodeAttribute("__output_tensor_location", {w}) == numbers
    name = "__output_tensor_location"
    assert builder.getInt64VectorNodeAttribute(name, {y}) == numbers
    assert builder.getInt64VectorNodeAttribute("__collectiveCommGroup", {y}) == [1, 4]
    assert builder.getInt64VectorNodeAttribute(name, {z}) == numbers
    plain = popart.TensorLocation().serialize()
    assert builder.getInt64VectorNodeAttribute(name, {u}) == plain
    with builder.outputTensorLocation():
        v = builder.aiOnnx.relu([u])
    assert builder.getInt64VectorNodeAttribute(name, {v}) == plain
    assert not builder.nodeHasAttribute("__collectiveCommGroup", {v})


def test_patterns() -> None:
    patterns = popart.Patterns(["OpToIdentity"])
    assert patterns.OpToIdentity
    assert not patterns.InPlace
    patterns.InPlace = True
    assert patterns.isPatternEnabled("InPlace")
    assert popart.Patterns(popart.PatternsLevel.Default).isPatternEnabled("SoftmaxGradDirect")
    assert message(lambda: popart.Patterns(["Inplace"])) == (
        "Unknown pattern Inplace, did you mean InPlace?"
    )
    for enabled in (True, False):
        said = message(lambda enabled=enabled: patterns.enablePattern("Nothing", enabled))
        assert said == "Unknown pattern Nothing."
    said = message(lambda: popart.Patterns().enablePattern("MatMulOp", False))
    assert said == "Pattern 'MatMulOp' is mandatory and cannot be disabled"
    assert message(lambda: training(patterns=patterns)) == "Pattern 'AbsGradOp' must be enabled"
    training(patterns=patterns.enableRuntimeAsserts(False))
    with pytest.raises(AttributeError):
        patterns.Nothing = True  # type: ignore[attr-defined]


def unary(operator: str, weight: bool, patterns: list[str]) -> popart.TrainingSession:
    """Trains x + w plus an operator of that sum (`weight`) or of x alone."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2])
    w = builder.addInitializedInputTensor(np.ones(2, np.float32))
    opset = builder.aiGraphcore if operator in ("expm1", "log1p") else builder.aiOnnx
    moved = builder.aiOnnx.add([x, w])
    y = getattr(opset, operator)([moved if weight else x])
    loss = builder.aiGraphcore.identityloss([builder.aiOnnx.add([y, moved])])
    return popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, [y]),
        loss,
        popart.ConstSGD(0.1),
        popart.DeviceManager().createCpuDevice(backend="reference"),
        patterns=popart.Patterns(patterns).enableRuntimeAsserts(False),
    )


@pytest.mark.parametrize(
    ("operator", "pattern"),
    [
        ("abs", "AbsGradOp"),
        ("cos", "CosGradOp"),
        ("cosh", "CoshOp"),
        ("exp", "ExpGradOp"),
        ("expm1", "Expm1GradOp"),
        ("log1p", "Log1pGradOp"),
        ("reciprocal", "ReciprocalGradOp"),
        ("sqrt", "SqrtGradOp"),
    ],
)
def test_a_gradient_needs_its_pattern(operator: str, pattern: str) -> None:
    session = unary(operator, True, [])
    said = message(session.prepareDevice)
    assert said.endswith(f"This op should have been removed by pattern {pattern}")
    unary(operator, True, [pattern]).prepareDevice()
    if operator != "cosh":
        unary(operator, False, []).prepareDevice()


@pytest.mark.parametrize(("place", "fails"), [(0, False), (1, True)])
def test_patterns_are_needed_for_the_operands_that_are_trained(place: int, fails: bool) -> None:
    builder = popart.Builder()
    given = [builder.addInputTensor("FLOAT", [2])]
    given.insert(place, builder.addInitializedInputTensor(np.ones(2, np.float32)))
    y = builder.aiOnnx.sub(given)
    loss = builder.aiGraphcore.identityloss([y])
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, [y]),
        loss,
        popart.ConstSGD(0.1),
        popart.DeviceManager().createCpuDevice(backend="reference"),
        patterns=popart.Patterns([]).enableRuntimeAsserts(False),
    )
    if fails:
        assert message(session.prepareDevice).endswith("by pattern SubtractArg1GradOp")
    else:
        session.prepareDevice()


def test_softmax_patterns_do_not_change_results() -> None:
    found = []
    for level in (popart.PatternsLevel.All, popart.PatternsLevel.Minimal):
        builder = popart.Builder()
        x = builder.addInputTensor("DOUBLE", [2, 3])
        labels = builder.addInputTensor("INT32", [2])
        w = builder.addInitializedInputTensor(np.eye(3) / 2, "w")
        loss = builder.aiGraphcore.nllloss(
            [builder.aiOnnx.softmax([builder.aiOnnx.matmul([x, w])]), labels]
        )
        session = popart.TrainingSession(
            builder.getModelProto(),
            popart.DataFlow(1, [f"Gradient___{w}"]),
            loss,
            popart.ConstSGD(0.1),
            popart.DeviceManager().createCpuDevice(backend="reference"),
            patterns=popart.Patterns(level),
        )
        session.prepareDevice()
        session.weightsFromHost()
        anchors = session.initAnchorArrays()
        data = {x: np.arange(6.0).reshape(2, 3), labels: np.int32([0, 2])}
        session.run(popart.PyStepIO(data, anchors))
        found.append(anchors[f"Gradient___{w}"])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12)


def test_offline_devices_only_compile() -> None:
    builder = popart.Builder()
    y = builder.aiOnnx.abs([builder.addInputTensor("FLOAT", [2], "x")])
    device = popart.DeviceManager().createOfflineIPUDevice({})
    flow = popart.DataFlow(1, [y])
    session = popart.InferenceSession(builder.getModelProto(), flow, device)
    assert message(session.prepareDevice) == "Trying to load an engine on an offline device"
    session.prepareDevice(loadEngine=False)
    assert session.getInfo(y).shape() == [2]
    stepio = popart.PyStepIO({"x": np.ones(2, np.float32)}, session.initAnchorArrays())
    assert message(lambda: session.run(stepio)) == (
        "Offline IPU device is not configured for execution"
    )
    assert device.connectionType is popart.DeviceConnectionType.Never and not device.isAttached
    assert message(device.attach) == "Cannot attach to offline device"
    assert message(device.detach) == "Cannot detach from offline device"


def test_devices() -> None:
    manager = popart.DeviceManager()
    with manager.createIpuModelDevice({"numIPUs": 2, "tilesPerIPU": "8"}) as device:
        assert (device.numIpus, device.tilesPerIPU, device.version) == (2, 8, "ipu2")
        assert (device.type, str(device.type)) == (popart.DeviceType.IpuModel, "ipu-model")
        assert device.isAttached
        assert repr(device) == (
            "Device Type:ipu-model Connection Type:always Id:0 Version:ipu2 NumIPUs:2 "
            "NumTilesPerIPU:8 DeviceIds: {}"
        )
    assert not device.isAttached
    assert manager.createCpuDevice().version == "<unknown-cpu>"
    offline = manager.createOfflineIPUDevice({})
    assert (offline.version, offline.ipuVersion, offline.id) == ("<offline-ipu>", "ipu2", 0)
    assert message(lambda: manager.acquireAvailableDevice(3)) == (
        "You have attempted to acquire 3 IPUs. The number of IPUs requested must be a power of two"
    )
    for device in (
        manager.acquireAvailableDevice(2),
        manager.tryAcquireAvailableDevice(2),
        *manager.enumerateDevices(numIpus=2),
    ):
        assert device is not None
        assert (str(device.type), device.numIpus, device.tilesPerIPU) == ("ipu", 2, 1472)
    found = manager.acquireDeviceById(5)
    assert (found.numIpus, found.id) == (1, 5)
    assert message(lambda: manager.createIpuModelDevice({"k": 1})) == (
        "Invalid option `k' passed to DevicexManager::createHostDevice for device type ipu-model. "
        "Valid options are [numIPUs tilesPerIPU compileIPUCode ipuVersion]"
    )
    assert popart.syncPatternFromString("full") is popart.SyncPattern.Full
    assert message(lambda: popart.syncPatternFromString("X")) == "Unknown syncPattern setting: X"


def test_a_step_attaches_the_device_again() -> None:
    device = popart.DeviceManager().createIpuModelDevice({})
    device.backend = "reference"
    session, step = training(deviceInfo=device)
    session.prepareDevice()
    session.weightsFromHost()
    device.detach()
    step()
    assert device.isAttached


def test_random_numbers_follow_the_seed(device: popart.DeviceInfo) -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [64])
    w = builder.addInitializedInputTensor(np.ones(64, np.float32))
    [y] = builder.aiOnnx.dropout([builder.aiOnnx.mul([x, w])], 1, 0.5)
    loss = builder.aiGraphcore.l1loss([y], 1.0)
    session = popart.TrainingSession(
        builder.getModelProto(), popart.DataFlow(2, [y]), loss, popart.ConstSGD(1e-9), device
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    stepio = popart.PyStepIO({x: np.ones((2, 64), np.float32)}, anchors)
    seen = []
    for seed in (1, 1, 2):
        session.setRandomSeed(seed)
        session.run(stepio)
        seen.append(anchors[y].copy())
    np.testing.assert_array_equal(seen[0] != 0, seen[1] != 0)
    assert ((seen[0] != 0) != (seen[2] != 0)).any()
    assert ((seen[0][0] != 0) != (seen[0][1] != 0)).any()
    np.testing.assert_allclose(seen[0][seen[0] != 0], 2.0, rtol=1e-6)
    assert session.getRandomSeed() != 2


def test_a_seed_needs_a_compiled_program() -> None:
    builder = popart.Builder()
    flow = popart.DataFlow(1, [builder.aiOnnx.randomnormal([2])])
    session = popart.InferenceSession(builder.getModelProto(), flow)
    assert message(lambda: session.setRandomSeed(1)) == (
        "Devicex::prepare() must be called before Devicex::setRandomSeedFromHost(uint64_t) is "
        "called."
    )


@pytest.mark.parametrize("way", ["AvailableDevice", "DeviceById"])
def test_a_program_may_replace_acquire_by_try_acquire(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = getattr(popart.DeviceManager, f"tryAcquire{way}")
    monkeypatch.setattr(popart.DeviceManager, f"acquire{way}", tried)
    device = getattr(popart.DeviceManager(), f"acquire{way}")(1)
    assert device.numIpus == 1


def normals(device: popart.DeviceInfo) -> tuple[popart.InferenceSession, Callable[[], Array]]:
    """A session that draws 2048 normal numbers, and a function that runs one step of it."""
    builder = popart.Builder()
    y = builder.aiOnnx.randomnormal([2048])
    builder.addOutputTensor(y)
    session = popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [y]), device)
    session.prepareDevice()
    anchors = session.initAnchorArrays()

    def step() -> Array:
        session.run(popart.PyStepIO({}, anchors))
        return anchors[y].copy()

    return session, step


def test_steps_are_not_seeds(device: popart.DeviceInfo) -> None:
    """All pairs of seed and step draw different numbers, e.g. seed 1, step 0 and seed 0, step 1."""
    session, step = normals(device)
    drawn = []
    for seed in (0, 1, 2, 2**64 - 1):
        session.setRandomSeed(seed)
        drawn += [step() for _ in range(3)]
    assert np.unique(np.concatenate(drawn)).size > 0.98 * 2048 * len(drawn)
    assert np.abs(np.corrcoef(drawn) - np.eye(len(drawn))).max() < 7 / 2048**0.5
    for numbers in drawn:
        assert numbers[0] != 0
        assert abs(numbers.mean()) < 7 / 2048**0.5 and abs(numbers.std() - 1) < 5 / 2048**0.5


def test_a_restored_seed_continues_the_sequence(device: popart.DeviceInfo) -> None:
    session, step = normals(device)
    session.setRandomSeed(2**64 - 2)
    step()
    kept = session.getRandomSeed()
    following = [step(), step()]
    other, step = normals(device)
    other.setRandomSeed(kept)
    np.testing.assert_array_equal([step(), step()], following)
    session.setRandomSeed(3)
    assert session.getRandomSeed() == 3
    with pytest.raises(
        popart.popart_exception, match="a seed must be an integer from 0 to 2\\^64 - 1"
    ):
        session.setRandomSeed(-1)


def test_both_backends_draw_the_same_bits() -> None:
    """Uniform numbers and masks are equal to the bit; normal ones up to rounding."""
    found = []
    for backend in ("reference", "c"):
        builder = popart.Builder()
        x = builder.addInitializedInputTensor(np.ones((3, 77), np.float32), "x")
        dropped = builder.aiOnnx.dropout([x], 1, 0.25)[0]
        noise = builder.aiOnnx.randomuniformlike([x], low=-1.0)
        loss = builder.aiGraphcore.l1loss([builder.aiOnnx.mul([dropped, noise])], 1.0)
        names = [dropped, noise, popart.reservedGradientPrefix() + x]
        device = popart.DeviceManager().createCpuDevice(backend=backend)
        session = popart.TrainingSession(
            builder.getModelProto(), popart.DataFlow(2, names), loss, popart.ConstSGD(1e-6), device
        )
        session.prepareDevice()
        session.setRandomSeed(5)
        session.weightsFromHost()
        anchors = session.initAnchorArrays()
        session.run(popart.PyStepIO({}, anchors))
        found.append(anchors)
    reference, compiled = found
    assert reference[noise].tobytes() == compiled[noise].tobytes()
    for name in (dropped, names[-1]):  # Dropped elements have zero gradients.
        np.testing.assert_array_equal(reference[name] != 0, reference[dropped] != 0)
        np.testing.assert_array_equal(compiled[name] != 0, reference[dropped] != 0)


def test_errors_of_all_stages_are_popart_exceptions() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2])
    y = builder.customOp("Nonsense", 1, "com.example", [x], {}, 1)[0]
    with pytest.raises(popart.popart_exception, match="Nonsense") as caught:
        popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [y]))
    assert isinstance(caught.value, PopgraphError)
    assert isinstance(caught.value, UnsupportedError)


@pytest.mark.parametrize("op", ["argmax", "argmin"])
@pytest.mark.parametrize("training", [False, True])
def test_argmax_and_argmin_return_int32(op: str, training: bool) -> None:
    builder = popart.Builder()
    x = builder.addInitializedInputTensor(np.array([[3, 1, 2], [0, 5, 4]], np.float32), "x")
    found = getattr(builder.aiOnnx, op)([x], axis=1, keepdims=0)
    far = builder.aiOnnx.mul([found, builder.aiOnnx.constant(np.array(2**40))])
    loss = builder.aiGraphcore.identityloss([x])
    flow = popart.DataFlow(1, [found, far])
    device = popart.DeviceManager().createCpuDevice()
    model = builder.getModelProto()
    session: Any = (
        popart.TrainingSession(model, flow, loss, popart.ConstSGD(0.1), device)
        if training
        else popart.InferenceSession(model, flow, device)
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({}, anchors))
    expected = [0, 1] if op == "argmax" else [1, 0]
    assert anchors[found].dtype == np.int32
    assert anchors[found].tolist() == expected
    assert session.getInfo(found).data_type() == "INT32"
    assert anchors[far].tolist() == [2**40 * place for place in expected]


def test_seeds_of_one_operator_are_refused() -> None:
    builder = popart.Builder()
    y = builder.aiOnnx.randomnormal([2], seed=3.0)
    with pytest.raises(popart.popart_exception, match="Use session::setRandomSeed instead"):
        popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [y]))


def test_random_doubles_are_refused() -> None:
    builder = popart.Builder()
    y = builder.aiOnnx.randomuniform([2], dtype=11)
    with pytest.raises(popart.popart_exception, match="DOUBLE is not supported in Poplar"):
        popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [y]))


@pytest.mark.parametrize("name", ["INT8", "UINT8", "INT16", "UINT16", "UINT32", "UINT64", "BOOL"])
def test_anchors_have_any_type(name: str) -> None:
    builder = popart.Builder()
    x = builder.addInputTensor(name, [2])
    y = builder.aiOnnx.identity([x])
    flow = popart.DataFlow(2, [x, y])
    session = popart.InferenceSession(builder.getModelProto(), flow)
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    given = np.array([[1, 0], [1, 1]]).astype(anchors[y].dtype)
    session.run(popart.PyStepIO({x: given}, anchors))
    assert anchors[y].dtype.name == name.lower()
    for found in anchors.values():
        np.testing.assert_array_equal(found, given)
