"""Tests PopART's IR as `_serializeIr` writes it: operators, gradients, patterns, places."""

from __future__ import annotations

import json
import logging
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popgraph.session as popart
from popgraph.support.logs import log_of
from tests.session.popart_graphs import (
    inferred,
    layers,
    minimal,
    options,
    trained,
    types,
    weight,
)


def test_every_operator_has_popart_s_keys_and_every_value_is_a_text() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 3], "x")
    y = builder.aiOnnx.leakyrelu([x], 0.25, "mine")
    (op,) = inferred(builder, y, patterns=minimal())["maingraph"]
    assert op["type"] == "LeakyRelu"
    assert op["name"] == "mine"
    assert op["inputs"] == [{"name": "x", "shape": "[2 3]", "type": "FLOAT", "index": "0"}]
    assert op["outputs"] == [{"name": y, "index": "0"}]
    wanted = {"alpha": "0.250000", "recompute": "NO", "scope": "", "schedulePriority": "0.000000"}
    assert wanted.items() <= op["attributes"].items()
    assert "__ipu_number" not in op["attributes"]


def test_a_session_has_its_ir_before_it_is_prepared_and_keeps_it() -> None:
    builder = popart.Builder()
    y = builder.aiOnnx.abs([builder.addInputTensor("FLOAT", [2])])
    session = popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [y]))
    assert session.getIr() is session.getIr()
    assert session.getIr().graphNames() == ["maingraph"]
    with pytest.raises(TypeError, match="IrSerializationFormat"):
        session._serializeIr("YAML")  # type: ignore[arg-type]


def test_a_graph_with_a_name_is_written_under_it() -> None:
    builder = popart.Builder()
    builder.setGraphName("net")
    y = builder.aiOnnx.abs([builder.addInputTensor("FLOAT", [2])])
    assert list(inferred(builder, y)) == ["net"]


def test_what_no_anchor_needs_is_not_there() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2])
    builder.aiOnnx.exp([x])
    assert types(inferred(builder, builder.aiOnnx.abs([x]))) == ["Abs"]


def test_constant_weights_are_folded_unless_they_can_change() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 2])
    turned = builder.aiOnnx.transpose([weight(builder, 2, 2)], [1, 0])
    y = builder.aiOnnx.matmul([x, turned])
    assert "Transpose" not in types(inferred(builder, y, patterns=minimal()))
    changing = options(constantWeights=False)
    assert "Transpose" in types(inferred(builder, y, patterns=minimal(), given=changing))


def test_operators_of_constants_that_popart_does_not_compute_are_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2])
    literal = builder.aiOnnx.relu([builder.aiOnnx.constant(np.ones(2, np.float32))])
    of_weight = builder.aiOnnx.relu([weight(builder, 2)])
    steep = builder.aiOnnx.sigmoid([builder.aiOnnx.constant(np.ones(2, np.float32))])
    y = builder.aiOnnx.sum([x, literal, of_weight, steep])
    assert types(inferred(builder, y, patterns=minimal())) == ["Sigmoid", "Relu", "Sum"]
    told = [line for line in capsys.readouterr().err.splitlines() if "popart:ces" in line]
    for line, type_ in zip(told, ("Relu", "Sigmoid"), strict=True):
        assert f"No ConstExpr implementation of {type_}. Consider implementing" in line
    inferred(builder, y, literal, steep, given=options(constantWeights=False))
    assert "ConstExpr" not in capsys.readouterr().err


# gradients


def test_gradients_and_updates_have_popart_s_names() -> None:
    builder = popart.Builder()
    loss = layers(builder, 1)
    graphs = trained(builder, loss, patterns=minimal())
    found = types(graphs)
    assert [name for name in found if name in ("NllGrad", "SoftmaxGrad", "ReluGrad")] == [
        "NllGrad",
        "SoftmaxGrad",
        "ReluGrad",
    ]
    assert found[-1] == "SGD0VarUpdate"
    update = graphs["maingraph"][-1]
    assert [one["name"] for one in update["inputs"]] == ["w0", "Gradient___w0"]
    assert [one["name"] for one in update["outputs"]] == ["UpdatedVar___w0"]


def test_a_tensor_that_is_read_twice_has_a_sum_of_gradients() -> None:
    builder = popart.Builder()
    w = weight(builder, 3)
    y = builder.aiOnnx.mul([builder.aiOnnx.exp([w]), builder.aiOnnx.sigmoid([w])])
    loss = builder.aiGraphcore.l1loss([y], 1.0)
    graphs = trained(builder, loss)
    (summed,) = [op for op in graphs["maingraph"] if op["outputs"][0]["name"] == "Gradient___w"]
    assert summed["type"] in ("Add", "AddLhsInplace", "AddRhsInplace")
    assert len(summed["inputs"]) == 2


# patterns


def test_op_to_identity_decides_whether_a_loss_of_a_scalar_stays() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 4])
    y = builder.aiOnnx.matmul([x, weight(builder, 4, 1)])
    inner = builder.aiGraphcore.l1loss([y], 1.0, popart.ReductionType.Sum)
    loss = builder.aiGraphcore.identityloss([inner])
    for on in (True, False):
        patterns = popart.Patterns(popart.PatternsLevel.Default)
        patterns.OpToIdentity = on
        found = Counter(types(trained(builder, loss, patterns=patterns)))
        assert (found["IdentityLoss"], found["IdentityLossGrad"]) == (not on, not on)


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        ([], {"Nll", "NllGrad", "SoftmaxGrad"}),
        (["PreUniRepl", "SoftmaxGradDirect"], {"Nll", "SoftmaxGradDirect"}),
        (
            ["PreUniRepl", "SoftmaxGradDirect", "NlllWithSoftmaxGradDirect"],
            {"NlllWithSoftmaxGradDirect"},
        ),
    ],
)
def test_the_gradient_of_softmax_and_loss(names: list[str], wanted: set[str]) -> None:
    builder = popart.Builder()
    loss = layers(builder, 1)
    found = types(trained(builder, loss, patterns=minimal(*names)))
    losses = {"Nll", "NllGrad", "SoftmaxGrad", "SoftmaxGradDirect", "NlllWithSoftmaxGradDirect"}
    assert losses.intersection(found) == wanted


