"""Tests models with host steps: data-dependent sizes, sequences, strings."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import popgraph
from popgraph.compiler import load, lower
from popgraph.passes.onnx.partition import Segment, host_nodes, partition
from popgraph.passes.optimizer_spec import SGD
from popgraph.passes.options import Options, Training
from popgraph.support.errors import RunError, UnsupportedError

FLOAT, INT, BOOL, STRING = (
    TensorProto.FLOAT,
    TensorProto.INT64,
    TensorProto.BOOL,
    TensorProto.STRING,
)
BACKENDS = pytest.mark.parametrize("backend", ["c", "reference"])


def tensor(name: str, shape: list[Any] | None, element: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, element, shape)


def model(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    initializers: dict[str, Any] | None = None,
    functions: list[onnx.FunctionProto] | None = None,
) -> onnx.ModelProto:
    held = [
        onnx.numpy_helper.from_array(np.asarray(array), name)
        for name, array in (initializers or {}).items()
    ]
    graph = helper.make_graph(nodes, "g", inputs, outputs, held)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=opsets, functions=functions or [], ir_version=9)


PICK = [
    helper.make_node("Mul", ["x", "x"], ["a"]),
    helper.make_node("NonZero", ["a"], ["places"]),
    helper.make_node("Transpose", ["places"], ["rows"]),
    helper.make_node("GatherND", ["a", "rows"], ["picked"]),
    helper.make_node("ReduceSum", ["picked"], ["sum"], keepdims=0),
    helper.make_node("Exp", ["x"], ["aside"]),
]


def picking() -> onnx.ModelProto:
    outputs = [tensor("places", [2, None], INT), tensor("sum", []), tensor("aside", [3, 4])]
    return model(PICK, [tensor("x", [3, 4])], outputs)


@BACKENDS
def test_segments_are_compiled_for_the_size_of_a_host_step(backend: str) -> None:
    run = popgraph.compile(picking(), backend=backend)
    for seed in range(4):
        x = np.random.default_rng(seed).integers(-1, 2, (3, 4)).astype(np.float32)
        found = run(x=x)
        np.testing.assert_array_equal(found["places"], np.nonzero(x))
        np.testing.assert_allclose(found["sum"], (x * x).sum(), rtol=1e-6)
        np.testing.assert_allclose(found["aside"], np.exp(x), rtol=1e-6)
    nothing = run(x=np.zeros((3, 4), np.float32))
    assert nothing["places"].shape == (2, 0)
    assert nothing["sum"] == 0


def test_the_number_of_segments_is_minimal() -> None:
    module, compilation = load(picking())
    first, last = partition(module, compilation.weights)
    assert isinstance(first, Segment)
    assert isinstance(last, Segment)
    assert sorted(first.outputs) == ["a", "aside", "places"]
    assert first.shapes == {"places": "shape of places"}
    assert (sorted(last.inputs), sorted(last.outputs)) == (["a", "places"], ["sum"])


@BACKENDS
def test_host_steps_in_functions_and_branches(backend: str) -> None:
    body = helper.make_function(
        "own",
        "Count",
        ["v"],
        ["n"],
        [
            helper.make_node("NonZero", ["v"], ["p"]),
            helper.make_node("Shape", ["p"], ["s"], start=1, end=2),
            helper.make_node("Squeeze", ["s"], ["n"]),
        ],
        [helper.make_opsetid("", 18)],
    )
    branches = [
        helper.make_graph([node], name, [], [tensor("r", None, element)])
        for name, node, element in (
            ("then", helper.make_node("NonZero", ["x"], ["r"]), INT),
            ("else", helper.make_node("NonZero", ["y"], ["r"]), INT),
        )
    ]
    nodes = [
        helper.make_node("Neg", ["x"], ["y"]),
        helper.make_node("Count", ["y"], ["n"], domain="own"),
        helper.make_node("ReduceSum", ["x"], ["total"], keepdims=0),
        helper.make_node("Greater", ["total", "zero"], ["positive"]),
        helper.make_node(
            "If", ["positive"], ["chosen"], then_branch=branches[0], else_branch=branches[1]
        ),
        helper.make_node("Add", ["chosen", "chosen"], ["double"]),
    ]
    outputs = [tensor("n", [], INT), tensor("double", [1, None], INT)]
    proto = model(nodes, [tensor("x", [4])], outputs, {"zero": np.float32(0)}, [body])
    run = popgraph.compile(proto, backend=backend)
    for x in ([1, 0, 2, 3], [0, 0, 0, -1], [0, 0, 0, 0]):
        found = run(x=np.array(x, np.float32))
        assert found["n"] == np.count_nonzero(x)
        np.testing.assert_array_equal(found["double"], 2 * np.array(np.nonzero(x)))


def counting(count: str, condition: str) -> onnx.ModelProto:
    """A Loop around a host step, whose condition is false after the second iteration."""
    body = helper.make_graph(
        [
            helper.make_node("Less", ["turn", "one"], ["on"]),
            helper.make_node("NonZero", ["old"], ["places"]),
            helper.make_node("Gather", ["old", "first"], ["seen"]),
            helper.make_node("Add", ["old", "seen"], ["new"]),
        ],
        "body",
        [tensor("turn", [], INT), tensor("going", [], BOOL), tensor("old", [2])],
        [tensor("on", [], BOOL), tensor("new", [2])],
    )
    held = {"four": np.array(4), "yes": np.array(True), "one": np.array(1), "first": np.array([0])}
    loop = helper.make_node("Loop", [count, condition, "x"], ["y"], body=body)
    return model([loop], [tensor("x", [2])], [tensor("y", [2])], held)


@pytest.mark.parametrize(("condition", "doubled"), [("yes", 2), ("", 4)])
@BACKENDS
def test_a_loop_without_a_condition_ignores_its_body(
    backend: str, condition: str, doubled: int
) -> None:
    """A hosted loop ignores the body's condition without an initial one, as compiled loops do."""
    found = popgraph.compile(counting("four", condition), backend=backend)(x=np.ones(2, "f4"))
    np.testing.assert_array_equal(found["y"], [2**doubled, 2**doubled])


