"""Tests PopART's IR of batches that are computed in parts."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import popgraph.session as popart
from popgraph.builder.opset.enums import (
    BatchSerializationBatchSchedule,
    BatchSerializationMethod,
    BatchSerializationTransformContext,
)
from tests.session.popart_graphs import inferred, layers, minimal, options, trained, types, weight


def in_parts(factor: int, **given: object) -> popart.SessionOptions:
    settings = popart.BatchSerializationSettings()
    settings.factor = factor
    for name, value in given.items():
        setattr(settings, name, value)
    return options(batchSerializationSettings=settings)


STATIC = {"method": BatchSerializationMethod.UnrollStatic}
BACKWARD = {"transformContext": BatchSerializationTransformContext.Bwd}


def linear(shape: tuple[int, int] = (8, 4)) -> tuple[Any, str]:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", list(shape), "x")
    return builder, str(builder.aiOnnx.exp([builder.aiOnnx.matmul([x, weight(builder, 4, 3)])]))


def test_a_batch_is_cut_and_its_results_are_written_into_one_tensor() -> None:
    builder, y = linear()
    graph = inferred(builder, y, patterns=minimal(), given=in_parts(2))["maingraph"]
    counts = Counter(op["type"] for op in graph)
    assert counts["DynamicSlice"] == counts["DynamicUpdate"] == counts["Exp"] == 2
    assert counts["MatMul"] == 2 and counts["Init"] == 1
    first = next(op for op in graph if op["type"] == "DynamicSlice")
    assert [one["shape"] for one in first["inputs"]] == ["[2 4 4]", "[1]"]
    assert first["inputs"][1]["name"] == "Index___0_Compute"
    last = graph[-1]
    assert (last["type"], last["inputs"][0]["shape"]) == ("Reshape", "[2 4 3]")
    assert last["outputs"][0]["name"] == y


def test_rows_of_their_own_need_no_other_shape() -> None:
    builder, y = linear((2, 4))
    found = types(inferred(builder, y, patterns=minimal(), given=in_parts(2)))
    assert found.count("Reshape") == 5  # of products: two operands that are parts, and a weight
    assert found[-1] == "DynamicUpdate"


def test_parts_that_are_unrolled_statically_are_slices_that_are_concatenated() -> None:
    builder, y = linear()
    found = Counter(types(inferred(builder, y, patterns=minimal(), given=in_parts(4, **STATIC))))
    assert found["Slice"] == found["MatMul"] == 4
    assert found["Concat"] == 1
    assert not found["DynamicSlice"] and not found["Init"]


def test_what_has_no_parts_reads_whole_tensors() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [4, 2, 5, 5], "x")
    turned = builder.aiOnnx.conv([builder.aiOnnx.exp([x]), weight(builder, 3, 2, 3, 3)])
    y = builder.aiOnnx.relu([turned])
    given = in_parts(2, **STATIC)
    found = types(inferred(builder, y, patterns=minimal(), given=given))
    assert found[:4] == ["Slice", "Exp"] * 2
    assert found[found.index("Conv") - 1] == "Concat"
    assert Counter(found) == Counter(Slice=4, Exp=2, Concat=2, Conv=1, Relu=2)


@pytest.mark.parametrize("context", [{}, BACKWARD])
def test_gradients_are_computed_by_parts_and_summed(context: dict[str, object]) -> None:
    builder = popart.Builder()
    loss = layers(builder, 1)
    graph = trained(builder, loss, "Gradient___w0", given=in_parts(4, **context))["maingraph"]
    counts = Counter(op["type"] for op in graph)
    assert counts["ReluGrad"] == counts["NlllWithSoftmaxGradDirect"] == 4
    assert counts["MatMul"] == 8
    assert counts["Sum"] == counts["SGD0VarUpdate"] == 1
    assert bool(counts["Scale"] + counts["ScaleInplace"]) == bool(context)
    mean = next(op for op in graph if op["type"] == "Mean")
    assert len(mean["inputs"]) == 4


@pytest.mark.parametrize("schedule", list(BatchSerializationBatchSchedule))
def test_parts_follow_each_other_unless_the_scheduler_decides(
    schedule: BatchSerializationBatchSchedule,
) -> None:
    builder, y = linear()
    given = in_parts(2, batchSchedule=schedule, **STATIC)
    found = types(inferred(builder, y, patterns=minimal(), given=given))
    inner = [type_ for type_ in found if type_ in ("Slice", "MatMul", "Exp")]
    apart = inner == ["Slice", "MatMul", "Exp"] * 2
    assert apart == (schedule is not BatchSerializationBatchSchedule.Scheduler)


def test_parts_stop_where_another_ipu_reads_them_if_that_is_asked_for() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [4, 2], "x")
    with builder.virtualGraph(0):
        hidden = builder.aiOnnx.exp([x])
    with builder.virtualGraph(1):
        y = builder.aiOnnx.sigmoid([hidden])
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 2})
    for concatenated, copies in ((True, 1), (False, 2)):
        given = in_parts(2, concatOnVirtualGraphChange=concatenated, **STATIC)
        given.virtualGraphMode = popart.VirtualGraphMode.Manual
        found = Counter(types(inferred(builder, y, patterns=minimal(), given=given, device=device)))
        assert (found["IpuCopy"], found["Concat"]) == (copies, 1 + concatenated)
        assert found["Sigmoid"] == 2
