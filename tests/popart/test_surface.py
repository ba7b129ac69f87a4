"""Tests that the table of PopART's names matches the implementation."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from importlib import import_module
from typing import Any

import pytest

from popgraph import popart as session
from popgraph.builder.opset import enums
from popgraph.compat import disable, enable, popart
from popgraph.passes.graphcore.fuse_softmax_loss import FuseSoftmaxLoss
from popgraph.popart.api.builder import Builder
from popgraph.popart.api.options import SessionOptions
from popgraph.popart.api.patterns import FUSING, FUSING_PASS, PATTERNS
from popgraph.popart.refusals.options import NOT_IMPLEMENTED
from popgraph.popart.sessions.inference_session import InferenceSession
from popgraph.popart.sessions.session import Session
from popgraph.popart.sessions.training_session import TrainingSession
from popgraph.popart.surface import OURS, Effect, entries, options, patterns
from popgraph.support import dtypes

ALL = list(entries())
OWN_OPTIONS = {
    "enableQuickStart",
    "enableStraightThrough",
    "enableWinograd",
    "indices",
    "scheduleFile",
} | {
    "exchangeBucketBytes",
    "exchangeType",
    "overlapStages",
    "gradients_sharded_from",
    "states_sharded_from",
    "weights_sharded_from",
    "useTunedSchedules",
    "compilation",
    "log_ignored_options",
}


def listed(owner: str) -> set[str]:
    """The names of an owner in the table."""
    return {one.name for one in ALL if one.owner == owner}


def public(thing: object) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


def test_types_have_the_numbers_of_popart() -> None:
    """Builders write these numbers into models, and passes read them."""
    assert [member.name for member in enums.DataType] == list(dtypes.POPART_ORDER)
    assert [int(member) for member in enums.DataType] == [*range(len(dtypes.POPART_ORDER))]
    builder = Builder()
    zeros = builder.aiGraphcore.init([2], enums.DataType.FLOAT16, enums.InitType.Zero)
    assert builder.getInt64NodeAttribute("data_type", {zeros}) == int(enums.DataType.FLOAT16)
    assert builder.getTensorDtypeString(zeros) == "float16"


def test_each_name_is_listed_once() -> None:
    twice = [key for key, n in Counter((one.owner, one.name) for one in ALL).items() if n > 1]
    assert not twice


def test_names_without_effect_have_a_reason() -> None:
    quiet = (Effect.QUIET, Effect.REFUSED)
    assert not [one for one in ALL if one.effect in quiet and not one.why]
    assert not [one for one in (*options(), *patterns()) if not one.why]


def test_every_name_of_the_module_resolves() -> None:
    assert not [name for name in dir(popart) if not hasattr(popart, name)]


def test_own_and_limited_names_exist() -> None:
    owners = (Builder, InferenceSession, TrainingSession, Session)
    for owner in owners:
        name = owner.__name__
        said = {*OURS[name].split(), *(one.name for one in ALL if one.owner == name and one.why)}
        assert said <= public(owner)


def test_the_table_is_that_of_the_options() -> None:
    names = public(SessionOptions) | {"_enableRngStateManagement"}
    assert listed("SessionOptions") == names - OWN_OPTIONS
    assert {one.name for one in fields(SessionOptions)} <= names


def test_the_table_is_that_of_the_patterns() -> None:
    assert {one.name for one in ALL if one.owner == "Patterns"} == PATTERNS
    works = {one.name for one in patterns() if one.effect is not Effect.NONE}
    assert works == FUSING
    assert FuseSoftmaxLoss.name == FUSING_PASS


def test_refused_options_match_the_session() -> None:
    refused = {one.name for one in options() if one.effect is Effect.REFUSED}
    assert refused == set(NOT_IMPLEMENTED)


@pytest.mark.parametrize("version", range(6, 12))
def test_operator_sets_have_classes_and_modules(version: int) -> None:
    kind = getattr(popart, f"AiOnnxOpset{version}")
    assert isinstance(session.Builder().aiOnnxOpset(version), kind)
    enable()
    try:
        assert getattr(import_module(f"popart_opset{version}"), f"AiOnnxOpset{version}") is kind
    finally:
        disable()


NUMBERED = """
AdamMode: Adam AdamNoBias AdaMax Lamb LambNoBias
AnchorReturnTypeId: Final EveryN All Sum
GradientTensorTrackingMethod: AllNonViewChangingGradientTensors ConvAndMatmulGradients
MergeVarUpdateType: Off All AutoLoose AutoTight
PatternsLevel: NoPatterns Minimal Default All
RecomputationType: NoRecompute Standard NormOnly Pipeline RecomputeAll
ReductionType: Sum Mean NoReduction
ReplicatedStreamMode: Broadcast Replicate
DataType: UINT8 INT8 FLOAT8_143 FLOAT8_152 UINT16 INT16 INT32 INT64 UINT32 UINT64 BOOL FLOAT FLOAT16
"""


def test_members_have_popart_s_numbers() -> None:
    for name, _, members in (line.partition(": ") for line in NUMBERED.strip().splitlines()):
        enum = getattr(popart, name)
        for number, member in enumerate(members.split()):
            assert int(enum[member]) == number, (name, member)
            assert enum(number) is enum[member]


def test_arguments_have_all_their_names() -> None:
    settings = session.TensorLocationSettings(storage=session.TensorStorage.OffChip)
    assert settings.location.storage is session.TensorStorage.OffChip
    settings = session.TensorLocationSettings(session.TensorStorage.OffChip, 0)
    assert settings.location.storage is session.TensorStorage.OffChip
    batch = session.ExecutionPhaseSchedule.Batch
    assert session.ExecutionPhaseSettings(optimizerSchedule=batch).schedule is batch
    builder = Builder()
    product = builder.aiOnnx.matmul([builder.addInputTensor("FLOAT", [2, 2])] * 2)
    for name, share in (("nodeOutputName", 0.5), ("nodeOutputNames", 0.25)):
        builder.setAvailableMemoryProportion(**{name: product}, availableMemoryProportion=share)
        assert builder.getFloatNodeAttribute("__available_memory", {product}) == share
        again = builder.aiOnnx.abs([product])
        builder.recomputeOutputInBackwardPass(**{name: again})
        assert builder.getRecomputeOutputInBackwardPass(**{name: again})
    with pytest.raises(TypeError, match="incompatible function arguments"):
        builder.setAvailableMemoryProportion(product)


def test_private_names_of_popart_s_binding() -> None:
    builder = Builder()
    y = builder.aiOnnx.abs([builder.addInputTensor("FLOAT", [2])])
    options, below = session.SessionOptions(), "_{}Options"
    setattr(options, below.format("engine"), {"debug.allowOutOfMemory": "true"})
    assert options.engineOptions == {"debug.allowOutOfMemory": "true"}
    for name in ("convolution", "lstm", "matmul", "report", "gcl"):
        assert getattr(options, below.format(name)) is getattr(options, f"{name}Options")
    assert getattr(options, f"_{LOCATIONS}") is options.tensorLocationSettingsOverride
    flow = session.DataFlow(3, [y])
    made = session.InferenceSession(builder.getModelProto(), flow, userOptions=options)
    found = {name: getattr(made, f"_{name}")() for name in OF_A_SESSION}
    assert found == {"getDataFlow": flow, "replicationFactor": 1, "accumulationFactor": 1}
    device = session.DeviceManager().createCpuDevice(backend="reference")
    getattr(made, "_" + "setDeviceInfo")(device)
    made.prepareDevice()


LOCATIONS = "tensorLocationSettingsOverride"
OF_A_SESSION = ("getDataFlow", "replicationFactor", "accumulationFactor")


def test_operands_may_be_left_out_where_the_binding_has_a_default() -> None:
    own: Any = Builder().aiGraphcore
    for call in (
        lambda: own.scatterreduce(axis_size=4),
        lambda: own.groupedscatterreduce(axis_size=4, axis=0),
        lambda: own.incrementmod(increment=1.0, modulus=2.0),
        lambda: own.bucketize(),
    ):
        with pytest.raises(session.popart_exception, match="has invalid number of inputs 0"):
            call()
    device = session.DeviceManager().createOfflineIPUDevice(opts={})
    assert device.type is session.DeviceType.OfflineIpu