def test_a_loop_that_never_ends_is_refused() -> None:
    with pytest.raises(RunError, match="this Loop never ends"):
        popgraph.compile(counting("", ""))(x=np.ones(2, "f4"))


def test_an_overridden_initializer_reaches_a_segment() -> None:
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["a"]),
        helper.make_node("NonZero", ["a"], ["places"]),
    ]
    proto = model(
        nodes,
        [tensor("x", [2]), tensor("w", [2])],
        [tensor("places", [1, None], INT), tensor("a", [2])],
        {"w": np.array([1, 0], np.float32)},
    )
    run = popgraph.compile(proto)
    x = np.array([3, 4], np.float32)
    assert run(x=x)["places"].tolist() == [[0]]
    assert run(x=x, w=np.array([0, 2], np.float32))["a"].tolist() == [0, 8]


def test_sequences_and_optionals_as_inputs_and_outputs() -> None:
    pieces = helper.make_tensor_sequence_value_info("pieces", FLOAT, None)
    maybe = helper.make_value_info(
        "maybe", helper.make_optional_type_proto(helper.make_tensor_type_proto(FLOAT, [2]))
    )
    nodes = [
        helper.make_node("SequenceInsert", ["pieces", "x"], ["more"]),
        helper.make_node("ConcatFromSequence", ["more"], ["joined"], axis=0),
        helper.make_node("Mul", ["joined", "joined"], ["squares"]),
        helper.make_node("OptionalHasElement", ["maybe"], ["there"]),
    ]
    more = helper.make_tensor_sequence_value_info("more", FLOAT, None)
    outputs = [more, tensor("squares", [None]), tensor("there", [], BOOL)]
    run = popgraph.compile(model(nodes, [pieces, tensor("x", [2]), maybe], outputs))
    x = np.array([1, 2], np.float32)
    found = run(pieces=[x + 2, x[:1]], x=x, maybe=None)
    assert [array.tolist() for array in found["more"]] == [[3, 4], [1], [1, 2]]
    assert found["squares"].tolist() == [9, 16, 1, 1, 4]
    assert not found["there"]
    assert run(pieces=[], x=x, maybe=x)["there"]
    with pytest.raises(RunError, match="input 'pieces' must be a sequence, not ndarray") as error:
        run(pieces=x, x=x, maybe=None)
    assert error.value.hint == "pass a list of arrays"