@pytest.mark.parametrize(
    ("build", "off", "gone", "there"),
    [
        ("exp", "ExpGradOp", "ExpGrad", {"Mul"}),
        ("cos", "CosGradOp", "CosGrad", {"Sin", "Mul", "Neg"}),
        ("sin", "SinGradOp", "SinGrad", {"Cos", "Mul"}),
        ("log", "LogGradOp", "LogGrad", {"Div"}),
        ("sqrt", "SqrtGradOp", "SqrtGrad", {"Scale", "Div"}),
        ("reciprocal", "ReciprocalGradOp", "ReciprocalGrad", {"Square", "Neg", "Mul"}),
        ("abs", "AbsGradOp", "AbsGrad", {"Sign", "Mul"}),
    ],
)
def test_gradients_that_patterns_write_as_others(
    build: str, off: str, gone: str, there: set[str]
) -> None:
    builder = popart.Builder()
    y = getattr(builder.aiOnnx, build)([weight(builder, 3)])
    loss = builder.aiGraphcore.identityloss([y], popart.ReductionType.Sum)
    on = types(trained(builder, loss, patterns=minimal()))
    assert gone not in on
    assert there <= set(on)
    without = popart.Patterns(sorted(minimal().enabled() - {off})).enableRuntimeAsserts(False)
    assert gone in types(trained(builder, loss, patterns=without))


@pytest.mark.parametrize(
    ("build", "names"),
    [
        ("mul", {"MulArg0Grad", "MulArg1Grad"}),
        ("sub", {"SubArg1Grad"}),
        ("div", {"DivArg0Grad", "DivArg1Grad"}),
        ("pow", {"PowArg0Grad", "PowArg1Grad"}),
    ],
)
def test_gradients_of_what_was_broadcast_are_reduced(build: str, names: set[str]) -> None:
    builder = popart.Builder()
    first, second = weight(builder, 2, 3, name="a"), weight(builder, 3, name="b")
    y = getattr(builder.aiOnnx, build)([first, second])
    loss = builder.aiGraphcore.identityloss([y], popart.ReductionType.Sum)
    graphs = trained(builder, loss, patterns=minimal())
    assert not names.intersection(types(graphs))
    (reduced,) = [
        op
        for op in graphs["maingraph"]
        if op["type"] == "ReduceSum" and op["attributes"]["axes"] == "[0]"
    ]
    assert reduced["inputs"][0]["shape"] == "[2 3]"


def test_a_pattern_leaves_an_excluded_node_alone() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [3])
    first = builder.aiOnnx.relu([builder.aiOnnx.exp([x])])
    second = builder.aiOnnx.relu([builder.aiOnnx.exp([first])])
    builder.excludePatterns(first, ["InPlace"])
    found = Counter(types(inferred(builder, second, patterns=minimal("InPlace"))))
    assert found["Relu"] == 1
    assert found["ReluInplace"] == 1


def test_split_sum_scale_and_like_operators_are_written_as_simpler_ones() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [4])
    left, right = builder.aiOnnx.split([x], 2, 0)
    y = builder.aiOnnx.sum([left, builder.aiGraphcore.scale([right], -1.0)])
    noise = builder.aiOnnx.randomnormallike([y])
    found = Counter(types(inferred(builder, y, noise, patterns=minimal())))
    assert (found["Split"], found["Sum"], found["Scale"], found["RandomNormal"]) == (1, 1, 1, 1)
    assert (found["GetRandomSeed"], found["ModifyRandomSeed"]) == (1, 1)
    more = minimal("SplitOp", "SumToAdd", "NegativeOneScale")
    found = Counter(types(inferred(builder, y, noise, patterns=more)))
    assert (found["Slice"], found["Add"], found["Neg"]) == (2, 1, 1)


def test_a_transpose_and_its_inverse_are_nothing() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 3, 4])
    once = builder.aiOnnx.transpose([x], [1, 2, 0])
    y = builder.aiOnnx.exp([builder.aiOnnx.transpose([once], [2, 0, 1])])
    assert types(inferred(builder, y, patterns=minimal())).count("Transpose") == 2
    default = popart.Patterns()
    assert "Transpose" not in types(inferred(builder, y, patterns=default))


def test_axes_of_one_element_may_come_between_a_transpose_and_its_inverse() -> None:
    builder = popart.Builder()
    x = builder.aiOnnx.abs([builder.addInputTensor("FLOAT", [2, 3])])
    turned = builder.aiOnnx.transpose([x], [1, 0])
    alone = minimal("TransposeToIdentityOrReshapePattern")
    for shape, perm, last in (
        ([1, 3, 2], [0, 2, 1], "Reshape"),
        ([3, 1, 2], [2, 1, 0], "Reshape"),
        ([1, 3, 2], [1, 2, 0], "Transpose"),
        ([3, 2, 1], [2, 1, 0], "Transpose"),
    ):
        row = builder.reshape_const(builder.aiOnnx, [turned], shape)
        back = builder.aiOnnx.transpose([row], perm)
        assert types(inferred(builder, back, patterns=alone))[-1] == last


