"""Tests sequences and optionals of tensors, which compile to their elements."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper, parser
from onnx.reference import ReferenceEvaluator

import popgraph
from popgraph.operators import sequences
from popgraph.support.errors import IndicesError, RunError
from tests.gradients import Sample, Slope
from tests.passes.test_onnx_to_graphcore import lowered

BACKENDS = pytest.mark.parametrize("backend", ["c", "reference"])


def parsed(text: str, opset: int = 18) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : {opset}]> {text}')


# Inputs and outputs

LISTS = """g (seq(float[N, 3]) s, optional(float[3]) o, float[3] x) => (seq(float[N, 3]) t, y, z) {
    has = OptionalHasElement(o)
    y = If (has) <
        then_branch = one () => (float[3] a) { a = OptionalGetElement(o) },
        else_branch = two () => (float[3] b) { b = Neg(x) }
    >
    row = Unsqueeze(x, zero)
    t = SequenceInsert(s, row)
    z = ConcatFromSequence<axis = 0>(t)
}"""


@BACKENDS
def test_lists_are_inputs_and_outputs(backend: str) -> None:
    """Lengths, shapes of elements and contents of optionals are part of the signature."""
    model = parsed(LISTS)
    model.graph.initializer.append(numpy_helper.from_array(np.zeros(1, np.int64), "zero"))
    run = popgraph.compile(model, backend=backend)
    x = np.arange(3, dtype=np.float32)
    for count, optional in ((0, None), (2, x + 1), (1, None), (2, None)):
        given = [np.full((place + 1, 3), place, np.float32) for place in range(count)]
        found = run(s=given, o=optional, x=x)
        assert len(found["t"]) == count + 1
        for one, wanted in zip(found["t"], [*given, x[None]], strict=True):
            np.testing.assert_array_equal(one, wanted)
        np.testing.assert_array_equal(found["z"], np.concatenate([*given, x[None]]))
        np.testing.assert_array_equal(found["y"], -x if optional is None else optional)
    assert not run.computed_by.in_python
    with pytest.raises(RunError, match="input 's' must be a sequence, not ndarray"):
        run(s=x, o=None, x=x)
    with pytest.raises(RunError, match="input 's' is missing"):
        run(o=None, x=x)


@BACKENDS
def test_the_host_holds_a_sequence_of_many_lengths(backend: str) -> None:
    run = popgraph.compile(
        parsed("g (seq(float[2]) s) => (seq(float[2]) t, int64 n) { "
               "t = SequenceErase(s) n = SequenceLength(s) }"),
        backend=backend,
    )  # fmt: skip
    for count in range(1, 14):
        found = run(s=[np.full(2, place, np.float32) for place in range(count)])
        assert found["n"] == count and [one[0] for one in found["t"]] == [*range(count - 1)]
    assert run.computed_by.in_python == {"SequenceErase", "SequenceLength"}


STEPS = """g (float[6, 2] x) => (float[K] y, int64 n, seq(int64) pieces) {
    parts = SplitToSequence<axis = 0>(x, three)
    first = SequenceAt(parts, zero)
    found = NonZero(first)
    column = Gather<axis = 0>(found, zero)
    pieces = SplitToSequence<axis = 0, keepdims = 0>(column)
    n = SequenceLength(pieces)
    more = SequenceInsert(parts, first)
    last = ConcatFromSequence<axis = 0>(more)
    y = ReduceSum<keepdims = 0>(last, one)
}"""


def with_numbers(model: onnx.ModelProto, **numbers: Any) -> onnx.ModelProto:
    """The model with these initializers."""
    model.graph.initializer.extend(
        numpy_helper.from_array(np.array(value), name) for name, value in numbers.items()
    )
    return model


@BACKENDS
def test_sequences_before_and_after_a_data_dependent_size(backend: str) -> None:
    """Sequences of each segment are known when it is compiled."""
    run = popgraph.compile(with_numbers(parsed(STEPS), zero=0, one=[1], three=3), backend=backend)
    x = np.arange(12, dtype=np.float32).reshape(6, 2)
    for shift in (0, 1, 3):
        found, moved = run(x=x - shift), x - shift
        rows, _ = np.nonzero(moved[:3])
        assert found["n"] == len(rows) and [*found["pieces"]] == [*rows]
        np.testing.assert_allclose(found["y"], [*moved.sum(1), *moved[:3].sum(1)])
    assert not run.computed_by.in_python


CROSSING = """g (float[3] x, float[3] c) => (seq(float[K]) t, int64 n) {
    s = SequenceConstruct(x, c)
    chosen = Compress<axis = 0>(x, flags)
    t = SequenceInsert(s, chosen)
    n = SequenceLength(t)
    flags = Cast<to = 9>(c)
}"""


@BACKENDS
def test_the_host_holds_sequences_across_segments(backend: str) -> None:
    """The host holds a sequence that spans segments."""
    text = CROSSING.replace("    flags = Cast<to = 9>(c)\n", "").replace(
        "    s =", "    flags = Cast<to = 9>(c)\n    s ="
    )
    run = popgraph.compile(parsed(text), backend=backend)
    x = np.arange(3, dtype=np.float32)
    for c in (x, x - 1, np.zeros(3, np.float32)):
        found = run(x=x, c=c)
        assert found["n"] == 3
        np.testing.assert_array_equal(found["t"][2], x[c != 0])
    assert run.computed_by.in_python <= {"SequenceConstruct", "SequenceInsert", "SequenceLength"}


# Positions


AT = """g (float[{shape}] x, int64 i, float[{other}] w) => (y) {{
    s = SequenceConstruct(x, w, x)
    {op}
}}"""
OPS = {
    "at": "y = SequenceAt(s, i)",
    "erase": "t = SequenceErase(s, i) y = ConcatFromSequence<axis = 0>(t)",
    "insert": "v = Neg(x) t = SequenceInsert(s, v, i) y = ConcatFromSequence<axis = 0>(t)",
}


@BACKENDS
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("other", [2, 3])
def test_run_time_positions_of_sequences(op: str, other: int, backend: str) -> None:
    """Elements of one shape are selected at run time; different shapes need a program each."""
    run = popgraph.compile(parsed(AT.format(shape=2, other=other, op=OPS[op])), backend=backend)
    x, w = np.array([1, 2], np.float32), np.arange(3, 3 + other, dtype=np.float32)
    assert run.structural == (() if other == 2 else ("i",))
    last = 3 if op == "insert" else 2
    for i in range(-3, last + 1):
        wanted = [x, w, x]
        if op == "insert":
            wanted.insert(i, -x)
        elif op == "erase":
            del wanted[i]
        found = run(x=x, i=np.array(i), w=w)["y"]
        np.testing.assert_array_equal(
            found, wanted[i] if op == "at" else np.concatenate(wanted), err_msg=str(i)
        )
    assert not run.computed_by.in_python
    for i in (-4, last + 1):
        with pytest.raises(RunError if other == 3 else IndicesError, match=f"position {i} is out"):
            run(x=x, i=np.array(i), w=w)


def test_sequence_positions_can_be_clamped() -> None:
    model = parsed(AT.format(shape=2, other=2, op=OPS["at"]))
    x, w = np.ones(2, np.float32), np.zeros(2, np.float32)
    run = popgraph.compile(model, backend="reference", indices="nearest")
    assert run(x=x, i=np.array(9), w=w)["y"][0] == 1 and run(x=w, i=np.array(-9), w=x)["y"][0] == 0


# Loops that append


LOOP = """g (float[2, 3] x, float[2, 3] w, int64 i) => ({outputs}) {{
    s = {first}
    numbers = SequenceEmpty<dtype = 7>()
    last, {t} = Loop(count, true, x, {s}) <
        body = turn (int64 k, bool go, float[2, 3] h, {states}) => (goes, after, {appended}) {{
            goes = Identity(go)
            scale = Cast<to = 1>(k)
            moved = Mul(h, factor)
            after = Add(moved, w)
            row = Mul(after, scale)
            {body}
        }}
    >
    {after}
}}"""
APPENDS = "p1 = SequenceInsert(p0, row) p = Identity(p1)"
AFTER = {
    "concat": "y = ConcatFromSequence<axis = 0>(t)",
    "concat the columns": "y = ConcatFromSequence<axis = -1>(t)",
    "stack": "y = ConcatFromSequence<axis = 1, new_axis = 1>(t)",
    "at": "y = SequenceAt(t, i)",
    "at the last": "y = SequenceAt(t, minus)",
    "length": "y = SequenceLength(t)",
    "erase": "e = SequenceErase(t, seven) y = ConcatFromSequence<axis = 0>(e)",
    "insert": "e = SequenceInsert(t, x, seven) y = ConcatFromSequence<axis = 0>(e)",
    "move": "e = SequenceErase(t, i) f = SequenceInsert(e, x, i) "
    "y = ConcatFromSequence<axis = 0>(f)",
    "an element of an insertion": "e = SequenceInsert(t, x) y = SequenceAt(e, seven)",
}
FIRST = ["SequenceEmpty()", "SequenceConstruct(w, x)"]
NUMBERS = {"true": True, "factor": np.float32(0.5), "minus": -1, "seven": 7}


def looping(
    after: str,
    first: str = FIRST[0],
    *,
    body: str = APPENDS,
    outputs: str = "y",
    names: str = "p",
    second: str = "",
    count: int = 100,
) -> onnx.ModelProto:
    """A Loop that appends to lists, as PyTorch exports it."""
    text = LOOP.format(
        outputs=outputs,
        first=first,
        body=body,
        after=after,
        appended=", ".join(names),
        states=", ".join(filter(None, ["seq(float) p0", second])),
        s="s, numbers" if second else "s",
        t="t, u" if second else "t",
    )
    return with_numbers(parsed(text), **NUMBERS, count=count)


def as_in_onnx(model: onnx.ModelProto, backend: str = "c", **more: Any) -> popgraph.Runner:
    """The compiled model, after comparing its results with onnx.reference."""
    x, w = np.random.default_rng(2).normal(size=(2, 2, 3)).astype(np.float32)
    run = popgraph.compile(model, backend=backend)
    for i in (5, -3):
        feed = {"x": x, "w": w, "i": np.array(i), **more}
        wanted = ReferenceEvaluator(model).run(None, feed)
        for one, other in zip(run(feed).values(), wanted, strict=True):
            assert isinstance(one, list) == isinstance(other, list)
            pairs = zip(one, other, strict=True) if isinstance(one, list) else [(one, other)]
            for mine, theirs in pairs:
                np.testing.assert_allclose(mine, theirs, 1e-5, 1e-5, strict=True)
    return run


@BACKENDS
@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize("after", AFTER)
def test_a_loop_appends_to_a_sequence(after: str, first: str, backend: str) -> None:
    run = as_in_onnx(looping(AFTER[after], first), backend)
    assert not run.computed_by.in_python and not run.structural


def test_elements_appended_in_a_loop_are_rows_of_one_tensor() -> None:
    """The number of operations does not grow with iterations, unless elements are read."""
    for after in AFTER.values():
        few, many = (
            sum(1 for _ in lowered(looping(after, FIRST[1], count=count))[0].walk())
            for count in (100, 1000)
        )
        assert few == many < 60
    run = as_in_onnx(looping(AFTER["concat"], count=1000))
    assert not run.computed_by.in_python


@BACKENDS
def test_a_loop_appends_to_two_sequences(backend: str) -> None:
    model = looping(
        "y = ConcatFromSequence<axis = 0>(t) z = SequenceAt(u, i)",
        body=f"{APPENDS} q = SequenceInsert(q0, k)",
        outputs="y, z, last",
        names="pq",
        second="seq(int64) q0",
    )
    assert not as_in_onnx(model, backend).computed_by.in_python


SEVERAL = {
    "two": "m = SequenceInsert(p0, row) p = SequenceInsert(m, h)",
    "in a loop": """l, p = Loop(seven, true, row, p0) <
        body = inner (int64 j, bool on, float[2, 3] a, seq(float) b0) => (ons, c, b) {
            ons = Identity(on)
            c = Mul(a, factor)
            b = SequenceInsert(b0, c)
        }
    >""",
    "in a loop and after it": """l, m = Loop(seven, true, row, p0) <
        body = inner (int64 j, bool on, float[2, 3] a, seq(float) b0) => (ons, c, b) {
            ons = Identity(on)
            c = Mul(a, factor)
            b = SequenceInsert(b0, c)
        }
    > p = SequenceInsert(m, l)""",
}


@BACKENDS
@pytest.mark.parametrize("name", SEVERAL)
def test_an_iteration_appends_several_elements(name: str, backend: str) -> None:
    model = looping(
        "y = ConcatFromSequence<axis = 1>(t) z = SequenceAt(t, i) n = SequenceLength(t)",
        FIRST[1],
        body=SEVERAL[name],
        outputs="y, z, n",
    )
    run = as_in_onnx(model, backend)
    assert not run.computed_by.in_python and not run.structural


def test_a_sequence_of_a_loop_is_an_output() -> None:
    assert not as_in_onnx(looping("", FIRST[1], outputs="t")).computed_by.in_python


def test_the_number_of_appended_elements_is_fed() -> None:
    text = "y = ConcatFromSequence<axis = 0>(t) z = SequenceLength(t)"
    model = looping(text, FIRST[1], outputs="y, z")
    kept = [one for one in model.graph.initializer if one.name != "count"]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    model.graph.input.append(helper.make_tensor_value_info("count", TensorProto.INT64, ()))
    for count in (0, 1, 70, 200):
        assert not as_in_onnx(model, count=np.array(count)).computed_by.in_python


UNLIKE = {
    "different shapes": "z = Sub(k, k) o = Cast<to = 7>(go) r = Range(z, k, o) "
    "f = Cast<to = 1>(r) p = SequenceInsert(p0, f)",
    "two shapes": "f = Flatten<axis = 0>(h) m = SequenceInsert(p0, row) p = SequenceInsert(m, f)",
    "at the front": "z = Sub(k, k) p = SequenceInsert(p0, row, z)",
    "length read": "n = SequenceLength(p0) f = Cast<to = 1>(n) r = Mul(row, f) "
    "p = SequenceInsert(p0, r)",
    "a condition": """z = Constant<value_int = 3>() few = Less(k, z)
        p = If (few) <
            then_branch = a () => (seq(float) pa) { pa = SequenceInsert(p0, row) },
            else_branch = b () => (seq(float) pb) { pb = Identity(p0) }
        >""",
}


@pytest.mark.parametrize("name", UNLIKE)
def test_loops_with_other_uses_of_sequences(name: str) -> None:
    """Few iterations are unrolled; the host runs many."""
    few, many = (
        looping("", FIRST[1], body=UNLIKE[name], outputs="t", count=count) for count in (6, 65)
    )
    assert not as_in_onnx(few).computed_by.in_python
    assert "Loop" in as_in_onnx(many).computed_by.in_python


# Gradients


GRADIENTS = {
    "appended by a loop": """g (float[4, 3] x, float[3] w) => (y) {
        s = SequenceConstruct(x)
        last, t = Loop(many, true, x, s) <
            body = turn (int64 k, bool go, h, p) => (goes, after, q) {
                goes = Identity(go)
                moved = Mul(h, w)
                after = Sin(moved)
                q = SequenceInsert(p, moved)
            }
        >
        y = ConcatFromSequence<axis = 1>(t)
    }""",
    "split": """g (float[4, 3] x, float[3] w) => (y) {
        s = SplitToSequence<axis = 0, keepdims = 0>(x)
        a = SequenceAt(s, two)
        m = Mul(a, w)
        t = SequenceInsert(s, m, two)
        y = ConcatFromSequence<axis = 1, new_axis = 1>(t)
    }""",
    "position of data": """g (float[4, 3] x, float[3] w) => (y) {
        s = SplitToSequence<axis = 0, keepdims = 0>(x)
        flat = ReduceSum(x)
        big = ArgMax<keepdims = 0, axis = 0>(flat)
        column = ReduceSum<keepdims = 0>(x, one)
        place = ArgMax<keepdims = 0, axis = 0>(column)
        a = SequenceAt(s, place)
        y = Mul(a, w)
    }""",
    "optional": """g (float[3] x, float[3] w) => (y) {
        o = Optional(x)
        a = OptionalGetElement(o)
        y = Mul(a, w)
    }""",
    "map": """g (float[3] x, float[3] w) => (y) {
        s = SequenceConstruct(x, w)
        t = SequenceMap(s, w) <body = b (float[3] p, float[3] q) => (float[3] r) {
            r = Mul(p, q)
        }>
        y = ConcatFromSequence<axis = 0>(t)
    }""",
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_of_sequences(name: str) -> None:
    """Compares gradients with central differences."""
    model = with_numbers(parsed(GRADIENTS[name]), two=2, one=[1], many=70, true=True)
    shapes = {info.name: [one.dim_value for one in info.type.tensor_type.shape.dim]
              for info in model.graph.input}  # fmt: skip
    generator = np.random.default_rng(3)
    arrays = {key: generator.normal(size=shape) for key, shape in shapes.items()}
    assert set(Sample(name, model, arrays).wide.slopes().values()) == {Slope.YES}


@pytest.mark.parametrize("backend", ["c", "reference"])
def test_a_tensor_may_have_the_name_of_an_element(backend: str) -> None:
    """The host holds the sequences, since two values would have the name `s[0]`."""
    text = """<ir_version: 9, opset_import: ["": 20]>
        g (seq(float[2]) s, float[2] t) => (seq(float[2]) r, float[A] y) {
            r = SequenceInsert(s, t)
            c = ConcatFromSequence <axis = 0> (s)
            y = Concat <axis = 0> (c, t)
        }"""
    model = parser.parse_model(text)
    model.graph.input[1].name = "s[0]"
    model.graph.output[1].name = "r[0]"
    for node in model.graph.node:
        node.input[:] = ["s[0]" if name == "t" else name for name in node.input]
        node.output[:] = ["r[0]" if name == "y" else name for name in node.output]
    first, other = np.array([1, 2], np.float32), np.array([3, 4], np.float32)
    found = popgraph.compile(model, backend=backend)({"s": [first], "s[0]": other})
    assert [one.tolist() for one in found["r"]] == [[1, 2], [3, 4]]
    assert found["r[0]"].tolist() == [1, 2, 3, 4]


# Random programs of sequences


@dataclass
class Writer:
    """The text of a model of sequence operators, and its inputs."""

    lengths: list[int] = field(default_factory=list)
    """The number of rows of each element of the sequence."""
    lines: list[str] = field(default_factory=list)
    numbers: dict[str, Any] = field(default_factory=dict)
    """The constant positions."""
    inputs: dict[str, Any] = field(default_factory=dict)
    outputs: list[str] = field(default_factory=list)
    sequence: str = ""

    def add(self, node: str) -> str:
        name = f"v{len(self.lines)}"
        self.lines.append(f"{name} = {node}")
        return name

    def position(self, at: int, most: int, is_known: bool) -> tuple[str, int]:
        """A position from the start or the end; `size + most` of them are legal."""
        name, size = f"p{len(self.lines)}", len(self.lengths)
        found = at % (size + most) - size
        (self.numbers if is_known else self.inputs)[name] = np.array(found)
        return name, found

    def tensor(self, rows: int) -> str:
        """A different tensor on each call."""
        name, factor = f"x{rows}", f"c{len(self.lines)}"
        self.numbers[factor] = np.array(1 + len(self.lines), np.float32)
        self.inputs.setdefault(name, np.arange(rows * 3, dtype=np.float32).reshape(rows, 3) + rows)
        return self.add(f"Mul({name}, {factor})")

    def begin(self, rows: list[int]) -> None:
        self.lengths = list(rows)
        tensors = ", ".join(self.tensor(one) for one in rows)
        self.sequence = self.add(
            f"SequenceConstruct({tensors})" if rows else "SequenceEmpty<dtype = 1>()"
        )

    def step(self, kind: str, at: int, is_known: bool, rows: int) -> None:
        """Adds a node, if the current sequence admits it."""
        s, size = self.sequence, len(self.lengths)
        match kind:
            case "append":
                self.lengths.append(rows)
                self.sequence = self.add(f"SequenceInsert({s}, {self.tensor(rows)})")
            case "insert" if size:
                # onnx.reference inserts at the front for the end, unless the position is absent.
                place, found = self.position(at, size, is_known)
                self.lengths.insert(found, rows)
                self.sequence = self.add(f"SequenceInsert({s}, {self.tensor(rows)}, {place})")
            case "erase" if size:
                place, found = self.position(at, size, is_known)
                del self.lengths[found]
                self.sequence = self.add(f"SequenceErase({s}, {place})")
            case "drop" if size:
                self.lengths.pop()
                self.sequence = self.add(f"SequenceErase({s})")
            case "at" if size:
                place, _ = self.position(at, size, is_known)
                self.outputs.append(self.add(f"SequenceAt({s}, {place})"))
            case "length":
                self.outputs.append(self.add(f"SequenceLength({s})"))
            case "concat" if size:
                self.outputs.append(self.add(f"ConcatFromSequence<axis = -2>({s})"))
            case "stack" if len(set(self.lengths)) == 1:
                self.outputs.append(self.add(f"ConcatFromSequence<axis = -1, new_axis = 1>({s})"))
            case "split" if size:
                whole = self.add(f"ConcatFromSequence<axis = 0>({s})")
                self.numbers[f"n{len(self.lines)}"] = np.array(rows)
                self.sequence = self.add(f"SplitToSequence<axis = 0>({whole}, n{len(self.lines)})")
                total = sum(self.lengths)
                self.lengths = [min(rows, total - start) for start in range(0, total, rows)]

    def model(self) -> onnx.ModelProto:
        """The model, whose last output is the sequence."""
        kinds = {np.dtype("f4"): "float", np.dtype("i8"): "int64"}
        given = [
            f"{kinds[value.dtype]}[{', '.join(map(str, value.shape))}] {name}".replace("[]", "")
            for name, value in self.inputs.items()
        ]
        inputs, outputs = ", ".join(given), ", ".join([*self.outputs, self.sequence])
        return with_numbers(
            parsed(f"g ({inputs}) => ({outputs}) {{ {chr(10).join(self.lines)} }}"), **self.numbers
        )


KINDS = ("append", "insert", "erase", "drop", "at", "length", "concat", "stack", "split")
Steps = list[tuple[str, int, bool, int]]
ROWS = st.sampled_from([2, 2, 1])
STEP = st.tuples(st.sampled_from(KINDS), st.integers(0, 20), st.booleans(), ROWS)
PROGRAMS = st.lists(STEP, min_size=1, max_size=6)
ALIKE = [(kind, at, False, 2) for at, kind in enumerate(("insert", "at", "erase", "stack"), 1)]


def agree(first: list[int], steps: Steps, backend: str) -> None:
    """Compares the results of a random program with onnx.reference."""
    writer = Writer()
    writer.begin(first)
    for step in steps:
        writer.step(*step)
    model = writer.model()
    run = popgraph.compile(model, backend=backend)
    found = run(writer.inputs)
    names = [*writer.outputs, writer.sequence]
    wanted = ReferenceEvaluator(model).run(names, writer.inputs)
    for name, one in zip(names, wanted, strict=True):
        assert isinstance(found[name], list) == isinstance(one, list)
        assert len(found[name]) == len(one) if isinstance(one, list) else True
        both = zip(found[name], one, strict=True) if isinstance(one, list) else [(found[name], one)]
        for mine, theirs in both:
            np.testing.assert_array_equal(mine, theirs, err_msg=name, strict=True)
    assert not run.computed_by.in_python


@example([2, 2, 2], ALIKE)
@given(st.lists(ROWS, max_size=3), PROGRAMS)
def test_fuzz_programs_of_sequences(first: list[int], steps: Steps) -> None:
    agree(first, steps, "reference")


@settings(max_examples=max(3, settings.default.max_examples // 10))
@example([2, 2, 2], ALIKE)
@given(st.lists(ROWS, max_size=3), PROGRAMS)
def test_fuzz_programs_of_sequences_in_c(first: list[int], steps: Steps) -> None:
    agree(first, steps, "c")


def test_fuzz_of_sequences_finds_a_planted_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plants a bug: negative run-time positions count from the start."""
    right = sequences.run_time_position

    def wrong(*arguments: Any, **more: Any) -> Any:
        where: Any = right(*arguments, **more).owner
        return where.operands[2]

    monkeypatch.setattr(sequences, "run_time_position", wrong)
    agree([2, 2, 2], [("at", 4, False, 2)], "reference")
    with pytest.raises(AssertionError):
        agree([2, 2, 2], [("erase", 1, False, 2)], "reference")