@BACKENDS
def test_an_optional_sequence_is_the_sequence(backend: str) -> None:
    pieces = helper.make_tensor_sequence_value_info("pieces", FLOAT, None)
    sequence = pieces.type
    maybe = helper.make_value_info("maybe", helper.make_optional_type_proto(sequence))
    nodes = [
        helper.make_node("Optional", ["pieces"], ["maybe"]),
        helper.make_node("OptionalGetElement", ["maybe"], ["again"]),
        helper.make_node("SequenceLength", ["again"], ["count"]),
        helper.make_node("Optional", [], ["nothing"], type=sequence),
        helper.make_node("OptionalHasElement", ["nothing"], ["there"]),
    ]
    outputs = [maybe, tensor("count", [], INT), tensor("there", [], BOOL)]
    run = popgraph.compile(model(nodes, [pieces], outputs), backend=backend)
    found = run(pieces=[np.ones(2, np.float32)])
    assert [array.tolist() for array in found["maybe"]] == [[1, 1]]
    assert found["count"] == 1
    assert not found["there"]


def test_get_element_of_an_empty_optional_is_an_error() -> None:
    maybe = helper.make_value_info(
        "maybe", helper.make_optional_type_proto(helper.make_tensor_type_proto(FLOAT, [2]))
    )
    node = helper.make_node("OptionalGetElement", ["maybe"], ["x"])
    run = popgraph.compile(model([node], [maybe], [tensor("x", [2])]))
    with pytest.raises(RunError, match="of OptionalGetElement is empty"):
        run(maybe=None)  # type: ignore[arg-type]


@BACKENDS
def test_segments_draw_different_numbers(backend: str) -> None:
    nodes = [
        helper.make_node("RandomUniformLike", ["x"], ["first"]),
        helper.make_node("NonZero", ["x"], ["places"]),
        helper.make_node("Cast", ["places"], ["like"], to=FLOAT),
        helper.make_node("RandomUniformLike", ["like"], ["second"]),
    ]
    outputs = [tensor("first", [64]), tensor("second", [1, None])]
    run = popgraph.compile(model(nodes, [tensor("x", [64])], outputs), backend=backend)
    drawn = [run(x=np.ones(64, np.float32)) for _ in range(2)]
    rows = [found[name].reshape(-1) for found in drawn for name in ("first", "second")]
    assert len(np.unique(rows)) > 250, "256 numbers, hardly two of them equal"


