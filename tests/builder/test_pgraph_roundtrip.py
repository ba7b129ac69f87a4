"""Tests that printing a module as text and parsing it gives the same module."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto

from popgraph.builder.onnx.read import import_model
from popgraph.builder.onnx.write import export_model
from popgraph.builder.pgraph import parse, text_of
from popgraph.builder.pgraph.syntax import tree
from popgraph.conformance.cases import node_cases
from popgraph.dialects.onnx import tensor_type
from popgraph.dialects.onnx.attributes import ValueInfoAttr
from popgraph.dialects.onnx.types import UNKNOWN
from popgraph.dialects.onnx.writer import GraphWriter
from popgraph.dialects.program import WeightStore
from popgraph.testing import model_difference
from tests.sampling import examples

NOWHERE = tree.Span(1, 1, 1, 1)

# --- module -> text -> module ------------------------------------------------------------------

UNARY = ("Neg", "Relu", "Identity", "Abs", "Softmax")
BINARY = ("Add", "Sub", "Mul", "Div", "Pow", "MatMul")
TRUE = np.array(True)
names = st.sampled_from(["h", "x/1", "a b", "weight", "_", "`", "é", "\\n\n", "h/1", "h/2", "12"])


@st.composite
def steps(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    """Plain data: the nodes that follow the input `x: f32[N, 4]` and the weight `w: f32[4, 4]`."""
    count = draw(st.integers(1, 7))
    kinds = st.sampled_from(
        [
            *("unary", "binary", "constant", "cast", "dropout", "custom", "reshape"),
            *("if", "loop", "scan"),
        ]
    )
    operand = st.integers(0, 9)
    value = st.floats(width=32, allow_nan=False) | st.sampled_from([0.0, -0.0, 1.0, 0.5, np.inf])
    return [
        (
            draw(kinds),
            draw(operand),
            draw(operand),
            draw(st.sampled_from(range(6))),
            draw(value),
            draw(names | st.just("")),
        )
        for _ in range(count)
    ]


class Writing:
    """
    Builds a graph from the plain data; every value has the shape [N, 4] or [4, 4].

    With `stepwise`, node names derive from the name of one result and most results are used
    once, so that the printer writes nested expressions.
    """

    def __init__(self, described: list[tuple[Any, ...]], stepwise: bool) -> None:
        self.store = WeightStore()
        self.writer = GraphWriter({"": 21, "com.example": 1}, self.store, name="g")
        self.values = [
            self.writer.add_input("x", tensor_type("f32", ["N", 4])),
            self.writer.add_initializer("w", np.eye(4, dtype=np.float32)),
        ]
        self.unused: list[Any] = []
        self.stepwise, self.steps, self.stem = stepwise, 0, "v"
        for step in described:
            self.stem = step[5] or "v"
            self.values.append(self.write(*step[:5]))
            self.unused.append(self.values[-1])
        while stepwise and len(self.unused) > 1:
            rhs = self.unused.pop()
            self.unused.append(self.node("Add", self.unused.pop(), rhs))
        result = [self.unused[0] if stepwise else self.values[-1]]
        last = self.writer.add_node("Neg" if stepwise else "Identity", result, outputs=["last"])
        self.writer.set_outputs(last)
        self.module = self.writer.module()

    def fresh(self) -> str:
        self.steps += 1
        return f"last/{self.steps}" if self.stepwise else self.writer.fresh_name(self.stem)

    def pick(self, number: int) -> Any:
        """A value; with `stepwise` mostly an input, the newest unused result or an older one."""
        if not self.stepwise or number == 9:
            return self.values[-1 - number % len(self.values)]
        if number < 2 or not self.unused:
            return self.values[number % 2]
        return self.unused.pop(0 if number == 8 else -1)

    def node(self, op_type: str, *inputs: Any, **attributes: Any) -> Any:
        return self.writer.add_node(op_type, inputs, attributes, outputs=[self.fresh()])[0]

    def write(self, kind: str, first: int, second: int, which: int, value: float) -> Any:
        x = self.pick(first)
        match kind:
            case "unary":
                name = UNARY[which % 5]
                return self.node(name, x, **({"axis": -1} if name == "Softmax" else {}))
            case "binary":
                name = BINARY[which]
                if name == "MatMul":
                    return self.node(name, x, self.values[1])
                return self.node(name, self.pick(second), x)
            case "constant":
                dtype = [np.float32, np.float32, np.float64][which % 3]
                array = np.full([(), (1,), (1, 1)][which % 3], value, dtype)
                held = self.node("Constant", value=array)
                cast = held if dtype == np.float32 else self.node("CastLike", held, x)
                return self.node("Mul", *([x, cast] if first % 2 else [cast, x]))
            case "cast":
                return self.node("Cast", self.node("Cast", x, to=10), to=1)
            case "dropout":
                names = [self.fresh(), ["", self.writer.fresh_name("mask")][which % 2]]
                return self.writer.add_node("Dropout", [x], outputs=names)[0]
            case "custom":
                attributes = {"a": which, "f": value, "s": 'q"\n', "n": [1, 2], "e": [0.5]}
                if self.stepwise:
                    return self.node("Relu", x)
                return self.writer.add_node(
                    "Odd", [x, None, self.pick(second)], attributes, domain="com.example",
                    outputs=[self.fresh()], result_types=[x.type],
                )[0]  # fmt: skip
            case "if":
                total = self.node("ReduceSum", x, keepdims=0)
                least = self.node("Constant", value=np.array(value, np.float32))
                holds = [self.node("Greater", total, least), self.node("Constant", value=TRUE)]
                graphs = {
                    f"{label}_branch": self.branch(f"{label}{which // 4}", x, second + place)
                    for place, label in enumerate(("then", "else"))
                }
                return self.node("If", holds[which % 5 == 4], **graphs)
            case "loop":
                count = self.node("Constant", value=np.array(which % 3, np.int64))
                on = self.node("Constant", value=TRUE) if which % 2 else None
                return self.repeat("Loop", [count, on, x], self.loop_body(x, which, second), which)
            case "scan":
                first_axis = self.node("Constant", value=np.array([0]))
                total = self.node("ReduceSum", x, first_axis, keepdims=0)
                return self.repeat("Scan", [total, x], self.loop_body(total, which, second), which)
        return self.node("Reshape", x, self.node("Constant", value=np.array([-1, 4])))

    # Graphs inside nodes, with all kinds of names.

    def inner(self, writer: GraphWriter, op_type: str, *inputs: Any) -> Any:
        return writer.add_node(op_type, inputs, outputs=[writer.fresh_name(self.stem)])[0]

    def branch(self, label: str, x: Any, which: int) -> Any:
        """A branch that gives an outer value, or the result of one or two nodes."""
        writer = self.writer.subgraph(label, lenient=True)
        given = x
        for number in range(which % 3):
            given = self.inner(writer, ("Neg", "Identity")[(which + number) % 2], given)
        writer.set_outputs([given], None if which % 2 else [ValueInfoAttr.of(f"r{which}", UNKNOWN)])
        return writer.graph()

    def loop_body(self, first: Any, which: int, other: int) -> Any:
        """The body of a Loop or of a Scan; a row of the Scan has the type of the state."""
        writer = self.writer.subgraph("turn" if which % 2 else "body")
        typed = which % 3
        scans = first not in self.values
        names = [writer.fresh_name(self.stem) for _ in range(2 if scans else 3)]
        types = [tensor_type("i64", []), tensor_type("bool", [])] if not scans else [first.type]
        inputs = [
            writer.add_input(name, type_, info=None if typed else ValueInfoAttr.of(name, UNKNOWN))
            for name, type_ in zip(names, [*types, first.type], strict=True)
        ]
        state = inputs[0 if scans else 2]
        new = self.inner(
            writer, "Add", state, inputs[1] if scans else self.inner(writer, "Neg", state)
        )
        on = (
            [] if scans else [self.inner(writer, "Identity", inputs[1]) if other % 2 else inputs[1]]
        )
        writer.set_outputs([*on, new, new if other % 3 else self.inner(writer, "Neg", new)])
        return writer.graph()

    def repeat(self, op_type: str, inputs: list[Any], body: Any, which: int) -> Any:
        """The final state; the stacked rows if they have the shape of all other values."""
        names = [self.fresh(), self.fresh()]
        scans = op_type == "Scan"
        if scans and which % 2:
            names[0] = ""
        elif not scans and which % 4 == 0:
            names[1] = ""
        attributes = {"body": body} | ({"num_scan_inputs": 1} if scans else {})
        return self.writer.add_node(op_type, inputs, attributes, outputs=names)[-1 if scans else 0]


def assert_roundtrip(module: Any, weights: WeightStore) -> str:
    text = text_of(module, weights)
    again = parse(text)
    model, back = export_model(module, weights), export_model(again.module, again.weights)
    assert model_difference(model, back) == "", text
    assert text_of(again.module, again.weights) == text
    return text


@settings(max_examples=examples(150))
@given(steps(), st.booleans())
def test_a_module_printed_and_parsed_is_the_same(
    described: list[tuple[Any, ...]], stepwise: bool
) -> None:
    writing = Writing(described, stepwise)
    assert_roundtrip(writing.module, writing.store)


TEXTS = {
    "expressions": "y = (x + 1) * -x ** 2 / (x - 0.5) - -(x * x)",
    "comparison": "y = Where(x < 0.5, x, Where(x == x, x * 2, 0.25))",
    "powers": "y = (x ** 2) ** x ** (-x)",
    "calls": "y = Clip(Softmax(x @ w, axis=-1), _, 0.5)",
    "typed literals": "y = Cast(x, to=f64) * f64(0.5) + Cast(i8(3), to=f64)",
    "shapes": "y = Reshape(Concat(x, x, axis=0), [-1, 2, 2])",
    "alias": "h = x\n    y = h",
    "backticks": "`my value/1` = x\n    `weight` = `my value/1`\n    y = `weight`",
    "steps by hand": "`y/1` = Relu(x)\n    y = Neg(`y/1`) + Neg(x)",
    "steps out of order": "`y/1` = Relu(x)\n    `y/2` = Neg(x)\n    y = `y/2` + `y/1`",
    "a step that others use": "`y/1` = Relu(x)\n    y = Neg(`y/1`)\n    z = `y/1` + y",
    "a step too few": "`y/2` = Relu(x)\n    y = Neg(`y/2`)",
    "a constant before": "`y/1` = i64([-1, 4])\n    `y/2` = Relu(x)\n    y = Reshape(`y/2`, `y/1`)",
    "several results": "(a, b) = Split(x, [1, 3], axis=1)\n    y = Concat(b, a, axis=1)",
    "constants": "const c: f32[2, 2] = [[0.1, -0.0], [inf, nan]]\n    const i = 7\n    y = x",
    "empty": "const c: f32[0] = []\n    const d: f32[2, 0] = []\n    y = x",
    "types": "a: f32[N, 4] = Relu(x)\n    b: f32[N, 4] = graphcore.Gelu(a)\n    y = b",
    "negated literals": "y = Neg(3.0) * x - -2.0 + Neg(Neg(x))",
    "unused constants": '_ = 0\n    _ = ["a"]\n    _: f32[1] = f32([1])\n    y = x',
    "strings of any bytes": 's = Concat([b"\\xff"], ["a", b"a\\x00"], axis=0)\n    y = x',
    "bare constant": "y = f32([[1.0, 2.0, 3.0, 4.0]]) + x",
}


@pytest.mark.parametrize("body", TEXTS.values(), ids=TEXTS.keys())
def test_text_to_ir_to_text_is_a_fixpoint(body: str) -> None:
    head = "opset 21\ngraph g(x: f32[N, 4]) -> y {\n    weight w: f32[4, 4] = normal(std=0.5)\n    "
    document = parse(f"{head}{body}\n}}\n")
    assert_roundtrip(document.module, document.weights)


def test_formatted_text_is_unchanged() -> None:
    text = '''"""Two layers."""

opset 21

graph net(x: f32[N, 4]) -> (y: f32[N, 2]) {
    weight w: f32[4, 2] = ones
    weight b: f32[2] = [0.1, -2.0]
    h = Relu(x @ w + b * 0.5)
    y = Softmax(-h ** 2.0, axis=-1)
}
'''
    document = parse(text)
    assert text_of(document.module, document.weights) == text


@pytest.mark.parametrize(
    "array",
    [
        np.array([0.1, 1 / 3, 1e-45, 3.4028235e38, -0.0, np.inf], np.float32),
        np.array([0.1, 1 / 3, 5e-324, 1.7976931348623157e308], np.float64),
        np.array([0.1, 65504, 6e-8], np.float16),
        np.array([0.1, 3e38, 1e-40], ml_dtypes.bfloat16),
        np.array([0.1, 448], ml_dtypes.float8_e4m3fn),
        np.array([2**64 - 1, 0], np.uint64),
        np.array([-(2**63), 2**63 - 1], np.int64),
        np.array([True, False]),
        np.array([-8, 7], ml_dtypes.int4),
        np.array([["a", "b\n"], ['"', "é"]], object),
    ],
    ids=lambda array: str(array.dtype),
)
def test_every_bit_of_a_weight_survives(array: Any) -> None:
    store = WeightStore()
    writer = GraphWriter({"": 21}, store, name="g")
    value = writer.add_initializer("w", array)
    writer.set_outputs(writer.add_node("Identity", [value], outputs=["y"]))
    text = assert_roundtrip(writer.module(), store)
    assert "weight w" in text


def test_other_nans_are_written_by_their_bits() -> None:
    store = WeightStore()
    writer = GraphWriter({"": 21}, store, name="g")
    payload = np.array([0x7FC00001, 0], np.uint32).view(np.float32)
    writer.set_outputs([writer.add_initializer("w", payload)])
    assert "= bits([0x7fc00001, 0x0])" in assert_roundtrip(writer.module(), store)


# --- every model of the onnx package ------------------------------------------------------------

DATA = Path(onnx.__file__).parent / "backend/test/data"
FOLDERS = {"simple": 23, "pytorch-operator": 35, "pytorch-converted": 82, "light": 9}
"""The minimal number of models in each folder."""
PARTS = 8


def assert_comes_back(model: ModelProto) -> None:
    store = WeightStore()
    module = import_model(model, store)
    text = text_of(module, store)
    document = parse(text)
    difference = model_difference(model, export_model(document.module, document.weights))
    assert difference == "", text
    assert text_of(document.module, document.weights) == text


@pytest.mark.parametrize("part", range(PARTS))
def test_the_node_tests_of_onnx_come_back_from_their_texts(part: int) -> None:
    cases = node_cases()[part::PARTS]
    assert len(cases) > 200
    for case in cases:
        assert_comes_back(case.model)


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_models_that_onnx_ships_come_back_from_their_texts(folder: str) -> None:
    files = sorted((DATA / folder).rglob("*.onnx"))
    assert len(files) >= FOLDERS[folder]
    small = [file for file in files if file.stat().st_size < 100_000]
    for file in small:
        assert_comes_back(onnx.load(file))