def test_a_transpose_of_one_long_axis_stays() -> None:
    builder = popart.Builder()
    row = builder.aiOnnx.abs([builder.addInputTensor("FLOAT", [1, 3, 1])])
    turned = builder.aiOnnx.transpose([row], [1, 2, 0])
    alone = minimal("TransposeToIdentityOrReshapePattern")
    assert types(inferred(builder, turned, patterns=alone)) == ["Abs", "Transpose"]


def test_copies_that_are_tied_to_products_stay() -> None:
    builder = popart.Builder()
    graph = trained(builder, layers(builder, 1), patterns=minimal("OpToIdentity", "PostNRepl"))
    found = Counter(op["type"] for op in graph["maingraph"])
    assert found["Identity"] == 2  # the product's operands already have three axes
    assert found["Transpose"] == 1


@pytest.mark.parametrize("pads", [[0, 0], [0, 1]])
def test_what_pads_nothing_is_nothing(pads: list[int]) -> None:
    builder = popart.Builder()
    x = builder.aiOnnx.abs([builder.addInputTensor("FLOAT", [2])])
    y = builder.aiOnnx.pad([x], pads)
    for pattern, rest in (("PreUniRepl", []), ("OpToIdentity", ["Identity"])):
        found = types(inferred(builder, y, patterns=minimal(pattern)))
        assert found == ["Abs", *(["Pad"] if any(pads) else rest)]


def test_views_of_views_are_read_at_their_source_before_outlining() -> None:
    builder = popart.Builder()
    x = builder.aiOnnx.abs([builder.addInputTensor("FLOAT", [2, 3])])
    once = builder.reshape_const(builder.aiOnnx, [x], [6])
    y = builder.aiOnnx.exp([builder.reshape_const(builder.aiOnnx, [once], [3, 2])])
    for outlines, source in ((True, x), (False, once)):
        given = options(enableOutlining=outlines)
        graph = inferred(builder, y, patterns=minimal(), given=given)["maingraph"]
        assert [op["type"] for op in graph] == ["Abs", "Reshape", "Reshape", "Exp"]
        assert graph[2]["inputs"][0]["name"] == source


def test_a_dropout_of_inference_is_a_copy() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2])
    (y,) = builder.aiOnnx.dropout([x], 1, 0.5)
    y = builder.aiOnnx.exp([y])
    assert "Dropout" not in types(inferred(builder, y))


# products of matrices


def test_products_have_three_axes_and_their_gradients_are_products() -> None:
    builder = popart.Builder()
    loss = layers(builder, 2)
    graphs = trained(builder, loss)
    products = [op for op in graphs["maingraph"] if op["type"] == "MatMul"]
    passes = Counter(op["attributes"]["fully_connected_pass"] for op in products)
    assert passes == {"0": 2, "1": 1, "2": 2}
    assert all(one["shape"].count(" ") == 2 for op in products for one in op["inputs"])


@pytest.mark.parametrize(
    ("mode", "counts"),
    [
        ("input_channels", {"0": 2, "1": 2, "2": 2}),
        ("reducing_dim", {"0": 2, "1": 2, "2": 2}),
        ("output_channels", {"0": 2, "1": 2, "2": 2}),
        ("none", {"0": 1, "1": 1, "2": 1}),
    ],
)
def test_products_in_parts(mode: str, counts: dict[str, int]) -> None:
    builder = popart.Builder()
    left = weight(builder, 2, 4, 6, name="a")
    y = builder.aiOnnx.matmul([left, weight(builder, 6, 8)])
    builder.setSerializeMatMul({y}, mode, 2)
    loss = builder.aiGraphcore.l1loss([y], 1.0)
    graphs = trained(builder, loss)
    products = [op for op in graphs["maingraph"] if op["type"] == "MatMul"]
    assert Counter(op["attributes"]["fully_connected_pass"] for op in products) == counts
    updates = types(graphs).count("SGD0VarUpdate")
    assert updates == (3 if mode in ("reducing_dim", "output_channels") else 2)


# in place


def test_in_place_forms_need_memory_that_nobody_reads_later() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [3])
    a = builder.aiOnnx.exp([x])
    b = builder.aiOnnx.relu([a])
    c = builder.aiOnnx.add([a, b])
    found = Counter(types(inferred(builder, builder.aiOnnx.abs([c]), patterns=minimal("InPlace"))))
    assert found["Relu"] == 1  # the sum reads what it would overwrite
    assert found["AddLhsInplace"] + found["AddRhsInplace"] == 1


def test_anchors_and_weights_are_not_overwritten() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [3])
    a = builder.aiOnnx.exp([x])
    y = builder.aiOnnx.relu([a])
    z = builder.aiOnnx.sigmoid([weight(builder, 3)])
    found = types(
        inferred(
            builder, a, y, z, patterns=minimal("InPlace"), given=options(constantWeights=False)
        )
    )
    assert sorted(found) == ["ExpInplace", "Relu", "Sigmoid"]


@pytest.mark.parametrize("first", [True, False])
def test_a_sum_may_rather_be_written_over_a_product(first: bool) -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 3, 3])
    product = builder.aiOnnx.matmul([builder.aiOnnx.abs([x]), x])
    operands = [product, builder.aiOnnx.sin([x])]
    y = builder.aiOnnx.tanh([builder.aiOnnx.add(operands if first else operands[::-1])])
    found = types(
        inferred(builder, y, patterns=minimal("InPlace", "UpdateInplacePrioritiesForIpu"))
    )
    assert ("AddLhsInplace" if first else "AddRhsInplace") in found