def drawing_in_a_body(kind: str, function: bool) -> onnx.ModelProto:
    """Draws twice in each iteration of a loop that collects a sequence, or of SequenceMap."""
    draws = [
        helper.make_node("RandomNormalLike", ["like"], ["first"]),
        helper.make_node("Dropout", ["ones", "half", "yes"], ["second"]),
        helper.make_node("Concat", ["first", "second"], ["both"], axis=0),
    ]
    functions = []
    if function:
        opset = [helper.make_opsetid("", 18)]
        captured = ["like", "ones", "half", "yes"]
        functions = [helper.make_function("own", "Draw", captured, ["both"], draws, opset)]
        draws = [helper.make_node("Draw", captured, ["both"], domain="own")]
    draws.insert(0, helper.make_node("Add", ["x", "x"], ["like"]))
    if kind == "SequenceMap":
        body = helper.make_graph(draws, "b", [tensor("x", None)], [tensor("both", None)])
        nodes = [
            helper.make_node("SequenceConstruct", ["data", "data", "data"], ["s"]),
            helper.make_node("SequenceMap", ["s"], ["found"], body=body),
        ]
    else:
        draws += [
            helper.make_node("Identity", ["going"], ["still"]),
            helper.make_node("SequenceInsert", ["before", "both"], ["after"]),
        ]
        draws[0] = helper.make_node("Add", ["data", "data"], ["like"])
        sequence = helper.make_tensor_sequence_value_info
        body = helper.make_graph(
            draws,
            "b",
            [tensor("turn", [], INT), tensor("going", [], BOOL), sequence("before", FLOAT, None)],
            [tensor("still", [], BOOL), sequence("after", FLOAT, None)],
        )
        nodes = [
            helper.make_node("SequenceEmpty", [], ["s"]),
            helper.make_node("Loop", ["three", "", "s"], ["found"], body=body),
        ]
    held = {"three": 3, "half": np.float32(0.5), "yes": True, "ones": np.ones(64, np.float32)}
    outputs = [helper.make_tensor_sequence_value_info("found", FLOAT, None)]
    return model(nodes, [tensor("data", ["N"])], outputs, held, functions)


@pytest.mark.parametrize("function", [False, True])
@pytest.mark.parametrize("kind", ["Loop", "SequenceMap"])
@BACKENDS
def test_bodies_on_the_host_draw_from_the_streams_of_the_model(
    kind: str, function: bool, backend: str
) -> None:
    """Numbers differ between iterations and calls, and are reproducible."""
    proto = drawing_in_a_body(kind, function)

    def rows() -> list[Any]:
        run = popgraph.compile(proto, backend=backend)
        sizes = (64, 64, 50)
        return [row for size in sizes for row in run(data=np.ones(size, np.float32))["found"]]

    found = rows()
    assert len(found) == 9
    normal = np.concatenate([row[:-64] for row in found])
    assert len(np.unique(normal)) > 520, "534 numbers, hardly two of them equal"
    masks = np.array([row[-64:] for row in found])
    assert set(np.unique(masks)) == {0, 2}
    assert len(np.unique(masks, axis=0)) == 9
    np.random.seed(1)
    for row, again in zip(found, rows(), strict=True):
        np.testing.assert_array_equal(row, again)


def test_strings_are_arrays_of_numpy() -> None:
    nodes = [
        helper.make_node("StringConcat", ["words", "words"], ["twice"]),
        helper.make_node("StringSplit", ["words"], ["parts", "count"], delimiter="-"),
        helper.make_node("Mul", ["count", "count"], ["squares"]),
    ]
    outputs = [
        tensor("twice", [2], STRING),
        tensor("parts", [2, None], STRING),
        tensor("squares", [2], INT),
    ]
    proto = model(nodes, [tensor("words", [2], STRING)], outputs)
    proto.opset_import[0].version = 20
    found = popgraph.compile(proto)(words=["a-b-c", "d"])  # type: ignore[arg-type]
    assert found["twice"].dtype.kind == "U"
    assert found["twice"].tolist() == ["a-b-ca-b-c", "dd"]
    assert found["parts"].tolist() == [["a", "b", "c"], ["d", "", ""]]
    assert found["squares"].tolist() == [9, 1]


def test_errors_of_host_steps_name_the_node() -> None:
    node = helper.make_node("SequenceAt", ["pieces", "at"], ["x"], name="third")
    pieces = helper.make_tensor_sequence_value_info("pieces", FLOAT, None)
    run = popgraph.compile(model([node], [pieces, tensor("at", [], INT)], [tensor("x", None)]))
    with pytest.raises(RunError, match="SequenceAt: position 3 is out of bounds") as error:
        run(pieces=[np.zeros(1, np.float32)], at=np.array(3))  # type: ignore[arg-type]
    assert "third" in error.value.where


