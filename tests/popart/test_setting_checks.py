"""Tests PopART's errors for incompatible options and patterns."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import popgraph.popart as popart
from popgraph.popart.api.builder import Builder
from popgraph.popart.exceptions import popart_exception, popart_runtime_error


def network() -> tuple[Builder, str]:
    builder = popart.Builder()
    return builder, str(builder.aiOnnx.exp([builder.addInputTensor("FLOAT", [2])]))


def session(**options: object) -> popart.InferenceSession:
    builder, output = network()
    given = popart.SessionOptions()
    for name, value in options.items():
        setattr(given, name, value)
    flow = popart.DataFlow(1, [output])
    return popart.InferenceSession(builder.getModelProto(), flow, userOptions=given)


def test_incompatible_options() -> None:
    with pytest.raises(popart_exception, match="not supported with implicit recomputation"):
        session(aliasZeroCopy=True)
    session(aliasZeroCopy=True, explicitRecomputation=True)
    phases = popart.ExecutionPhaseSettings()
    phases.phases = 2
    with pytest.raises(popart_exception, match="> 1 execution phases requires"):
        session(executionPhaseSettings=phases)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {
                "accumulateOuterFragmentSettings": popart.AccumulateOuterFragmentSettings(
                    popart.AccumulateOuterFragmentSchedule.Serial
                ),
                "replicatedCollectivesSettings": popart.ReplicatedCollectivesSettings(
                    prepareScheduleForMergingCollectives=True
                ),
            },
            "Incompatible accumulateOuterFragmentSchedule used with session option",
        ),
        ({"gclOptions": {"fast": "true"}}, "'fast' is not a valid gcl option. Valid options are"),
    ],
)
def test_options_of_transforms(given: dict[str, object], words: str) -> None:
    with pytest.raises(popart_exception) as caught:
        session(**given)
    assert words in str(caught.value)


PLACED = {"virtualGraphMode": popart.VirtualGraphMode.Manual}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"replicatedGraphCount": 2}, "enableReplicatedGraphs is false, but replicatedGraphCount"),
        ({"numIOTiles": 31, **PLACED}, "31 is an invalid number of IO tiles"),
        (
            {"numIOTiles": 34, **PLACED},
            "Tiles per IPU 4 should exceed number of IO",
        ),
    ],
)
def test_options_that_the_device_refuses(given: dict[str, Any], words: str) -> None:
    builder, output = network()
    builder.virtualGraph(output, 0)
    options = popart.SessionOptions()
    for name, value in given.items():
        setattr(options, name, value)
    ipus = {"numIPUs": options.replicatedGraphCount, "tilesPerIPU": 4}
    device = popart.DeviceManager().createIpuModelDevice(ipus)
    flow = popart.DataFlow(1, [output])
    made = popart.InferenceSession(builder.getModelProto(), flow, device, userOptions=options)
    with pytest.raises(popart_exception) as caught:
        made.prepareDevice()
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        (popart.ExchangeStrategy.OverlapStep, "OverlapStep is not yet supported"),
        (popart.ExchangeStrategy.OverlapLoops, "require SessionOptions::useHostCopyOps"),
    ],
)
def test_anchors_that_cannot_overlap(strategy: popart.ExchangeStrategy, words: str) -> None:
    builder, output = network()
    returned = popart.AnchorReturnType("All", popart.TileSet.Compute, strategy)
    flow = popart.DataFlow(1, {output: returned})
    with pytest.raises(popart_exception, match=words):
        popart.InferenceSession(builder.getModelProto(), flow)


def test_patterns_are_a_list_of_names() -> None:
    assert not popart.Patterns(level=popart.PatternsLevel.Minimal).InPlace
    with pytest.raises(TypeError, match="incompatible constructor arguments"):
        popart.Patterns("InPlace")
    assert popart.Patterns(["InPlace"]).isPatternEnabled("InPlace")


def test_a_node_without_its_pattern_cannot_be_compiled() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2])
    y = builder.aiOnnx.cosh([x])
    builder.excludePatterns(y, ["CoshOp"])
    flow = popart.DataFlow(1, [y])
    with pytest.raises(popart_exception, match="should have been removed by pattern CoshOp"):
        popart.InferenceSession(builder.getModelProto(), flow).prepareDevice()


def scaled(
    elements: str = "FLOAT16", constant: bool = False, **given: object
) -> popart.TrainingSession:
    """A session with automatic loss scaling."""
    builder = popart.Builder()
    x = builder.addInputTensor(elements, [2, 2])
    w = builder.addInitializedInputTensor(
        np.ones((2, 2), np.float16 if elements == "FLOAT16" else np.float32)
    )
    loss = builder.aiGraphcore.l1loss([builder.aiOnnx.matmul([x, w])], 1.0)
    options = popart.SessionOptions()
    options.automaticLossScalingSettings.enabled = True
    for name, value in given.items():
        setattr(options.automaticLossScalingSettings, name, value)
    rule = popart.SGD({"lossScaling": (2.0, constant)})
    flow = popart.DataFlow(1, [loss])
    return popart.TrainingSession(builder.getModelProto(), flow, loss, rule, userOptions=options)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"constant": True}, "The optimizer must have non-const loss scaling"),
        ({"elements": "FLOAT"}, "No tracked gradient tensors of type fp16 were found"),
        ({"binEdgeLocation": 1.5}, "Out of range value for 'binEdgeLocation'"),
        (
            {"thresholdUpperCountProportion": -0.5},
            "^Out of range value for 'thresholdUpperCountProportion'. The current value is -0.5",
        ),
        ({"toTrackTensors": ["x"]}, "toTrackTensors has been set, but"),
        (
            {
                "gradientTensorTrackingMethod": (
                    popart.GradientTensorTrackingMethod.GradientsOfUserSpecifiedTensors
                )
            },
            "but 'toTrackTensors' has not been set",
        ),
        ({"updatePeriod": 0}, "updatePeriod is 0, and must be at least 1"),
        ({"toTrackTensors": []}, "An empty list was set as the value of 'toTrackTensors'"),
        (
            {
                "toTrackTensors": ["x", "nothing"],
                "gradientTensorTrackingMethod": (
                    popart.GradientTensorTrackingMethod.GradientsOfUserSpecifiedTensors
                ),
            },
            "Some of the tensors in the .* list do not exist in the model",
        ),
    ],
)
def test_a_loss_scale_that_cannot_follow_the_gradients(given: dict[str, Any], words: str) -> None:
    with pytest.raises(popart_exception, match=words):
        scaled(**given)


PIPELINE = {"enablePipelining": True, "virtualGraphMode": popart.VirtualGraphMode.Manual}
LOOPS = {"enableExplicitMainLoops": True, "useHostCopyOps": True}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "is not supported without implicit pipelining"),
        (PIPELINE | LOOPS, "is not supported with explicit pipelining"),
        (PIPELINE, "is not supported without gradient accumulation"),
    ],
)
def test_invalid_forward_only_programs(given: dict[str, Any], words: str) -> None:
    with pytest.raises(popart_exception, match=f"^Implicit .* forward-only program {words}"):
        session(createImplicitPipeliningFwdOnlyProgram=True, **given)


def test_a_pipeline_that_clips_gradients_cannot_do_so_in_order() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 2])
    w = builder.addInitializedInputTensor(np.ones((2, 2), np.float32))
    loss = builder.aiGraphcore.l1loss([builder.aiOnnx.matmul([x, w])], 1.0)
    options = popart.SessionOptions()
    options.enablePipelining = True
    clip = popart.ClipNormSettings.clipAllWeights(1.0)
    rule = popart.SGD({"defaultLearningRate": (0.1, True)}, [clip])
    flow = popart.DataFlow(1, [loss])
    with pytest.raises(popart_exception, match=r"schedule can not be set to .*::Serial"):
        popart.TrainingSession(builder.getModelProto(), flow, loss, rule, userOptions=options)


def test_inputs_that_cannot_overlap() -> None:
    for strategy, words in (("OverlapStep", "not yet supported"), ("OverlapLoops", "require")):
        builder = popart.Builder()
        chosen = popart.ExchangeStrategy[strategy]
        settings = popart.InputSettings(popart.TileSet.Compute, chosen)
        x = builder.addInputTensor("FLOAT", [2], settings, "x")
        flow = popart.DataFlow(1, [builder.aiOnnx.exp([x])])
        with pytest.raises(popart_exception, match=words):
            popart.InferenceSession(builder.getModelProto(), flow)


def test_explicit_loops_return_no_nth_anchor() -> None:
    builder, output = network()
    options = popart.SessionOptions()
    options.enableExplicitIR(True)
    flow = popart.DataFlow(2, {output: popart.AnchorReturnType("EveryN", 2)})
    with pytest.raises(popart_exception, match=f'::EveryN for Tensor "{output}" is unsupported'):
        popart.InferenceSession(builder.getModelProto(), flow, userOptions=options)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"defaultBufferingDepth": 0}, "a buffering depth of 0 for tensor input"),
        ({"bufferingDepthMap": {"input": 0}}, "a buffering depth of 0 for tensor input"),
        (
            {"bufferingDepthMap": {"input": 2}, "rearrangeStreamsOnHost": True},
            "depth >1 for tensor input because the stream is set to rearrange on the host",
        ),
    ],
)
def test_invalid_buffering_depths(given: dict[str, Any], words: str) -> None:
    made = session(**given)
    with pytest.raises(popart_exception, match=words):
        made.prepareDevice()
    session(bufferingDepthMap={"input": 2}).prepareDevice()


def test_invalid_numbers_of_phases(caplog: pytest.LogCaptureFixture) -> None:
    phases = popart.ExecutionPhaseSettings()
    phases.phases = 1
    mode = popart.VirtualGraphMode.ExecutionPhases
    session(executionPhaseSettings=phases, virtualGraphMode=mode)
    assert "Phased execution was enabled but only 1 phases were defined" in caplog.text
    builder, output = network()
    builder.executionPhase(output, 2)
    options = popart.SessionOptions()
    options.executionPhaseSettings.phases, options.virtualGraphMode = 2, mode
    flow = popart.DataFlow(1, [output])
    with pytest.raises(popart_exception, match=r"Maximum phase is 1, but op .* has phase 2\."):
        popart.InferenceSession(builder.getModelProto(), flow, userOptions=options)


def test_a_phase_is_on_the_ipu_of_its_number() -> None:
    """Two stages alternate; a node that reads a later phase is moved to that phase."""
    options = popart.SessionOptions()
    options.executionPhaseSettings.phases = 4
    options.virtualGraphMode = popart.VirtualGraphMode.ExecutionPhases

    def placed(*places: tuple[int, int]) -> None:
        builder = popart.Builder()
        y = builder.addInputTensor("FLOAT", [2])
        for phase, ipu in places:
            y = builder.aiOnnx.exp([y])
            builder.executionPhase(y, phase)
            builder.virtualGraph(y, ipu)
        flow = popart.DataFlow(1, [y])
        popart.InferenceSession(builder.getModelProto(), flow, userOptions=options)

    placed((0, 0), (1, 1), (2, 0))
    for places, phase, ipu in ((((1, 0),), 1, 0), (((0, 0), (3, 1), (2, 0)), 3, 0)):
        words = f"inconsistent execution phase {phase} and virtual graph ID {ipu}"
        with pytest.raises(popart_exception, match=words):
            placed(*places)


@pytest.mark.parametrize("explicit", [False, True])
def test_only_pipelines_recompute_by_stages(explicit: bool) -> None:
    kind = popart.RecomputationType.Pipeline
    with pytest.raises(popart_exception, match="Invalid RecomputationType::Pipeline in autoAnno"):
        session(autoRecomputation=kind, explicitRecomputation=explicit)


def test_a_loss_scale_follows_gradients_only_in_training() -> None:
    settings = popart.AutomaticLossScalingSettings(enabled=True)
    with pytest.raises(popart_exception, match="Only compatible when doing training"):
        session(automaticLossScalingSettings=settings)


def test_cycles_are_counted_after_a_run_if_at_all() -> None:
    for counted, words in ((False, "must be set to true"), (True, "Invalid id for cycle counter")):
        made = session(instrumentWithHardwareCycleCounter=counted)
        made.prepareDevice()
        with pytest.raises(popart_runtime_error, match=r"Must call run before getCycleCount\."):
            made.getCycleCount()
        anchors = made.initAnchorArrays()
        made.run(popart.PyStepIO({"input": np.ones(2, np.float32)}, anchors))
        with pytest.raises(popart_runtime_error, match=words):
            made.getCycleCount("x")


CLIP = popart.ClipNormSettings


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ([CLIP.clipAllWeights(1.0), CLIP.clipWeights(["w"], 1.0)], "Multiple clip groups"),
        ([CLIP.clipWeights(["no"], 1.0)], r"No Ir::Tensor with TensorId 'no' in Tensors"),
    ],
)
def test_clipping_of_weights_without_update(groups: list[Any], words: str) -> None:
    builder = Builder()
    value = builder.addInputTensor("FLOAT", [2])
    for name in ("w", "v"):
        weight = builder.addInitializedInputTensor(np.ones(2, np.float32), name)
        value = builder.aiOnnx.mul([value, weight])
    loss = builder.aiGraphcore.l1loss([value], 0.1)
    with pytest.raises(popart_exception, match=words):
        popart.TrainingSession(
            builder.getModelProto(),
            popart.DataFlow(1, [loss]),
            loss,
            popart.SGD({}, clip_norm_settings=groups),
        )


def test_inputs_have_unique_names() -> None:
    builder = Builder()
    y = builder.aiOnnx.relu([builder.addInputTensor("FLOAT", [2], "x")])
    builder.addOutputTensor(y)
    model = onnx.load_from_string(builder.getModelProto())
    model.graph.input.append(model.graph.input[0])
    words = r"Invalid ONNX Model : repeated name: \(x\) in input list"
    with pytest.raises(popart_exception, match=words):
        popart.InferenceSession(model.SerializeToString(), popart.DataFlow(1, [y]))


def test_hardware_is_not_acquired_with_connection_type_never() -> None:
    never = popart.DeviceConnectionType.Never
    manager = popart.DeviceManager()
    for acquire in (manager.acquireAvailableDevice, manager.tryAcquireAvailableDevice):
        with pytest.raises(popart_exception, match="when connectionType is DeviceConnectionType::"):
            acquire(1, connectionType=never)
    for find in (manager.acquireDeviceById, manager.tryAcquireDeviceById):
        with pytest.raises(popart_exception, match="when connectionType is DeviceConnectionType::"):
            find(0, connectionType=never)


def test_threads_of_the_environment_are_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POPGRAPH_THREADS", "2")
    assert popart.DeviceManager().createCpuDevice().threads == 2
    for wrong in ("two", "0", "-1"):
        monkeypatch.setenv("POPGRAPH_THREADS", wrong)
        with pytest.raises(popart.popart_exception, match=f"POPGRAPH_THREADS is '{wrong}'"):
            popart.DeviceManager().createCpuDevice()
