"""Tests how PopART's builder reads and writes the attributes of nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from popgraph import popart as popart
from popgraph.popart.builder import Builder
from popgraph.popart.exceptions import popart_exception


def one_node() -> tuple[Builder, str]:
    builder = Builder()
    return builder, builder.aiOnnx.relu([builder.addInputTensor("FLOAT", [2, 4])])


KINDS: dict[str, tuple[Any, str]] = {
    "Int64": (100, "an integer"),
    "Int64Vector": ([1, 2], "an integer vector"),
    "Float": (0.5, "a float"),
    "FloatVector": ([0.5, 0.25], "a float vector"),
    "String": ("text", "a string"),
    "StringVector": (["a", "b"], "a string vector"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_an_attribute_is_of_one_kind(kind: str) -> None:
    builder, y = one_node()
    builder.addNodeAttribute("mine", KINDS[kind][0], {y})
    for asked, (value, words) in KINDS.items():
        get = getattr(builder, f"get{asked}NodeAttribute")
        if asked == kind:
            assert get(attributeName="mine", nodeOutputNames={y}) == value
            continue
        with pytest.raises(popart_exception) as caught:
            get("mine", {y})
        assert caught.value.args[0] == f"Attribute mine is not {words}."


def test_nodes_are_identified_by_all_outputs() -> None:
    builder, y = one_node()
    halves = builder.aiOnnx.split([y], 2, axis=1)
    builder.addNodeAttribute("mine", 1, set(halves))
    wrong: list[set[str]] = [{halves[0]}, {y, halves[0]}, {"nothing"}, {"input"}, set()]
    for ids in wrong:
        with pytest.raises(popart_exception, match="Could not find a node with outputs"):
            builder.addNodeAttribute("mine", 1, ids)


def test_values_that_are_not_attributes_are_refused() -> None:
    builder, y = one_node()
    with pytest.raises(popart_exception):
        builder.addNodeAttribute("mine", None, {y})


@pytest.mark.parametrize(
    ("name", "value", "held"),
    [
        ("virtualGraph", 3, 3),
        ("pipelineStage", 3, 3),
        ("executionPhase", 3, 3),
        ("recomputeOutput", popart.RecomputeType.Recompute, 2),
        (
            "outputTensorLocation",
            popart.TensorLocation(popart.TensorStorage.OffChip),
            [1, 0, 0, 0, 0, 0],
        ),
    ],
)
def test_annotations_by_position_by_name_and_as_context(name: str, value: Any, held: Any) -> None:
    builder, y = one_node()
    z, u = builder.aiOnnx.relu([y]), builder.aiOnnx.relu([y])
    note = getattr(builder, name)
    note(y, value)
    note(nodeOutputNames=z, value=value)
    note(u, value=value)
    with note(value=value):
        v = builder.aiOnnx.relu([y])
    with note(value) as nothing:
        w = builder.aiOnnx.relu([y])
    assert nothing is None
    debug_id, written = builder.getAllNodeAttributeNames({y})
    assert debug_id == "__debug_info_id" and builder.getInt64NodeAttribute(debug_id, {y})
    for id in (y, z, u, v, w):
        assert builder.getNodeAttribute(written, {id}) == held


def test_contexts_have_classes() -> None:
    builder, _ = one_node()
    assert isinstance(builder.virtualGraph(1), popart.AttributeContextManager)
    assert isinstance(builder.schedulePriority(1.0), popart.AttributeContextManager)
    assert isinstance(builder.outlineAttributes({"a": "b"}), popart.KeyValueContextManager)
    assert isinstance(builder.nameScope("a"), popart.NameContextManager)


def test_the_innermost_context_counts_and_pairs_add_up() -> None:
    builder, y = one_node()
    with builder.outlineAttributes({"a": "1"}), builder.schedulePriority(1.0):
        with builder.outlineAttributes({"b": "2"}), builder.schedulePriority(-2.0):
            inner = builder.aiOnnx.relu([y])
        outer = builder.aiOnnx.relu([y])
    pairs = [builder.getNodeAttribute("__outline", {id}) for id in (inner, outer)]
    assert pairs == [["a=1", "b=2"], ["a=1"]]
    assert builder.getFloatNodeAttribute("__schedule_priority", {inner}) == -2.0
    assert builder.getFloatNodeAttribute("__schedule_priority", {outer}) == 1.0


def test_a_context_ends_with_an_error() -> None:
    builder, _ = one_node()
    with pytest.raises(ValueError, match="mine"), builder.virtualGraph(1), builder.nameScope("a"):
        raise ValueError("mine")
    assert not builder.hasVirtualGraph()
    assert builder.getNameScope() == ""


def test_unknown_modes_of_matmul_serialization() -> None:
    builder, y = one_node()
    z = builder.aiOnnx.matmul([y, builder.addInputTensor("FLOAT", [4, 4])])
    with pytest.raises(popart_exception) as caught:
        builder.setSerializeMatMul({z}, "columns", 2)
    assert caught.value.args[0] == (
        "Unsupported mat mul serialization mode 'columns'. Supported modes are 'input_channels', "
        "'reducing_dim', 'output_channels' or 'none'"
    )


def test_hints_are_for_the_operators_that_take_them() -> None:
    builder, y = one_node()
    refused: list[tuple[Callable[[], object], str]] = [
        (
            lambda: builder.setPartialsType(y, "HALF"),
            "Builder::setPartialsType should only be called on operators: Conv, MatMul; but was "
            "given: Relu",
        ),
        (
            lambda: builder.setEnableConvDithering(y, 1),
            "Builder::setEnableConvDithering should only be called on convolutions but was given: "
            "Relu",
        ),
        (
            lambda: builder.setEnableConvDithering(y, 2),
            "enableConvDithering must be a bool value",
        ),
        (
            lambda: builder.removeNodeAttribute("mine", {y}),
            "Cannot remove attribute mine as it does not exist.",
        ),
        (lambda: builder.aiGraphcore.copyvarupdate([y]), "copyvarupdate should have two args."),
        (
            lambda: builder.aiGraphcore.multiconv([], debugContext="both"),
            "MultiConvOp 'both' has no input tensors. Provide at least one set of inputs",
        ),
        (
            lambda: builder.aiGraphcore.copyvarupdate([y, y]),
            "The first arg of copyvarupdate should be an initalised tensor.",
        ),
        (
            lambda: builder.aiGraphcore.multiconv([[y]], debugContext="both"),
            "Each convolution of MultiConvOp 'both' must have at least two inputs - data and "
            "weights",
        ),
        (
            builder.addUntypedInputTensor,
            "Can not add untyped tensors to the top-level graph. Use "
            "Builder::addInputTensor(const TensorInfo &tensorInfo, const std::string &debugPrefix) "
            "instead.",
        ),
    ]
    for call, text in refused:
        with pytest.raises(popart_exception) as caught:
            call()
        assert caught.value.args[0] == text