def test_gradients_of_slices_are_padded_in_place_and_reversed_slices_are_not() -> None:
    builder = popart.Builder()
    value = builder.aiOnnx.exp([weight(builder, 4)])
    for step, bounds in ((1, (1, 3)), (-1, (2, 0))):
        numbers = [np.array([one]) for one in (*bounds, 0, step)]
        value = builder.aiOnnx.slice([value, *map(builder.aiOnnx.constant, numbers)])
    found = types(trained(builder, builder.aiGraphcore.identityloss([value])))
    assert {"PadInplace", "SliceInplace", "Slice"} <= set(found)


def test_what_a_graph_gives_back_is_read_before_nothing_is_written_over() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [4])
    inner = builder.createSubgraphBuilder()
    given = inner.addInputTensor(popart.TensorInfo("FLOAT", [4]))
    once = inner.aiOnnx.abs([given])
    inner.addOutputTensor(inner.aiOnnx.sin([once]))
    inner.addOutputTensor(inner.aiOnnx.exp([once]))
    inner.setGraphName("inner")
    y = builder.aiOnnx.add(builder.aiGraphcore.call([x], 2, inner))
    assert "Exp" in types(inferred(builder, y), "inner")


def test_the_user_s_preference_decides_which_form_is_taken() -> None:
    builder = popart.Builder()
    x, y = (builder.addInputTensor("FLOAT", [3]) for _ in range(2))
    z = builder.aiOnnx.add([builder.aiOnnx.exp([x]), builder.aiOnnx.exp([y])])
    builder.setInplacePreferences(z, {"AddRhsInplace": 100.0, "AddLhsInplace": -1.0})
    assert "AddRhsInplace" in types(inferred(builder, z, patterns=minimal("InPlace")))


# places


def test_copies_between_ipus() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [3])
    with builder.virtualGraph(0):
        a = builder.aiOnnx.exp([x])
    with builder.virtualGraph(1):
        b = builder.aiOnnx.abs([a])
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 2})
    manual = options(virtualGraphMode=popart.VirtualGraphMode.Manual)
    graphs = inferred(builder, b, patterns=minimal(), given=manual, device=device)
    assert types(graphs) == ["Exp", "IpuCopy", "Abs"]
    told = [op["attributes"] for op in graphs["maingraph"]]
    assert [one.get("__ipu_number") for one in told] == ["0", None, "1"]
    assert (told[1]["__sourceIpus"], told[1]["__destIpu"]) == ("[0]", "1")
    assert told[1]["schedulePriority"] == "-inf"
    assert types(inferred(builder, b, patterns=minimal(), device=device)) == ["Exp", "Abs"]


def test_copies_that_one_operator_waits_for_are_one() -> None:
    builder = popart.Builder()
    x, y = (builder.addInputTensor("FLOAT", [3]) for _ in range(2))
    with builder.virtualGraph(0):
        a, b = builder.aiOnnx.exp([x]), builder.aiOnnx.abs([y])
    with builder.virtualGraph(1):
        c = builder.aiOnnx.add([a, b])
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 2})
    manual = options(virtualGraphMode=popart.VirtualGraphMode.Manual)
    graphs = inferred(builder, c, patterns=minimal(), given=manual, device=device)
    assert sorted(types(graphs)) == ["Abs", "Add", "Exp", "IpuCopy"]
    (copy,) = (op for op in graphs["maingraph"] if op["type"] == "IpuCopy")
    assert [one["name"] for one in copy["inputs"]] == [a, b]
    assert [one["name"] for one in copy["outputs"]] == [f"{a}_c1", f"{b}_c1"]


def test_what_is_computed_twice_is_one_operator() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [3])
    first, second = (builder.aiOnnx.neg([builder.aiOnnx.exp([x])]) for _ in range(2))
    total = builder.aiOnnx.sub([first, second])
    assert types(inferred(builder, total, patterns=minimal())) == ["Exp", "Neg", "Sub"]
    found = types(inferred(builder, total, second, patterns=minimal()))
    assert found == ["Exp", "Neg", "Neg", "Sub"]  # what is asked for stays


def test_gradients_of_parts_are_written_over_each_other() -> None:
    builder = popart.Builder()
    matrix = weight(builder, 6, 2)
    place = builder.addInputTensor("UINT32", [1], "place")
    graphcore = builder.aiGraphcore
    parts = [
        graphcore.dynamicslice([matrix, place], axes=[0], sizes=[size], noOverlap=alone)
        for size, alone in ((4, 1), (2, 0))
    ]
    loss = graphcore.l1loss([builder.aiOnnx.concat(parts, 0)], 0.1)
    graphs = trained(builder, loss, patterns=minimal())
    ops = [op for op in graphs["maingraph"] if op["type"].startswith(("Init", "Dynamic"))][2:]
    kinds = [op["type"] for op in ops]
    assert kinds[0] == "Init"
    assert sorted(kinds[1:]) == ["DynamicAddInplace", "DynamicUpdateInplace"]
    chain = [(op["inputs"][0]["name"], op["outputs"][0]["name"]) for op in ops[1:]]
    assert chain[0][0] == ops[0]["outputs"][0]["name"]
    assert chain[1] == (chain[0][1], "Gradient___w")
    assert ops[0]["name"] == "GradInit_Gradient___w"