def test_training_through_python_is_refused() -> None:
    options = Options(training=Training("sum", SGD()))
    nodes = [
        helper.make_node("Cast", ["x"], ["words"], to=TensorProto.STRING),
        helper.make_node("Cast", ["words"], ["y"], to=TensorProto.FLOAT),
        helper.make_node("ReduceSum", ["y"], ["sum"], keepdims=0),
    ]
    made = model(nodes, [tensor("x", [3, 4])], [tensor("sum", [])])
    with pytest.raises(UnsupportedError, match="cannot be trained through") as error:
        popgraph.compile(made, options=options)
    assert "Cast" in error.value.where


def test_host_steps_have_no_lower_level() -> None:
    module, compilation = load(picking())
    lower(module, compilation, until="normalize")
    with pytest.raises(
        UnsupportedError, match="the output size of NonZero depends on data"
    ) as error:
        lower(module, compilation)
    assert "places" in error.value.where


def test_a_model_without_host_steps_is_one_program() -> None:
    module, _ = load(model(PICK[:1], [tensor("x", [3, 4])], [tensor("a", [3, 4])]))
    assert host_nodes(module) == []
    assert popgraph.compile(model(PICK[:1], [tensor("x", [3])], [tensor("a", [3])])).static


def test_hosted_models_have_no_variables() -> None:
    x = np.ones((3, 4), np.float32)
    program = popgraph.compile(picking()).program({"x": x})
    assert program.inputs["x"][1] == (3, 4)
    for access in (program.read, lambda name: program.write(name, x)):
        with pytest.raises(RunError, match="no variable 'w'"):
            access("w")


def test_host_steps_in_a_function_called_by_a_branch() -> None:
    body = helper.make_function(
        "own",
        "Places",
        ["v"],
        ["p"],
        [helper.make_node("NonZero", ["v"], ["p"])],
        [helper.make_opsetid("", 18)],
    )
    branches = [
        helper.make_graph(
            [helper.make_node("Places", [given], ["r"], domain="own")],
            name,
            [],
            [tensor("r", None, INT)],
        )
        for name, given in (("then", "x"), ("else", "y"))
    ]
    nodes = [
        helper.make_node("Neg", ["x"], ["y"]),
        helper.make_node("If", ["c"], ["r"], then_branch=branches[0], else_branch=branches[1]),
    ]
    proto = model(
        nodes,
        [tensor("x", [4]), tensor("c", [], BOOL)],
        [tensor("r", [1, None], INT)],
        functions=[body],
    )
    run = popgraph.compile(proto)
    x = np.array([1, 0, 2, 3], np.float32)
    for choice in (True, False):
        np.testing.assert_array_equal(run(x=x, c=np.array(choice))["r"], [[0, 2, 3]])


RETURNED = """graph g(x: f32[4], s: string[2]) -> (x: f32[4], w: f32[4], z: f32[4], t: string[2]) {
    weight w: f32[4] = ones
    z = Identity(x)
    t = StringConcat(s, s)
}
"""


def test_outputs_that_are_inputs_or_weights_have_memory_of_their_own() -> None:
    run = popgraph.compile(RETURNED)
    whole = np.arange(8, dtype=np.float32)
    given = {"x": whole[2:6], "s": np.array(["a", "b"], object)}
    found = run(given)
    arrays = [found[name] for name in ("x", "w", "z")]
    for at, array in enumerate(arrays):
        assert not any(np.shares_memory(array, other) for other in (whole, *arrays[:at]))
        array[:] = -1
    np.testing.assert_array_equal(whole, np.arange(8))
    np.testing.assert_array_equal(run(given)["w"], np.ones(4))
