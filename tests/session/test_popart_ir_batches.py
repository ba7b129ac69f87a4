"""Tests PopART's IR of batches that are computed in parts."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import popgraph.session as popart
from popgraph.builder.opset.enums import (
    BatchSerializationBatchSchedule,
    BatchSerializationMethod,
    BatchSerializationTransformContext,
)
from popgraph.session.popart_ir.graph import Op, OpGraph
from tests.session.popart_graphs import inferred, layers, minimal, options, trained, types, weight


def in_parts(factor: int, **given: object) -> popart.SessionOptions:
    settings = popart.BatchSerializationSettings()
    settings.factor = factor
    for name, value in given.items():
        setattr(settings, name, value)
    return options(batchSerializationSettings=settings)


STATIC = {"method": BatchSerializationMethod.UnrollStatic}
LOOP = {"method": BatchSerializationMethod.Loop}
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
def test_parts_follow_each_other_in_every_schedule(
    schedule: BatchSerializationBatchSchedule,
) -> None:
    builder, y = linear()
    given = in_parts(2, batchSchedule=schedule, **STATIC)
    found = types(inferred(builder, y, patterns=minimal(), given=given))
    inner = [type_ for type_ in found if type_ in ("Slice", "MatMul", "Exp")]
    assert inner == ["Slice", "MatMul", "Exp"] * 2


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


# parts in the turns of a loop


def test_a_loop_computes_a_part_in_each_turn() -> None:
    builder, y = linear()
    graphs = inferred(builder, y, patterns=minimal(), given=in_parts(2, **LOOP))
    main, body = graphs["maingraph"], graphs["loop_subgraph(0)"]
    loop = main[-1]
    assert [op["type"] for op in main] == ["Reshape", "Init", "Loop"]
    assert loop["attributes"]["tripCountValue"] == "2"
    assert loop["attributes"]["callee"] == "loop_subgraph(0)"
    assert [one["index"] for one in loop["inputs"]] == ["2", "3", "4", "5"]
    assert loop["inputs"][0]["name"] == "Index___0_Compute"
    assert loop["outputs"][1]["name"] == y
    counts = Counter(op["type"] for op in body)
    assert counts["MatMul"] == counts["Exp"] == counts["Add"] == 1
    assert counts["DynamicSlice"] == counts["DynamicUpdate"] == 1
    slice_ = next(op for op in body if op["type"] == "DynamicSlice")
    assert [one["shape"] for one in slice_["inputs"]] == ["[2 4 4]", "[1]"]
    assert {op["attributes"]["__execution_context"] for op in body} == {"Subgraph"}
    assert all(one["name"].startswith("loop_subgraph(0)/") for op in body for one in op["outputs"])


def test_rows_that_are_parts_are_read_and_written_as_they_are() -> None:
    builder = popart.Builder()
    y = builder.aiOnnx.exp([builder.addInputTensor("FLOAT", [2, 4])])
    found = types(inferred(builder, y, given=in_parts(2, **LOOP)), "loop_subgraph(0)")
    assert Counter(found)["Reshape"] == 0
    assert len(found) == 4  # the next index, a slice, the operator, an update


def test_what_reads_whole_tensors_is_between_loops() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [4, 2, 5, 5], "x")
    turned = builder.aiOnnx.conv([builder.aiOnnx.exp([x]), weight(builder, 3, 2, 3, 3)])
    y = builder.aiOnnx.relu([turned])
    graphs = inferred(builder, y, patterns=minimal(), given=in_parts(2, **LOOP))
    assert set(graphs) == {"maingraph", "loop_subgraph(0)", "loop_subgraph(1)"}
    found = [type_ for type_ in types(graphs) if type_ != "Init"]
    assert found == ["Loop", "Conv", "Loop"]


@pytest.mark.parametrize("patterns", [minimal(), None])
def test_turns_add_up_gradients(patterns: popart.Patterns | None) -> None:
    builder = popart.Builder()
    loss = layers(builder, 1)
    given = in_parts(4, **LOOP, **BACKWARD)
    graphs = trained(builder, loss, "Gradient___w0", given=given, patterns=patterns)
    everything = Counter(op["type"] for graph in graphs.values() for op in graph)
    assert everything["MatMul"] == 2 and everything["SGD0VarUpdate"] == 1
    main = graphs["maingraph"]
    zero = [op for op in main if op["type"] == "Init" and op["attributes"]["inittype"] == "1"]
    assert len(zero) == 2  # for the loss and for the gradient of the weight
    (last,) = [op for op in main if op["outputs"] and op["outputs"][0]["name"] == loss]
    assert last["type"] == "IdentityLoss"
    before = next(op for op in main if last["inputs"][0]["name"] in str(op["outputs"]))
    assert before["attributes"]["scale"] == "0.250000"
    for name in graphs:
        order = [op for op in graphs[name] if name != "maingraph"]
        made = {one["name"] for op in order for one in op["outputs"]}
        seen: set[str] = set()
        for op in order:
            assert made.isdisjoint({one["name"] for one in op["inputs"]} - seen)
            seen |= {one["name"] for one in op["outputs"]}


def test_rows_are_found_without_a_look_at_the_whole_graph_for_each_operator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: Counter[int] = Counter()
    real = OpGraph.producer
    for size in (40, 160):

        def counted(graph: OpGraph, id: str, size: int = size) -> Op | None:
            looks[size] += 1
            return real(graph, id)

        monkeypatch.setattr(OpGraph, "producer", counted)
        builder = popart.Builder()
        value, whole = builder.addInputTensor("FLOAT", [4, 2], "x"), weight(builder, 2)
        for _ in range(size):
            whole = builder.aiOnnx.tanh([whole])
            value = builder.aiOnnx.mul([value, whole])
        graphs = inferred(builder, value, patterns=minimal(), given=in_parts(2, **LOOP))
        assert types(graphs, "loop_subgraph(0)").count("Mul") == size
    assert looks[160] < 5 * looks[40]


def test_parts_in_loops_change_no_number() -> None:
    builder, y = linear()
    device = popart.DeviceManager().createCpuDevice(backend="reference")
    found = []
    for given in (options(), in_parts(2, **LOOP)):
        flow = popart.DataFlow(1, [y])
        model = builder.getModelProto()
        session = popart.InferenceSession(model, flow, device, userOptions=given)
        session.prepareDevice()
        anchors = session.initAnchorArrays()
        session.run(popart.PyStepIO({"x": np.arange(32, dtype=np.float32) / 32}, anchors))
        found.append(anchors[y].copy())
    np.testing.assert_array_equal(*found)