def test_gradients_of_dynamic_updates_are_slices_and_zeros() -> None:
    builder = popart.Builder()
    whole, part = weight(builder, 6, 2), weight(builder, 4, 2, name="part")
    place = builder.addInputTensor("UINT32", [1], "place")
    graphcore = builder.aiGraphcore
    added = graphcore.dynamicadd([whole, place, part], axes=[0], sizes=[4])
    for alone, extra in ((0, ["DynamicZero"]), (1, [])):
        value = graphcore.dynamicupdate([added, place, part], [0], [4], noOverlap=alone)
        value = graphcore.dynamiczero([value, place], [0], [4])
        loss = graphcore.l1loss([value], 0.1)
        found = types(trained(builder, loss, patterns=minimal()))
        gradients = [one for one in found if one.startswith("Dynamic")][3:]
        assert sorted(gradients) == ["DynamicSlice", "DynamicSlice", "DynamicZero", *extra]


def test_seeds_reach_the_graphs_that_are_called() -> None:
    builder = popart.Builder()
    value = builder.aiOnnx.mul([builder.addInputTensor("FLOAT", [4, 2]), weight(builder, 4, 2)])
    inner = builder.createSubgraphBuilder()
    given = inner.addInputTensor(popart.TensorInfo("FLOAT", [4, 2]))
    inner.addOutputTensor(inner.aiOnnx.dropout([given], 1, 0.5)[0])
    inner.setGraphName("inner")
    value = builder.aiGraphcore.call([value], 1, inner)[0]
    loss = builder.aiGraphcore.l1loss([builder.aiOnnx.dropout([value], 1, 0.5)[0]], 0.1)
    graphs = trained(builder, loss, patterns=minimal())
    assert sorted(types(graphs, "inner")) == ["Dropout", *["ModifyRandomSeed"] * 2]
    seeds = {op["outputs"][0]["name"]: op for op in graphs["inner"]}
    carried = seeds.pop("inner/randomSeed___base_out")
    base = next(op for op in seeds.values() if op["type"] == "ModifyRandomSeed")
    assert base["inputs"][0]["name"] == "inner/randomSeed___base_in"
    assert carried["inputs"][0]["name"] == "inner/randomSeed___base_in"
    (call,) = (op for op in graphs["maingraph"] if op["type"] == "Call")
    assert [one["name"] for one in call["inputs"]][1] == "randomSeed___modified0"
    assert [one["index"] for one in call["outputs"] if one["name"] == value] == ["1"]


def test_stochastic_rounding_needs_a_seed() -> None:
    builder = popart.Builder()
    y = builder.aiOnnx.exp([builder.addInputTensor("FLOAT", [3])])
    given = options(enableStochasticRounding=True)
    assert types(inferred(builder, y, patterns=minimal(), given=given)) == ["GetRandomSeed", "Exp"]


def test_inputs_and_anchors_may_be_copied_by_operators() -> None:
    builder = popart.Builder()
    y = builder.aiOnnx.exp([builder.addInputTensor("FLOAT", [3])])
    given = options(useHostCopyOps=True)
    found = types(inferred(builder, y, patterns=minimal(), given=given))
    assert found == ["Init", "HostLoad", "Exp", "HostStore"]
    assert "HostLoadInplace" in types(
        inferred(builder, y, patterns=minimal("InPlace"), given=given)
    )


def test_recomputation_is_an_annotation_or_a_second_operator() -> None:
    builder = popart.Builder()
    y = builder.aiOnnx.sigmoid([weight(builder, 3)])
    builder.recomputeOutputInBackwardPass(y)
    loss = builder.aiGraphcore.l1loss([y], 1.0)
    (op,) = [op for op in trained(builder, loss)["maingraph"] if op["type"] == "Sigmoid"]
    assert (op["attributes"]["recompute"], op["attributes"]["recomputetype"]) == (
        "YES",
        "Recompute",
    )
    explicit = trained(builder, loss, given=options(explicitRecomputation=True))
    kinds = [
        op["attributes"]["recomputetype"]
        for op in explicit["maingraph"]
        if op["type"].startswith("Sigmoid") and not op["type"].endswith("Grad")
    ]
    assert sorted(kinds) == ["Checkpoint", "Recomputed"]


# graphs


def test_repeated_layers_are_outlined() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [8, 4])
    for number in range(4):
        x = builder.aiOnnx.relu(
            [builder.aiOnnx.matmul([x, weight(builder, 4, 4, name=f"w{number}")])]
        )
    y = builder.aiOnnx.softmax([x])
    given = popart.SessionOptions()
    given.constantWeights = False
    graphs = inferred(builder, y, given=given)
    assert len(graphs) > 1
    assert "MatMul" not in types(graphs)
    assert sum(types(graphs, name).count("MatMul") for name in graphs) == 1
    callees = {
        op["attributes"]["callee"] for name in graphs for op in graphs[name] if op["type"] == "Call"
    }
    assert callees == set(graphs) - {"maingraph"}
    given.outlineThreshold = 1e6
    assert len(inferred(builder, y, given=given)) == 1


@pytest.mark.parametrize("threshold", [0.0, -1.0])
def test_any_repetition_may_be_outlined(threshold: float) -> None:
    builder = popart.Builder()
    loss = layers(builder, 3)
    graphs = trained(builder, loss, given=options(enableOutlining=True, outlineThreshold=threshold))
    for name in graphs:
        kinds = types(graphs, name)
        assert kinds != ["Call"]
        assert "MatMul" not in kinds or name != "maingraph"


def test_outline_attributes_keep_layers_apart() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [4, 4])
    for number in range(2):
        with builder.outlineAttributes({"layer": str(number)}):
            x = builder.aiOnnx.relu([builder.aiOnnx.matmul([x, weight(builder, 4, 4)])])
    given = popart.SessionOptions()
    given.constantWeights = False
    assert len(inferred(builder, builder.aiOnnx.softmax([x]), given=given)) == 1


def test_names_keep_layers_apart_for_popliner(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [4, 4])
    for number in range(2):
        with builder.nameScope(f"Layer{number + 1}"):
            x = builder.aiOnnx.relu([builder.aiOnnx.matmul([x, weight(builder, 4, 4)])])
    y = builder.aiOnnx.softmax([x])
    given = popart.SessionOptions()
    given.constantWeights = False
    assert len(inferred(builder, y, given=given)) == 2
    monkeypatch.setenv("POPART_POPLINER_OUTLINER_REGEX", "Layer([0-9]+)")
    capsys.readouterr()
    (main,) = inferred(builder, y, given=given).values()
    layers_of = {op["name"]: op["attributes"]["__ipu_number"] for op in main}
    assert layers_of["Layer1/MatMul"] == "1" and layers_of["Layer2/Relu"] == "2"
    said = capsys.readouterr().err
    assert said.count("Outliner considering op 'Layer1/MatMul' on subgraph #1") == 1


def test_a_called_graph_is_written_under_its_name() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [3])
    body = builder.createSubgraphBuilder()
    body.setGraphName("body")
    inner = body.addInputTensor("FLOAT", [3])
    body.addOutputTensor(body.aiOnnx.exp([inner]))
    (y,) = builder.aiGraphcore.call([x], 1, body)
    graphs = inferred(builder, y, patterns=minimal())
    assert types(graphs) == ["Call"]
    assert graphs["maingraph"][0]["attributes"]["callee"] == "body"
    assert types(graphs, "body") == ["Exp"]


def test_onnx_operators_that_popart_has_not_are_written_as_its_own() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 3])
    y = builder.aiOnnx.gemm([x, weight(builder, 4, 3), weight(builder, 4, name="c")], transB=1)
    z = builder.aiOnnx.tan([y])
    changing = options(constantWeights=False)
    found = Counter(types(inferred(builder, z, patterns=minimal(), given=changing)))
    wanted = ("MatMul", "Scale", "Add", "Transpose", "Sin", "Cos", "Div")
    assert [found[name] for name in wanted] == [1, 2, 1, 1, 1, 1, 1]


def test_a_lstm_takes_popart_s_form_where_the_pattern_is_on() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 1, 3])
    matrices = [weight(builder, 1, 16, 3, name="W"), weight(builder, 1, 16, 4, name="R")]
    y, _, _ = builder.aiOnnx.lstm([x, *matrices], 3, clip=None)
    for names, operands in (((), 3), (("LSTMOp",), 2)):
        graphs = inferred(
            builder, y, patterns=minimal(*names), given=options(constantWeights=False)
        )
        (op,) = [op for op in graphs["maingraph"] if op["type"] == "LSTM"]
        assert len(op["inputs"]) == operands


def test_a_dot_file_for_each_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = popart.Builder()
    loss = layers(builder, 2)
    for word, count in (("", 2), ("PREALIAS:fwd1", 4), ("ALL", 6)):
        folder = tmp_path / (word.replace(":", "-") or "options")
        folder.mkdir()
        monkeypatch.setenv("POPART_DOT_CHECKS", word)
        trained(builder, loss, given=options(logDir=str(folder), dotChecks={"Final", "Fwd0"}))
        assert len(list(folder.iterdir())) == count, word
    first, last = (
        (tmp_path / "options" / f"{check}_maingraph.dot").read_text() for check in ("fwd0", "final")
    )
    assert first.startswith("digraph")
    assert [text.count('label="MatMul"') for text in (first, last)] == [2, 5]
    monkeypatch.setenv("POPART_DOT_CHECKS", "LAST")
    with pytest.raises(popart.popart_exception, match="dot check 'LAST'"):
        trained(builder, loss)


def test_layers_are_spread_over_the_ipus_of_a_device() -> None:
    builder = popart.Builder()
    loss = layers(builder, 4)
    given = options(
        virtualGraphMode=popart.VirtualGraphMode.Auto, virtualGraphSplitRatios=[0.25, 0.75]
    )
    for ipus, products in ((1, ["0"] * 4), (2, ["0", "0", "1", "1"])):
        device = popart.DeviceManager().createIpuModelDevice({"numIPUs": ipus})
        ops = trained(builder, loss, given=given, device=device)["maingraph"]
        places = [op["attributes"].get("__ipu_number") for op in ops if op["type"] == "MatMul"]
        assert places[:4] == products
        assert ("IpuCopy" in {op["type"] for op in ops}) == (ipus > 1)


def test_gradients_that_a_loss_scale_follows_have_histograms() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT16", [4, 4], "x")
    w = builder.addInitializedInputTensor(np.ones((4, 4), np.float16), "w")
    y = builder.aiOnnx.relu([builder.aiOnnx.matmul([x, w])])
    loss = builder.aiGraphcore.identityloss([y])
    settings = popart.AutomaticLossScalingSettings(enabled=True)
    optimizer = popart.SGD({"lossScaling": (2.0, False)})
    followed = options(automaticLossScalingSettings=settings)
    ops = trained(builder, loss, optimizer=optimizer, given=followed)["maingraph"]
    histograms = [op for op in ops if op["type"] == "Histogram"]
    seen = {one["inputs"][0]["name"] for one in histograms}
    assert f"Gradient___{y}" in seen
    assert "Gradient___x" not in seen
    assert [op["type"] for op in ops].count("LossScaleUpdate") == 1
    assert "Histogram" not in types(trained(builder, loss, optimizer=optimizer))


def tied(parts: int, *patterns: str) -> list[dict[str, Any]]:
    """What a table is trained with that is gathered from, and that a product reads."""
    builder = popart.Builder()
    places = builder.addInputTensor("INT32", [4], "places")
    table = weight(builder, 20, 8)
    rows = builder.aiOnnx.gather([table, places])
    y = builder.aiOnnx.matmul([rows, builder.aiOnnx.transpose([table])])
    if parts > 1:
        builder.setSerializeMatMul({y}, "output_channels", parts)
    loss = builder.aiGraphcore.identityloss([y])
    enabled = popart.Patterns()
    for pattern in patterns:
        enabled.enablePattern(pattern, True)
    given = options(enableGradientAccumulation=True, accumulationFactor=2)
    momentum = popart.SGD({"defaultMomentum": (0.9, True)})
    return trained(builder, loss, optimizer=momentum, patterns=enabled, given=given)["maingraph"]


def test_a_table_that_a_product_reads_too_is_gathered_and_updated_by_rows() -> None:
    plain = Counter(op["type"] for op in tied(1))
    assert plain["Gather"] == plain["GatherGrad"] == 1
    half = Counter(op["type"] for op in tied(1, "TiedGather"))
    assert half["PopartTiedGather"] == half["PopartTiedGatherGrad"] == half["DetachInplace"] == 1
    whole = tied(1, "TiedGather", "TiedGatherAccumulate")
    (sparse,) = (op for op in whole if op["type"] == "PopartSparseAccumulate")
    (dense,) = (op for op in whole if op["type"] == "Accumulate")
    assert [one["index"] for one in sparse["inputs"]] == ["0", "1", "3", "4"]
    assert sparse["inputs"][0] == dense["inputs"][0]
    assert sparse["inputs"][3]["name"] == "w/detached"
    products = [op["attributes"] for op in whole if op["type"] == "MatMul"]
    assert {one["fully_connected_pass"] for one in products} == {"-1"}


def test_a_table_whose_product_is_cut_is_gathered_from_part_by_part() -> None:
    found = tied(2, "TiedGather", "TiedGatherAccumulate")
    counts = Counter(op["type"] for op in found)
    assert counts["PopartTiedGather"] == counts["PopartSparseAccumulate"] == counts["Sub"] == 2
    states = [
        {op["inputs"][0]["name"] for op in found if op["type"] == type_}
        for type_ in ("Accumulate", "PopartSparseAccumulate")
    ]
    assert states[0] == states[1] and len(states[0]) == 2


def test_products_tell_their_partials_memory_and_parts() -> None:
    for asked, partials in (("", "FLOAT"), ("half", "HALF")):
        builder = popart.Builder()
        x = builder.addInputTensor("FLOAT", [2, 4, 4])
        y = builder.aiOnnx.matmul([x, x])
        z = builder.aiOnnx.gather([y, builder.addInputTensor("INT32", [1])], 1)
        for node in (y, z):
            builder.setAvailableMemoryProportion({node}, 0.5)
        given = options(partialsTypeMatMuls=asked)
        graph = inferred(builder, z, patterns=minimal(), given=given)["maingraph"]
        product, gather = (op["attributes"] for op in graph)
        wanted = {
            "partialsType": f"MatMulPartialsType::{partials}",
            "serialization_mode": "0",
            "serialization_factor": "0",
            "available_memory_proportion": "0.500000",
        }
        assert wanted.items() <= product.items()
        assert gather["__available_memory"] == "0.500000"


def test_products_may_be_planned_alone() -> None:
    builder = popart.Builder()
    loss = layers(builder, 2)
    for asked, passes in ((True, {"0", "1", "2"}), (False, {"-1"})):
        given = options(enableFullyConnectedPass=asked)
        graph = trained(builder, loss, given=given)["maingraph"]
        products = [op["attributes"] for op in graph if op["type"] == "MatMul"]
        assert {one["fully_connected_pass"] for one in products} == passes


def test_what_is_expanded_is_cast_before() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [1, 4], "x")
    wide = builder.aiOnnx.expand([x, builder.aiOnnx.constant(np.array([4, 4]))])
    y = builder.aiOnnx.cast([wide], "FLOAT16")
    assert types(inferred(builder, y, patterns=minimal("ExpandCast"))) == ["Cast", "Expand"]
    assert types(inferred(builder, y, patterns=minimal())) == ["Expand", "Cast"]
    both = types(inferred(builder, y, wide, patterns=minimal("ExpandCast")))
    assert both == ["Expand", "Cast"]


def slice_of(builder: popart.Builder, x: str, start: int, end: int, step: int = 1) -> str:
    given = [builder.aiOnnx.constant(np.array([one])) for one in (start, end, 1, step)]
    return str(builder.aiOnnx.slice([x, *given]))


@pytest.mark.parametrize(
    ("bounds", "wanted"),
    [
        ([(0, 2), (3, 5)], ["Pad", "Concat"]),
        ([(3, 6), (0, 3)], ["Concat"]),
        ([(-3, 6), (0, 2)], ["Pad", "Concat"]),
        ([(0, 3), (2, 5)], ["SliceGrad", "SliceGrad", "Add"]),
    ],
)
def test_a_sum_of_padded_parts_is_their_concatenation(
    bounds: list[tuple[int, int]], wanted: list[str]
) -> None:
    builder = popart.Builder()
    x = builder.addInitializedInputTensor(np.ones((2, 6), np.float32), "x")
    parts = [slice_of(builder, x, *bound) for bound in bounds]
    loss = builder.aiGraphcore.identityloss([builder.aiOnnx.concat(parts, 1)])
    kinds = ("Pad", "SliceGrad", "Concat", "Add", "Sum")

    def made(*patterns: str) -> list[str]:
        after = types(trained(builder, loss, patterns=minimal(*patterns)))
        return [one for one in after[after.index("IdentityLossGrad") :] if one in kinds]

    on = ("PadSum", "OpToIdentity", "PostNRepl", "SumToAdd")
    assert made(*on) == wanted
    assert made(*on[1:]) == ["SliceGrad", "SliceGrad", "Add"]


def test_a_slice_with_steps_is_a_slice_and_a_sample() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 7], "x")
    y = slice_of(builder, x, 1, 7, 2)
    graphs = inferred(builder, y, patterns=minimal("Slice2SliceSubsample"))
    cut, sampled = graphs["maingraph"]
    assert (cut["type"], sampled["type"]) == ("Slice", "Subsample")
    assert sampled["inputs"][0]["name"] == cut["outputs"][0]["name"]
    assert sampled["attributes"]["strides"] == "[1 2]"
    assert types(inferred(builder, y, patterns=minimal())) == ["Slice"]


def test_what_is_outlined_has_a_scope_and_no_part_of_a_step() -> None:
    builder = popart.Builder()
    loss = layers(builder, 3)
    given = options(enableOutlining=True)
    graphs = trained(builder, loss, given=given)
    inner = [name for name in graphs if name.startswith("call_subgraph")]
    assert inner
    for name in inner:
        told = {
            (op["attributes"]["scope"], op["attributes"]["__execution_context"])
            for op in graphs[name]
        }
        assert told == {(name, "Subgraph")}


def test_accumulations_of_different_kinds_are_not_outlined_together() -> None:
    builder = popart.Builder()
    loss = layers(builder, 1)
    graphs = trained(builder, loss, optimizer=popart.Adam({}), given=options(enableOutlining=True))
    gathered = [op for op in graphs["maingraph"] if op["type"] == "Accumulate"]
    assert sorted(op["attributes"]["type"] for op in gathered) == ["5", "6"]


def test_transforms_and_patterns_tell_when_they_are_applied(
    caplog: pytest.LogCaptureFixture,
) -> None:
    builder = popart.Builder()
    y = builder.aiOnnx.sum([builder.addInputTensor("FLOAT", [3]) for _ in range(2)])
    names = [log_of(module).name for module in ("transform", "pattern")]
    with (
        caplog.at_level(logging.DEBUG, logger=names[0]),
        caplog.at_level(logging.DEBUG, logger=names[1]),
    ):
        inferred(builder, y, given=options(useHostCopyOps=True))
    assert "Applying Graph transform HostIOSetup 1" in caplog.text
    assert "Applying pattern SumToAdd to Op(Sum, inputs=" in caplog.text


KINDS = popart.RecomputationType


@pytest.mark.parametrize(
    ("kind", "explicit", "wanted"),
    [
        # all up to the loss is kept, since nobody marked anything that is
        (KINDS.RecomputeAll, False, {"Checkpoint"}),
        (KINDS.RecomputeAll, True, {"Checkpoint", "Recomputed"}),
        (KINDS.NormOnly, False, {"Checkpoint"}),
        (KINDS.Standard, False, {"Checkpoint", "Undefined", "Recompute"}),
        (KINDS.NoRecompute, False, {"Checkpoint", "Undefined"}),
    ],
)
def test_what_is_computed_again_follows_popart(
    kind: popart.RecomputationType, explicit: bool, wanted: set[str]
) -> None:
    builder = popart.Builder()
    loss = layers(builder, 6)
    given = options(autoRecomputation=kind, explicitRecomputation=explicit)
    ops = trained(builder, loss, given=given)["maingraph"]
    assert {op["attributes"]["recomputetype"] for op in ops} == wanted
    (final,) = (op for op in ops if op["type"] == "NlllWithSoftmaxGradDirect")
    assert final["attributes"]["recomputetype"] == "Checkpoint"


def test_what_is_kept_where_memory_is_least_splits_the_way_to_the_loss() -> None:
    """Of 18 operators, three segments of 3, 2 and 1 come first, the others stand alone."""
    builder = popart.Builder()
    value = builder.aiOnnx.mul([builder.addInputTensor("FLOAT", [8]), weight(builder, 8)])
    for _ in range(16):
        value = builder.aiOnnx.sigmoid([value])
    loss = builder.aiGraphcore.identityloss([value])
    given = options(autoRecomputation=KINDS.Standard)
    ops = trained(builder, loss, given=given, patterns=minimal())["maingraph"]
    told = [op["attributes"]["recomputetype"] for op in ops]
    assert (
        told[:7]
        == ["Undefined", "Recompute", "Recompute", "Undefined", "Recompute"] + ["Undefined"] * 2
    )


def test_the_environment_names_a_file_for_the_ir(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ir.json"
    monkeypatch.setenv("POPART_IR_DUMP", str(path))
    builder = popart.Builder()
    y = builder.aiOnnx.abs([builder.addInputTensor("FLOAT", [2])])
    assert inferred(builder, y) == json.loads(path.read_text())
