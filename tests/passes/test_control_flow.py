"""Tests the lowering of If, Loop, Scan and Call, against onnxruntime and by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper, parser
from xdsl.ir import Operation

import popgraph
from popgraph.backends.reference import evaluate
from popgraph.builder.onnx.read import import_model
from popgraph.builder.onnx.write import export_model
from popgraph.conformance.cases import node_cases
from popgraph.dialects import graphcore as gc
from popgraph.dialects.onnx import model_of
from popgraph.dialects.onnx.types import describe
from popgraph.dialects.program import ConstantOp, VariableOp
from popgraph.passes.base import Compilation
from popgraph.passes.graphcore.check_indices import CheckIndices
from popgraph.passes.onnx.infer_shapes import infer_shapes
from popgraph.passes.onnx.to_graphcore import SEED, OnnxToGraphcore
from popgraph.passes.optimizer_spec import SGD, Scalar
from popgraph.passes.options import Options, Training
from popgraph.popart.sessions.export import weights_of
from popgraph.support.arrays import Array
from popgraph.support.errors import IndicesError, TypeMismatchError, UnsupportedError
from popgraph.support.tuning import Tuning
from popgraph.training.trained_weights import put_weights, trained_weights
from tests.checking import check_ir
from tests.passes.test_onnx_to_graphcore import (
    compare,
    graph_of,
    holds_containers,
    lowered,
    run_case,
)

F32 = np.float32
X = np.array([1, 2, 3], F32)


def parsed(text: str, opset: int = 17) -> onnx.ModelProto:
    """A model from ONNX's text form; an output called `nobody` becomes absent."""
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]>\n{text}')
    for node in model.graph.node:
        node.output[:] = ["" if name == "nobody" else name for name in node.output]
    return model


def run(text: str, opset: int = 17, **inputs: Array) -> dict[str, Array]:
    """The outputs in the reference, after a check that later passes keep them."""
    model = parsed(text, opset)
    module, compilation = lowered(model)
    check_ir(module)
    first, _ = evaluate(module, inputs, compilation.weights)
    found = popgraph.compile(model, backend="reference")(**inputs)
    for name, array in found.items():
        np.testing.assert_allclose(array, first[name], rtol=1e-6, err_msg=name)
    return dict(found)


def agree(text: str, opset: int = 17, **inputs: Array) -> dict[str, Array]:
    """The same outputs, after a comparison with onnxruntime."""
    found = run(text, opset, **inputs)
    data = parsed(text, opset).SerializeToString()
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    for name, wanted in zip(names, session.run(names, inputs), strict=True):
        assert found[name].dtype == wanted.dtype and found[name].shape == wanted.shape, name
        np.testing.assert_allclose(found[name], wanted, rtol=1e-6, err_msg=name)
    return found


def controls(text: str, opset: int = 17) -> list[Operation]:
    """The branches and loops of a lowered model, outermost first."""
    module, _ = lowered(parsed(text, opset))
    return [op for op in graph_of(module).walk() if isinstance(op, gc.CondOp | gc.LoopOp)]


def refused(text: str, error: type[Exception] = UnsupportedError, opset: int = 17) -> str:
    with pytest.raises(error) as caught:
        lowered(parsed(text, opset))
    assert "node '" in str(caught.value)
    return str(caught.value)


# If


BRANCHES = """g ({condition} c, float[3] x) => (float[3] y, float[3] z) {{
  two = Constant<value_float = 2.0>()
  shifted = Add(x, two)
  y, z = If (c) <
    then_branch = t () => (float[3] a, float[3] b) {{ a = Mul(shifted, two)  b = Identity(x) }},
    else_branch = e () => (float[3] a, float[3] b) {{ a = Neg(x)  b = Sub(shifted, two) }}
  >
}}"""


@pytest.mark.parametrize(("condition", "shape"), [("bool", ()), ("bool[1]", (1,))])
def test_if_with_a_condition_from_data(condition: str, shape: tuple[int, ...]) -> None:
    text = BRANCHES.format(condition=condition)
    for choice in (True, False):
        found = agree(text, c=np.full(shape, choice), x=X)
        np.testing.assert_allclose(found["y"], 2 * (X + 2) if choice else -X)
    (cond,) = controls(text)
    assert isinstance(cond, gc.CondOp)
    assert all(not isinstance(value.owner, ConstantOp) for value in cond.operands)
    assert all(any(isinstance(op, ConstantOp) for op in block.ops) for block in cond.bodies())


def test_nested_if_captures_outer_values() -> None:
    text = """g (bool c, bool d, float[3] x) => (float[3] y) {
      one = Constant<value_float = 1.0>()
      two = Add(one, one)
      w = Add(x, one)
      y = If (c) <
        then_branch = t () => (float[3] a) {
          m = Mul(x, two)
          a = If (d) <
            then_branch = tt () => (float[3] p) { p = Add(w, m) },
            else_branch = te () => (float[3] p) { p = Sub(x, two) }
          >
        },
        else_branch = e () => (float[3] a) { a = Identity(w) }
      >
    }"""
    for c in (True, False):
        for d in (True, False):
            agree(text, c=np.array(c), d=np.array(d), x=X)
    assert len(controls(text)) == 2


def test_absent_outputs_of_if_are_dropped() -> None:
    text = BRANCHES.format(condition="bool").replace("y, z = If", ", z = If")
    text = text.replace("(float[3] y, float[3] z)", "(float[3] z)")
    found = run(text, c=np.array(False), x=X)
    np.testing.assert_array_equal(found["z"], X)
    (cond,) = controls(text)
    assert len(cond.results) == 1


def test_if_with_unequal_result_types_is_refused() -> None:
    text = """g (bool c, float[3] x) => (float[N] y) {
      y = If (c) <
        then_branch = t () => (float[3] a) { a = Neg(x) },
        else_branch = e () => (float[6] a) { a = Concat<axis = 0>(x, x) }
      >
    }"""
    found = refused(text)
    assert "output 'y' of If is f32[3] in one branch and f32[6] in the other" in found


def test_a_branch_never_taken_is_not_checked() -> None:
    text = """g (float[3] x) => (float[N] y) {
      c = Constant<value = bool {1}>()
      y = If (c) <
        then_branch = t () => (float[N] a) { a = Neg(x) },
        else_branch = e () => (float[N] a) { w = Transpose<perm = [1, 0]>(x) a = MatMul(w, x) }
      >
    }"""
    np.testing.assert_array_equal(run(text, x=X)["y"], -X)


# Loop


SUM = """g ({inputs}float[3] x) => (float[3] y{results}) {{
  {before}
  one = Constant<value_float = 1.0>()
  y{outputs} = Loop ({count}, {condition}, x) <body =
    b (int64 i, bool go, float[3] s) => (bool more, float[3] t{rows}) {{
      more = {more}
      k = Cast<to = 1>(i)
      m = Add(k, one)
      t = Add(s, m)
      {row}
    }}>
}}"""


def summing(
    count: str = "",
    condition: str = "",
    more: str = "Identity(go)",
    rows: str = "",
    before: str = "",
    inputs: str = "",
    kept: bool = True,
) -> str:
    """Loops that add the numbers from 1 on; `rows` is the type of the stacked output."""
    return SUM.format(
        inputs=inputs,
        before=before,
        count=count,
        condition=condition,
        more=more,
        results=f", {rows} r" if rows and kept else "",
        outputs=", r" if rows and kept else "",
        rows=", float[3] u" if rows else "",
        row="u = Mul(t, t)" if rows else "",
    )


FOUR = "n4 = Constant<value_int = 4>() yes = Constant<value = bool {1}>()"


@pytest.mark.parametrize("condition", ["", "yes"])
@pytest.mark.parametrize("rows", ["", "float[4, 3]"])
def test_loop_with_a_constant_trip_count(condition: str, rows: str) -> None:
    text = summing("n4", condition, before=FOUR, rows=rows)
    found = agree(text, x=X)
    np.testing.assert_allclose(found["y"], X + 10)
    (loop,) = controls(text)
    assert isinstance(loop, gc.LoopOp) and (loop.turns, loop.ends_early) == (4, False)


@pytest.mark.parametrize("more", ["Cast<to = 9>(go)", "Not(o)", "Or(go, go)"])
def test_loop_with_a_condition_that_stays_true(more: str) -> None:
    text = summing("n4", "yes", more, before=FOUR).replace("more = ", "o = Not(go) more = ")
    agree(text, x=X)
    (loop,) = controls(text)
    assert isinstance(loop, gc.LoopOp) and not loop.ends_early


@pytest.mark.parametrize("count", [0, 1, 5, -3])
@pytest.mark.parametrize("shape", ["", "[1]"])
def test_loop_with_a_trip_count_from_data(count: int, shape: str) -> None:
    text = summing("n", inputs=f"int64{shape} n, ")
    found = agree(text, n=np.full([1] if shape else [], count), x=X)
    np.testing.assert_allclose(found["y"], X + sum(range(1, count + 1)))
    (loop,) = controls(text)
    assert isinstance(loop, gc.LoopOp) and loop.limit is not None and loop.go is None


GROWS = "ReduceMax<keepdims = 0>(s) top = Constant<value_float = 9.0>() more = Less(largest, top)"


def until(count: str, condition: str, before: str = FOUR, inputs: str = "") -> str:
    """A loop that runs while the largest number is below 9."""
    text = summing(count, condition, before=before, inputs=inputs)
    return text.replace("more = Identity(go)", f"largest = {GROWS}")


def test_loop_with_a_condition_from_data() -> None:
    agree(until("", "yes"), x=X)
    agree(until("n4", "yes"), x=X)
    agree(until("n4", "yes"), x=X + 4)
    for first in (True, False):
        agree(until("", "first", inputs="bool first, "), x=X, first=np.array(first))
        for count in (0, 2, 9):
            inputs = {"first": np.array(first), "n": np.array(count)}
            agree(until("n", "first", inputs="bool first, int64 n, "), x=X, **inputs)
    biggest = "n4 = Constant<value_int = 9223372036854775807>() yes = Constant<value = bool {1}>()"
    agree(until("n4", "yes", before=biggest), x=X)


def test_loop_with_only_the_first_condition_from_data() -> None:
    for first in (True, False):
        text = summing("n4", "first", before=FOUR, inputs="bool first, ")
        found = agree(text, x=X, first=np.array(first))
        np.testing.assert_allclose(found["y"], X + 10 if first else X)


def test_loop_without_a_condition_ignores_that_of_its_body() -> None:
    """ONNX ignores the body's condition then, although onnxruntime ends such a loop."""
    text = summing("n4", "", "Constant<value = bool {0}>()", before=FOUR, rows="float[4, 3]")
    found = run(text, x=X)
    np.testing.assert_allclose(found["y"], X + 10)
    used = "Not(go)"
    assert "reads a condition" in refused(summing("n4", "", used, before=FOUR))


def test_loop_without_iterations() -> None:
    nothing = "n0 = Constant<value_int = 0>() yes = Constant<value = bool {1}>()"
    found = agree(summing("n0", "yes", before=nothing, rows="float[0, 3]"), x=X)
    assert found["r"].shape == (0, 3)
    np.testing.assert_array_equal(found["y"], X)
    never = "n4 = Constant<value_int = 4>() no = Constant<value = bool {0}>()"
    agree(summing("n4", "no", before=never, rows="float[0, 3]"), x=X)
    assert not controls(summing("n4", "no", before=never))


def test_loop_whose_condition_is_false_at_once_runs_once() -> None:
    text = summing("n4", "yes", "Constant<value = bool {0}>()", rows="float[1, 3]", before=FOUR)
    agree(text, x=X)
    (loop,) = controls(text)
    assert isinstance(loop, gc.LoopOp) and (loop.turns, loop.ends_early) == (1, False)


def test_absent_rows_of_a_loop_need_no_trip_count() -> None:
    text = summing("n", "", inputs="int64 n, ", rows="float[N, 3]", kept=False)
    found = run(text.replace("y = Loop", "y, nobody = Loop"), n=np.array(3), x=X)
    np.testing.assert_allclose(found["y"], X + 6)


def test_rows_of_a_loop_need_a_constant_trip_count() -> None:
    text = summing("n", "", inputs="int64 n, ", rows="float[N, 3]")
    assert "the trip count of Loop must be constant" in refused(text)
    text = summing("n4", "c", inputs="bool c, ", rows="float[N, 3]", before=FOUR)
    assert "the condition of Loop must be constant" in refused(text)
    text = until("n4", "yes").replace("=> (float[3] y)", "=> (float[3] y, float[N, 3] r)")
    text = text.replace("y = Loop", "y, r = Loop").replace("float[3] t)", "float[3] t, float[3] u)")
    text = text.replace("t = Add(s, m)", "t = Add(s, m) u = Neg(t)")
    found = refused(text)
    assert "output 'r' of Loop has a row for each iteration, but the trip count" in found


def test_endless_loops_are_refused() -> None:
    assert "never ends" in refused(summing("", "yes", before=FOUR))
    assert "never ends" in refused(summing("", "", "Constant<value = bool {1}>()"))


def test_trip_counts_of_loops_with_a_counter_are_found() -> None:
    """Exporters write `while i < 3` like this; the trip count is found at compile time."""
    text = """g (float[3] x) => (int64 j, float[3] y, float[N, 3] r) {
      zero = Constant<value_int = 0>()
      three = Constant<value_int = 3>()
      one = Constant<value_int = 1>()
      yes = Constant<value = bool {1}>()
      j, y, r = Loop (, yes, zero, x) <body =
        b (int64 i, bool go, int64 k, float[3] s) => (bool more, int64 l, float[3] t, float[3] u) {
          l = Add(k, one)  more = Less(l, three)  t = Add(s, s)  u = Neg(s)
        }>
    }"""
    found = agree(text, x=X)
    assert found["r"].shape == (3, 3) and not controls(text)


GROWTH = """g ({inputs}float[2] x) => (float[N] y, float[M] r) {{
  yes = Constant<value = bool {{1}}>()
  {before}
  y, r = Loop (n, yes, x) <body =
    b (int64 i, bool go, float[K] s) => (bool more, float[L] t, float u) {{
      more = Identity(go)  t = Concat<axis = 0>(s, x)  u = ReduceSum<keepdims = 0>(t)
    }}>
}}"""


def test_loops_that_change_shapes_are_unrolled() -> None:
    text = GROWTH.format(inputs="", before="n = Constant<value_int = 3>()")
    found = agree(text, x=X[:2])
    assert found["y"].shape == (8,) and found["r"].shape == (3,) and not controls(text)
    many = text.replace("value_int = 3", "value_int = 65")
    assert "the state 's' of Loop changes from f32[2] to f32[4] in an iteration" in refused(many)
    with pytest.raises(UnsupportedError, match="a constant of at most 2"):
        lowered(parsed(text), OnnxToGraphcore(tuning=Tuning(most_unrolled_turns=2)))
    unknown = GROWTH.format(inputs="int64 n, ", before="").replace(
        "y, r = Loop", "y, nobody = Loop"
    )
    assert "the state 's' of Loop changes" in refused(unknown.replace(", float[M] r)", ")"))


def test_unrolled_nested_loops_share_one_limit() -> None:
    text = """g (float[1] x) => (float[N] y) {
      n = Constant<value_int = 9>()
      y = Loop (n, , x) <body =
        b (int64 i, bool go, float[K] s) => (bool more, float[L] t) {
          more = Constant<value = bool {1}>()
          t = Loop (n, , s) <body =
            c (int64 j, bool on, float[P] p) => (bool still, float[Q] q) {
              still = Constant<value = bool {1}>()  q = Concat<axis = 0>(p, x)
            }>
        }>
    }"""
    assert "of at most 64" in refused(text)
    few = text.replace("value_int = 9", "value_int = 3")
    assert run(few, x=X[:1])["y"].shape == (10,)


def test_sizes_that_depend_on_the_loop_index() -> None:
    text = """g (float[6] x) => (float[N] y) {
      n = Constant<value_int = 3>()
      yes = Constant<value = bool {1}>()
      zero = Constant<value_ints = [0]>()
      one = Constant<value_int = 1>()
      first = Constant<value = float[1] {0}>()
      y = Loop (n, yes, first) <body =
        b (int64 i, bool go, float[1] s) => (bool more, float[1] t) {
          more = Identity(go)
          end = Add(i, one)  last = Unsqueeze(end, zero)
          part = Slice(x, zero, last)
          sum = ReduceSum<keepdims = 1>(part)
          t = Add(s, sum)
        }>
    }"""
    found = agree(text, x=np.arange(1, 7, dtype=F32))
    assert found["y"].tolist() == [1 + 3 + 6] and not controls(text)


def test_nested_loops_capture_outer_values() -> None:
    text = """g (float[3] x, bool c) => (float[3] y, float[2, 3] r) {
      n = Constant<value_int = 2>()
      m = Constant<value_int = 3>()
      two = Constant<value_float = 2.0>()
      w = Mul(x, two)
      y, r = Loop (n, , x) <body =
        b (int64 i, bool go, float[3] s) => (bool more, float[3] t, float[3] u) {
          more = Constant<value = bool {1}>()
          k = Cast<to = 1>(i)
          t = Loop (m, , s) <body =
            b2 (int64 j, bool on, float[3] p) => (bool still, float[3] q) {
              still = Constant<value = bool {1}>()
              a = Add(p, w)  o = Mul(a, two)  v = Add(o, k)
              q = If (c) <
                then_branch = t () => (float[3] d) { d = Sub(v, s) },
                else_branch = e () => (float[3] d) { d = Add(x, v) }
              >
            }>
          u = Sub(t, w)
        }>
    }"""
    for c in (True, False):
        agree(text, x=X, c=np.array(c))
    outer, inner, _ = controls(text)
    assert isinstance(outer, gc.LoopOp) and isinstance(inner, gc.LoopOp)


def test_loop_states_that_never_change_are_constants() -> None:
    text = """g (float[2, 3] x) => (float[3, 2] y, int64[2] kept, float[2] f) {
      n = Constant<value_int = 3>()
      yes = Constant<value = bool {1}>()
      shape = Constant<value_ints = [3, 2]>()
      first = Constant<value = float[2] {0, 0}>()
      zero = Constant<value = float[3, 2] {0, 0, 0, 0, 0, 0}>()
      y, kept, f = Loop (n, yes, zero, shape, first) <body =
        b (int64 i, bool go, float[3, 2] s, int64[2] to, float[2] h)
          => (bool more, float[3, 2] t, int64[2] same, float[2] l) {
          more = Identity(go)  v = Reshape(x, to)  t = Add(s, v)
          also = Identity(to)  same = Identity(also)  l = Identity(h)
        }>
    }"""
    agree(text, x=np.arange(6, dtype=F32).reshape(2, 3))
    (loop,) = controls(text)
    assert isinstance(loop, gc.LoopOp) and len(loop.carried) == 1


def test_loop_states_that_change_their_type_are_refused() -> None:
    text = summing("n4", "yes", before=FOUR).replace("t = Add(s, m)", "t = Cast<to = 11>(s)")
    text = text.replace("(bool more, float[3] t", "(bool more, double[3] t")
    with pytest.raises(TypeMismatchError):
        lowered(parsed(text))


@pytest.mark.parametrize("backend", ["reference", "c"])
@pytest.mark.parametrize(("element", "dtype"), [("complex64", "c8"), ("complex128", "c16")])
def test_scan_of_complex_rows(element: str, dtype: str, backend: str) -> None:
    """The stride of complex rows is two floats per element."""
    text = """g (T[2] s, T[3, 2] x) => (T[2] t, T[3, 2] y) {
        t, y = Scan <num_scan_inputs = 1, body = b (T[2] s, T[2] x) => (T[2] t, T[2] y) {
            t = Identity (x)  y = Identity (s)
        }> (s, x)
    }"""
    model = parsed(text.replace("T[", f"{element}["))
    x = (np.arange(6).reshape(3, 2) * (1 + 0.5j)).astype(dtype)
    s = np.array([7j, 8], dtype)
    found = popgraph.compile(model, backend=backend)(s=s, x=x)
    np.testing.assert_array_equal(found["t"], x[2])
    np.testing.assert_array_equal(found["y"], [s, x[0], x[1]])


# Values and weights inside of bodies


def test_tensors_inside_of_bodies_are_not_outputs() -> None:
    model = parsed(summing("n4", "yes", before=FOUR))
    with pytest.raises(UnsupportedError, match="'m' is computed inside a node's graph"):
        lowered(model, OnnxToGraphcore(extra_outputs=("m",)))


def test_operations_inside_of_bodies_have_locations() -> None:
    model = parsed(summing("n4", "yes", before=FOUR))
    body = model.graph.node[-1].attribute[0].g
    body.node[-1].name = "inner"
    module, _ = lowered(model)
    (loop,) = [op for op in graph_of(module).block.ops if isinstance(op, gc.LoopOp)]
    assert all("unknown" not in str(op.location) for op in loop.walk())
    assert any("inner" in str(op.location) for op in loop.walk())


WEIGHT = """g (float[3] x) => (float[3] y) {
  n = Constant<value_int = 2>()
  y = Loop (n, , x) <body =
    b (int64 i, bool go, float[3] s) => (bool more, float[3] t)
      <float[3] w = {1, 2, 3}, bool more = {1}> { t = Mul(s, w) }>
}"""


def test_weights_inside_of_bodies_are_variables() -> None:
    agree(WEIGHT, x=X)
    made = OnnxToGraphcore(weights="variable", extra_outputs=("w",))
    module, compilation = lowered(parsed(WEIGHT), made)
    check_ir(module)
    assert [op.variable.text for op in graph_of(module).variables()] == ["w"]
    changed = {"w": np.array([2, 2, 2], F32)}
    outputs, _ = evaluate(module, {"x": X}, compilation.weights, changed)
    np.testing.assert_array_equal(outputs["y"], 4 * X)
    np.testing.assert_array_equal(outputs["w"], changed["w"])
    (loop,) = [op for op in graph_of(module).block.ops if isinstance(op, gc.LoopOp)]
    assert any(isinstance(value.owner, VariableOp) for value in loop.captured)


def test_weights_inside_of_bodies_are_saved_there() -> None:
    compilation = Compilation()
    module = import_model(parsed(WEIGHT), compilation.weights)
    trained = np.array([2, 2, 2], F32)
    put_weights(module, {"w": trained}, compilation.weights)
    outer = [op.value_name.text for op in model_of(module).graph.initializers]
    model = export_model(module, compilation.weights)
    assert not outer
    np.testing.assert_array_equal(popgraph.compile(model, backend="reference")(x=X)["y"], 4 * X)


def two_weights_of_one_name() -> str:
    branch = "{name} () => (float[3] a) <float[3] w = {values}> {{ a = Mul(x, w) }}"
    branches = [
        f"{key} = {branch.format(name=key, values=values)}"
        for key, values in (("then_branch", "{1, 2, 3}"), ("else_branch", "{3, 2, 1}"))
    ]
    return f"""g (bool c, float[3] x) => (float[3] y, float loss) {{
      y = If (c) <{", ".join(branches)}>
      loss = ReduceSum<keepdims = 0>(y)
    }}"""


@pytest.mark.parametrize("backend", ["reference", "c"])
def test_weights_of_equal_names_are_two_variables(backend: str) -> None:
    text = two_weights_of_one_name()
    for c in (True, False):
        agree(text, c=np.array(c), x=X)
    model = parsed(text)
    training = Training("loss", SGD(Scalar(0.5)))
    run = popgraph.compile(model, backend=backend, options=Options(training=training))
    run(c=np.array(True), x=X)
    compilation = Compilation()
    module = import_model(model, compilation.weights)
    assert run.static is not None
    trained = trained_weights(module, run.static)
    expected = {"y/then_branch/w": np.array([1, 2, 3], F32) - X / 2, "y/else_branch/w": [3, 2, 1]}
    assert sorted(trained) == sorted(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(trained[name], value)
    put_weights(module, trained, compilation.weights)
    saved = export_model(module, compilation.weights)
    for attribute in saved.graph.node[0].attribute:
        (held,) = attribute.g.initializer
        assert held.name == "w"
        np.testing.assert_allclose(numpy_helper.to_array(held), expected[f"y/{attribute.name}/w"])


def test_weights_of_equal_names_are_refused_by_the_pass_alone() -> None:
    with pytest.raises(UnsupportedError, match="two graphs have a weight named 'w'"):
        lowered(parsed(two_weights_of_one_name()), OnnxToGraphcore(weights="variable"))


def test_weights_keep_their_names_when_others_are_removed() -> None:
    """A branch that is never taken is removed before weights become variables."""
    text = two_weights_of_one_name().replace("bool c, ", "").replace("(c)", "(no)")
    text = text.replace("y = If", "no = Constant<value = bool {0}>()\n y = If")
    run = popgraph.compile(parsed(text), backend="reference", options=Options(variables=True))
    assert run.static is not None and list(run.static.variables) == ["y/else_branch/w"]


def test_weights_of_equal_names_are_loaded_into_sessions() -> None:
    model = parsed(two_weights_of_one_name()).SerializeToString()
    named = weights_of(model)
    np.testing.assert_array_equal(named["y/then_branch/w"], [1, 2, 3])
    np.testing.assert_array_equal(named["y/else_branch/w"], [3, 2, 1])


STATISTICS = """g (float[4, 3] x, float[3] s) => (float[4, 3] y)
  <float[3] mean = {0, 0, 0}, float[3] var = {1, 1, 1}> {
  n = Constant<value_int = 2>()
  y = Loop (n, , x) <body =
    b (int64 i, bool go, float[4, 3] p) => (bool more, float[4, 3] q) {
      more = Constant<value = bool {1}>()
      q, m, v = BatchNormalization<training_mode = 1>(p, s, s, mean, var)
    }>
}"""


def statistics_after(text: str, x: Array, **inputs: Array) -> dict[str, Array]:
    """The weights after a training step, equal in the reference and in C."""
    made = OnnxToGraphcore(weights="variable", training=True)
    module, compilation = lowered(parsed(text), made)
    check_ir(module)
    given = {"x": x, "s": np.ones(3, F32), **inputs}
    _, state = evaluate(module, given, compilation.weights)
    more = parsed(text)
    more.graph.node.append(helper.make_node("ReduceSumSquare", ["y"], ["loss"], keepdims=0))
    more.graph.output.append(helper.make_empty_tensor_value_info("loss"))
    training = Options(training=Training("loss", SGD(Scalar(0.0))))
    for backend in ("reference", "c"):
        run = popgraph.compile(more, backend=backend, options=training)
        run(given)
        assert run.static is not None
        for name in ("mean", "var"):
            np.testing.assert_allclose(run.static.read(name), state[name], rtol=1e-4)
    return dict(state)


@pytest.mark.parametrize("turns", [1, 2, 70])
def test_running_statistics_are_updated_in_every_iteration(turns: int) -> None:
    """Iteration 1 updates them by x, later ones by the output of the one before."""
    x = np.random.default_rng(3).normal(2, 1, (4, 3)).astype(F32)
    text = STATISTICS.replace("value_int = 2", f"value_int = {turns}")
    state = statistics_after(text, x)
    left = 0.9 ** (turns - 1)
    np.testing.assert_allclose(state["mean"], left * 0.1 * x.mean(0) + (1 - left), rtol=1e-3)
    first = 0.9 + 0.1 * x.var(0)
    np.testing.assert_allclose(state["var"], left * first + (1 - left), rtol=1e-3)


def test_running_statistics_in_loops_that_end_early_and_branches() -> None:
    """Skipped iterations and branches that are not taken leave them unchanged."""
    x = np.random.default_rng(3).normal(2, 1, (4, 3)).astype(F32)
    text = """g (float[4, 3] x, float[3] s, int64 n, bool c) => (float[4, 3] y)
      <float[3] mean = {0, 0, 0}, float[3] var = {1, 1, 1}> {
      y = Loop (n, , x) <body =
        b (int64 i, bool go, float[4, 3] p) => (bool more, float[4, 3] q) {
          more = Constant<value = bool {1}>()
          q = If (c) <
            then_branch = t () => (float[4, 3] r) {
              r, m, v = BatchNormalization<training_mode = 1>(p, s, s, mean, var) },
            else_branch = e () => (float[4, 3] z) { z = Identity(p) }>
        }>
    }"""
    for turns, taken in ((2, True), (2, False), (0, True)):
        state = statistics_after(text, x, n=np.array(turns), c=np.array(taken))
        moved = 0.09 * x.mean(0) + 0.1 if turns and taken else 0
        np.testing.assert_allclose(state["mean"], moved, atol=1e-5)


@pytest.mark.parametrize("taken", [True, False])
@pytest.mark.parametrize("backend", ["reference", "c"])
def test_optimizers_do_not_update_running_statistics_of_branches(backend: str, taken: bool) -> None:
    """Neither the gradient through the other branch nor weight decay moves them."""
    text = """g (float[4, 3] x, bool c) => (float loss)
      <float[3] s = {1, 1, 1}, float[3] mean = {0.5, 0, 0}, float[3] var = {1, 1, 1}> {
      y = If (c) <
        then_branch = t () => (float[4, 3] p) { p = BatchNormalization(x, s, s, mean, var) },
        else_branch = e () => (float[4, 3] q) { q = Relu(x) }>
      loss = ReduceSumSquare<keepdims = 0>(y)
    }"""
    x = np.random.default_rng(3).normal(2, 1, (4, 3)).astype(F32)
    rule = SGD(Scalar(0.5), weight_decay=Scalar(0.25))
    options = Options(training=Training("loss", rule))
    run = popgraph.compile(parsed(text), backend=backend, options=options)
    run(x=x, c=np.array(taken))
    before = np.array([0.5, 0, 0], F32)
    after = 0.9 * before + 0.1 * x.mean(0) if taken else before
    assert run.static is not None
    np.testing.assert_allclose(run.static.read("mean"), after, rtol=1e-5)


NOISE = """g (float[64] x) => (float[64] first, float[2, 64] a, float[2, 3, 64] b) {
  first = RandomUniformLike(x)
  n = Constant<value_int = 2>()
  m = Constant<value_int = 3>()
  a, b = Loop (n, ,) <body =
    o (int64 i, bool go) => (bool more, float[64] p, float[3, 64] q) {
      more = Constant<value = bool {1}>()
      p = RandomUniformLike(x)
      q = Loop (m, ,) <body =
        l (int64 j, bool on) => (bool still, float[64] r) {
          still = Constant<value = bool {1}>()
          r = RandomUniformLike<SEED>(x)
        }>
    }>
}"""


@pytest.mark.parametrize("seed", ["", "<seed = 3.0>"])
def test_every_iteration_draws_new_random_numbers(seed: str) -> None:
    module, compilation = lowered(parsed(NOISE.replace("<SEED>", seed)))
    check_ir(module)
    drawn: list[Array] = []
    state = None
    for _ in range(3):
        outputs, state = evaluate(module, {"x": np.zeros(64, F32)}, compilation.weights, state)
        drawn += [outputs[name].reshape(-1) for name in ("first", "a", "b")]
    assert state is not None and state[SEED].tolist() == [0, 3]
    numbers = np.concatenate(drawn)
    assert np.unique(numbers).size > 0.999 * numbers.size
    rows = np.concatenate([array.reshape(-1, 64) for array in drawn])
    assert np.unique(rows, axis=0).shape == rows.shape
    again, _ = evaluate(module, {"x": np.zeros(64, F32)}, compilation.weights)
    np.testing.assert_array_equal(again["a"].reshape(-1), drawn[1])


def test_dropout_in_a_loop_has_a_mask_per_iteration() -> None:
    text = """g (float[8, 100] x) => (float[8, 100] y) {
      y = Scan<num_scan_inputs = 1, body =
        b (float[100] r) => (float[100] s) { s = Dropout(r) }>(x)
    }"""
    module, compilation = lowered(parsed(text, 11), OnnxToGraphcore(training=True))
    outputs, _ = evaluate(module, {"x": np.ones((8, 100), F32)}, compilation.weights)
    masks = outputs["y"] != 0
    assert np.unique(masks, axis=0).shape == masks.shape and 0.4 < masks.mean() < 0.6


# Scan


SCAN = """g (float[3] p, float[4, 3] x, float[3, 4] z)
  => (float[3] last, float[3, 2] turns, float[4, 3] r, float[3, 4] u, float[4] v) {{
  zero = Constant<value = float[3, 2] {{0, 0, 0, 0, 0, 0}}>()
  last, turns, r, u, v = Scan<num_scan_inputs = 2 {attributes}, body =
    b (float[3] s, float[3, 2] q, float[3] i, float[3] j)
      => (float[3] t, float[3, 2] k, float[3] o, float[3] h, float l) {{
        a = Add(s, i)  t = Mul(a, j)  c = Constant<value = float {{1}}>()  k = Add(q, c)
        o = Sub(t, j)  h = Neg(a)  l = ReduceSum<keepdims = 0>(t)
    }}>(p, zero, x, z)
}}"""


@pytest.mark.parametrize("inputs", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("outputs", [(0, 0, 0), (1, 0, 1), (1, 1, 1)])
@pytest.mark.parametrize("axes", [(1, 1), (-1, -1)])
def test_scan_in_all_directions(
    inputs: tuple[int, ...], outputs: tuple[int, ...], axes: tuple[int, int]
) -> None:
    attributes = (
        f", scan_input_axes = [0, {axes[0]}], scan_output_axes = [0, {axes[1]}, 0], "
        f"scan_input_directions = {list(inputs)}, scan_output_directions = {list(outputs)}"
    )
    generator = np.random.default_rng(5)
    arrays = {
        name: generator.uniform(0.5, 1.5, shape).astype(F32)
        for name, shape in (("p", (3,)), ("x", (4, 3)), ("z", (3, 4)))
    }
    text = SCAN.format(attributes=attributes)
    found = agree(text, **arrays)
    assert found["turns"].tolist() == [[4, 4]] * 3
    (loop,) = controls(text)
    assert isinstance(loop, gc.LoopOp) and (loop.reverse is not None) == all(inputs)


def test_scan_without_iterations() -> None:
    text = """g (float[3] p, float[0, 3] x) => (float[3] last, float[3, 0] r) {
      last, r = Scan<num_scan_inputs = 1, scan_output_axes = [1], body =
        b (float[3] s, float[3] i) => (float[3] t, float[3] o) { t = Add(s, i) o = Neg(t) }>(p, x)
    }"""
    found = run(text, p=X, x=np.zeros((0, 3), F32))
    assert found["r"].shape == (3, 0)
    np.testing.assert_array_equal(found["last"], X)


def test_scan_of_unequal_lengths_is_refused() -> None:
    text = """g (float[3] p, float[4, 3] x, float[5, 3] z) => (float[4, 3] r) {
      r = Scan<num_scan_inputs = 2, body =
        b (float[3] i, float[3] j) => (float[3] o) { o = Add(i, j) }>(x, z)
    }"""
    with pytest.raises(TypeMismatchError):
        lowered(parsed(text))


SCAN_8 = """g ({lengths}float[2, 3] p, float[2, 4, 3] x, float[2, 4, 3] z)
  => (float[2, 3] last, float[2, 4, 3] r) {{
  last, r = Scan<num_scan_inputs = 2, directions = {directions}, body =
    b (float[3] s, float[3] i, float[3] j) => (float[3] t, float[3] o) {{
      a = Mul(s, i)  t = Add(a, j)  o = Sub(t, s)
    }}>({given}, p, x, z)
}}"""


@pytest.mark.parametrize("directions", [[0, 0], [1, 0], [1, 1]])
@pytest.mark.parametrize("lengths", [None, [4, 4], [2, 3], [1, 4]])
def test_scan_8_of_batches(directions: list[int], lengths: list[int] | None) -> None:
    """Against a loop in Python: rows after the end are zero, and reverse scans begin at the end."""
    generator = np.random.default_rng(6)
    p = generator.normal(size=(2, 3)).astype(F32)
    x, z = generator.normal(size=(2, 2, 4, 3)).astype(F32)
    text = SCAN_8.format(
        lengths="" if lengths is None else "int64[2] n, ",
        given="" if lengths is None else "n",
        directions=directions,
    )
    extra = {} if lengths is None else {"n": np.array(lengths)}
    found = run(text, 8, p=p, x=x, z=z, **extra)
    rows, states = np.zeros((2, 4, 3), F32), p.copy()
    for entry, length in enumerate(lengths or [4, 4]):
        for turn in range(length):
            places = [length - 1 - turn if way else turn for way in directions]
            new = states[entry] * x[entry, places[0]] + z[entry, places[1]]
            rows[entry, turn], states[entry] = new - states[entry], new
    np.testing.assert_allclose(found["r"], rows, rtol=1e-5)
    np.testing.assert_allclose(found["last"], states, rtol=1e-5)


# Types


def types_of(text: str, opset: int = 17) -> dict[str, str]:
    """The inferred types of the outputs of the last node."""
    model = parsed(text, opset)
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    compilation = Compilation()
    module = import_model(model, compilation.weights)
    infer_shapes(module, compilation.weights)
    node = list(model_of(module).graph.nodes)[-1]
    values = zip(node.output_names, node.output_values(), strict=True)
    return {name: describe(value.type) for name, value in values if value is not None}


def test_inferred_types_of_loop() -> None:
    rows = "float[4, 3]"
    assert types_of(summing("n4", "yes", before=FOUR, rows=rows)) == {
        "y": "f32[3]",
        "r": "f32[4, 3]",
    }
    assert types_of(summing("n4", "", before=FOUR, rows=rows))["r"] == "f32[4, 3]"
    data = summing("n4", "c", before=FOUR, rows=rows, inputs="bool c, ")
    assert types_of(data)["r"] == "f32[?, 3]"
    assert types_of(until("n4", "yes"))["y"] == "f32[3]"
    growth = GROWTH.format(inputs="", before="n = Constant<value_int = 3>()")
    assert types_of(growth) == {"y": "f32[?]", "r": "f32[3]"}


def test_inferred_types_of_scan() -> None:
    attributes = ", scan_input_axes = [0, 1], scan_output_axes = [0, -1, 0]"
    text = SCAN.format(attributes=attributes)
    assert list(types_of(text).values()) == [
        "f32[3]",
        "f32[3, 2]",
        "f32[4, 3]",
        "f32[3, 4]",
        "f32[4]",
    ]
    batches = SCAN_8.format(lengths="", given="", directions=[0, 0])
    assert types_of(batches, 8) == {"last": "f32[2, 3]", "r": "f32[2, 4, 3]"}


def test_functions_inside_of_bodies_are_inlined() -> None:
    head = '<ir_version: 8, opset_import: ["": 17, "own": 1]>\n'
    text = (
        head
        + """g (float[3] x) => (float[3] y) {
      n = Constant<value_int = 3>()
      y = Loop (n, , x) <body =
        b (int64 i, bool go, float[3] s) => (bool more, float[3] t) {
          more = Constant<value = bool {1}>()  a = own.twice(s)  t = Celu(a)
        }>
    }
    <domain: "own", opset_import: ["": 17]>
    twice (p) => (q) { q = Add(p, p) }"""
    )
    model = parser.parse_model(text)
    found = popgraph.compile(model, backend="reference")(x=X)
    np.testing.assert_allclose(found["y"], 8 * X)


def test_branches_inside_of_functions_may_call_functions() -> None:
    """Types of nested calls are unknown at import, though the branch declares its own."""
    calls = """
        <ir_version: 9, opset_import: ["": 21, "d": 1]>
        g (float[3] x, bool c) => (float[3] y) { y = d.f(x, c) }
        <domain: "d", opset_import: ["": 21, "d": 1]>
        f (x, c) => (y) {
            y = If (c) <
                then_branch = t () => (float[3] a) { a = d.g(x) },
                else_branch = e () => (float[3] b) { b = Neg(x) }
            >
        }
        <domain: "d", opset_import: ["": 21]>
        g (x) => (y) { y = Exp(x) }
    """
    run = popgraph.compile(parser.parse_model(calls), backend="reference")
    np.testing.assert_allclose(run(x=X, c=np.array(True))["y"], np.exp(X), rtol=1e-6)
    np.testing.assert_array_equal(run(x=X, c=np.array(False))["y"], -X)


def test_functions_with_loops_are_inlined() -> None:
    text = """<ir_version: 8, opset_import: ["": 17, "own": 1]>
    g (float[3] x, bool c) => (float[3] y) {
      n = Constant<value_int = 2>()
      a = own.grown(x, n)
      y = If (c) <
        then_branch = t () => (float[3] p) { p = own.grown(a, n) },
        else_branch = e () => (float[3] p) { p = Neg(a) }
      >
    }
    <domain: "own", opset_import: ["": 17]>
    grown (s, n) => (t) {
      two = Constant<value_float = 2.0>()
      t = Loop (n, , s) <body =
        b (int64 i, bool go, q) => (more, r) {
          more = Constant<value = bool {1}>()  h = Mul(q, two)  r = Add(h, s)
        }>
    }"""
    run_ = popgraph.compile(parser.parse_model(text), backend="reference")
    np.testing.assert_allclose(run_(x=X, c=np.array(True))["y"], 49 * X)
    np.testing.assert_allclose(run_(x=X, c=np.array(False))["y"], -7 * X)


EXPANDED = ("test_range_", "test_linear_attention_")
"""Cases of operators that ONNX defines by a Loop or a Scan."""


def test_node_cases_of_if_loop_and_scan() -> None:
    """ONNX's cases of these operators, and cases that its functions expand to them."""
    found = set()
    for case in node_cases():
        operators = {node.op_type for node in case.model.graph.node}
        expanded = "_expanded" in case.name
        if not operators & {"If", "Loop", "Scan"} or (
            expanded and not case.name.startswith(EXPANDED)
        ):
            continue
        if holds_containers(case.model):  # Compilation opens these inputs and outputs.
            continue
        for inputs, outputs in case.data_sets:
            actual = run_case(case.model, inputs)
            assert not compare(case, actual, outputs), case.name
            found.add(case.name)
    assert {"test_if", "test_loop11", "test_scan_sum", "test_scan9_multi_state"} <= found
    assert sum(name.startswith(EXPANDED) for name in found) >= 18


# Checks of indices


GATHERS = """g (float[4] x, int64[3, 2] i{inputs}) => (float[2] y) {{
  n = Constant<value_int = 3>()
  zero = Constant<value = float[2] {{0, 0}}>()
  y = Loop ({count}, , zero) <body =
    b (int64 k, bool go, float[2] s) => (bool more, float[2] t) {{
      more = Constant<value = bool {{1}}>()
      row = Gather<axis = 0>(i, k)
      a = Gather<axis = 0>(x, row)  t = Add(s, a)
    }}>
}}"""


def test_indices_are_checked_in_every_iteration() -> None:
    runner = popgraph.compile(parsed(GATHERS.format(inputs="", count="n")), backend="reference")
    x, indices = np.arange(4, dtype=F32), np.array([[0, 1], [-4, 3], [2, -1]])
    np.testing.assert_array_equal(runner(x=x, i=indices)["y"], [2, 7])
    for turn in range(3):
        for wrong in (4, -5, 2**40):
            broken = indices.copy()
            broken[turn, turn % 2] = wrong
            with pytest.raises(IndicesError, match=f"{wrong} is out of range: -4 to 3"):
                runner(x=x, i=broken)


def test_indices_of_skipped_iterations_are_not_checked() -> None:
    text = GATHERS.format(inputs=", int64 m", count="m")
    runner = popgraph.compile(parsed(text), backend="reference")
    x, indices = np.arange(4, dtype=F32), np.array([[0, 1], [2, 3], [7, 0]])
    np.testing.assert_array_equal(runner(x=x, i=indices, m=np.array(2))["y"], [2, 4])
    np.testing.assert_array_equal(runner(x=x, i=indices, m=np.array(0))["y"], [0, 0])
    with pytest.raises(IndicesError, match="7 is out of range"):
        runner(x=x, i=indices, m=np.array(3))


LOOKS = """g (bool c, float[4] x, int64[2] i, int64[2, 3] j) => (float[2] y) {{
  y = If (c) <
    then_branch = t () => (float[2] a) {{ a = Gather(x, {first}) }},
    else_branch = e () => (float[2] a) {{
      n = Constant<value_int = 3>()
      zero = Constant<value = float[2] {{0, 0}}>()
      a = Loop (n, , zero) <body =
        b (int64 k, bool go, float[2] s) => (bool more, float[2] t) {{
          more = Constant<value = bool {{1}}>()
          row = Gather<axis = 1>(j, k)  p = Gather(x, row)  t = Add(s, p)
        }}>
    }}
  >
}}"""


def test_indices_are_checked_in_the_branch_that_is_taken() -> None:
    runner = popgraph.compile(parsed(LOOKS.format(first="i")), backend="reference")
    x, good, wrong = np.arange(4, dtype=F32), np.array([0, -4]), np.array([0, 4])
    row, broken = np.zeros((2, 3), np.int64), np.array([[0, 1, 2], [0, -9, 1]])
    runner(c=np.array(True), x=x, i=good, j=broken)
    runner(c=np.array(False), x=x, i=wrong, j=row)
    with pytest.raises(IndicesError, match="4 is out of range"):
        runner(c=np.array(True), x=x, i=wrong, j=row)
    with pytest.raises(IndicesError, match="-9 is out of range"):
        runner(c=np.array(False), x=x, i=good, j=broken)


def test_constant_indices_are_checked_only_in_the_branch_taken() -> None:
    text = LOOKS.format(first="far").replace(
        "y = If", "far = Constant<value_ints = [0, 9]>() y = If"
    )
    runner = popgraph.compile(parsed(text), backend="reference")
    x, i, j = np.arange(4, dtype=F32), np.zeros(2, np.int64), np.zeros((2, 3), np.int64)
    np.testing.assert_array_equal(runner(c=np.array(False), x=x, i=i, j=j)["y"], [0, 0])
    with pytest.raises(IndicesError, match="9 is out of range"):
        runner(c=np.array(True), x=x, i=i, j=j)


def test_indices_into_empty_tensors_inside_of_branches_are_refused() -> None:
    """An empty tensor leaves no index that could mark a branch as not taken."""
    module, compilation = lowered(parsed(LOOKS.format(first="i")))
    (cond,) = [op for op in graph_of(module).block.ops if isinstance(op, gc.CondOp)]
    block = cond.then_body.block
    (gather,) = [op for op in block.ops if isinstance(op, gc.GatherOp)]
    check = gc.CheckIndicesOp(gather.indices, low=[0], last=[-1])
    block.insert_op_before(check, gather)
    gather.operands[1] = check.result
    with pytest.raises(UnsupportedError, match="into an empty axis"):
        CheckIndices().run(compilation, module)


# PopART's builder


def built(make: Callable[[Any], str], **arrays: Array) -> Array:
    """The only output of a model from PopART's builder."""
    builder = popgraph.Builder(opsets={"ai.onnx": 11, "ai.onnx.ml": 1, "ai.graphcore": 1})
    builder.addOutputTensor(make(builder))
    found = popgraph.compile(builder, backend="reference")(**arrays)
    (array,) = found.values()
    return np.asarray(array)


def test_builder_call() -> None:
    def make(builder: Any) -> str:
        x = builder.addInputTensor("FLOAT", [3], "x")
        inner = builder.createSubgraphBuilder()
        a = inner.addInputTensor("FLOAT", [3])
        inner.addOutputTensor(inner.aiOnnx.add([a, a]))
        (once,) = builder.aiGraphcore.call([x], 1, inner)
        (twice,) = builder.aiGraphcore.call([once], 1, inner)
        return str(twice)

    np.testing.assert_array_equal(built(make, x=X), 4 * X)


@pytest.mark.parametrize("choice", [True, False])
def test_builder_if(choice: bool) -> None:
    def make(builder: Any) -> str:
        x = builder.addInputTensor("FLOAT", [3], "x")
        c = builder.addInputTensor("BOOL", [], "c")
        branches = []
        for method in ("exp", "neg"):
            branch = builder.createSubgraphBuilder()
            branch.addInputTensorFromParentGraph(x)
            branch.addOutputTensor(getattr(branch.aiOnnx, method)([x]))
            branches.append(branch)
        (y,) = builder.aiOnnx.logical_if([c], 1, *reversed(branches))
        return str(y)

    found = built(make, x=X, c=np.array(choice))
    np.testing.assert_allclose(found, np.exp(X) if choice else -X, rtol=1e-6)


def test_builder_loop() -> None:
    def make(builder: Any) -> str:
        x = builder.addInputTensor("FLOAT", [3], "x")
        count = builder.aiOnnx.constant(np.array(5), debugContext="count")
        go = builder.aiOnnx.constant(np.array(True), debugContext="go")
        body = builder.createSubgraphBuilder()
        body.addInputTensorFromParentGraph(x)
        body.addInputTensor("INT64", [])
        keep = body.addInputTensor("BOOL", [])
        state = body.addInputTensor("FLOAT", [3])
        new = body.aiOnnx.add([state, x])
        body.addOutputTensor(keep)
        body.addOutputTensor(new)
        (y,) = builder.aiOnnx.loop([count, go, x], 1, body)
        return str(y)

    np.testing.assert_allclose(built(make, x=X), 6 * X)


def test_builder_scan() -> None:
    def make(builder: Any) -> str:
        x = builder.addInputTensor("FLOAT", [4, 3], "x")
        first = builder.aiOnnx.constant(np.zeros(3, F32), debugContext="first")
        body = builder.createSubgraphBuilder()
        state = body.addInputTensor("FLOAT", [3])
        row = body.addInputTensor("FLOAT", [3])
        new = body.aiOnnx.add([state, row])
        body.addOutputTensor(new)
        body.addOutputTensor(body.aiOnnx.mul([new, new]))
        _, rows = builder.aiOnnx.scan([first, x], 2, body, 1)
        return str(rows)

    x = np.arange(12, dtype=F32).reshape(4, 3)
    joined = (x.cumsum(0) ** 2).ravel()  # In PopART, stacked results have no axis of their own.
    np.testing.assert_allclose(built(make, x=x), joined)


# Operands that depend on the loop index


TURNING = """g (float[8, 6] x) => (y) {
  n = Constant<value_int = TRIPS>()
  zero = Constant<value_ints = [0]>()
  one = Constant<value_ints = [1]>()
  two = Constant<value_ints = [2]>()
  nil = Constant<value_int = 0>()
  unit = Constant<value_int = 1>()
  three = Constant<value_int = 3>()
  y = Loop (n, ,) <body = b (int64 i, bool go) => (bool more, r) {
      more = Constant<value = bool {1}>()
      turn = Reshape(i, one)
      BODY
  }>
}"""
WINDOW = "next = Add(turn, two)\n r = Slice(x, turn, next, zero)"


def turning(body: str, trips: int) -> str:
    return TURNING.replace("BODY", body).replace("TRIPS", str(trips))


@pytest.mark.parametrize(
    ("body", "trips"),
    [
        ("r = Gather<axis = 0>(x, i)", 6),
        ("r = Trilu(x, i)", 70),
        ("f = Cast<to = 1>(i)\n r = Clip(x, f)", 70),
        (WINDOW, 7),
        ("s = Mul(turn, two)\n e = Add(s, two)\n r = Slice(x, s, e, zero)", 4),
        ("b = Sub(two, turn)\n e = Add(b, two)\n r = Slice(x, b, e, one)", 3),
        ("s = Concat<axis = 0>(turn, zero)\n w = Concat<axis = 0>(two, two)\n"
         "e = Add(s, w)\n r = Slice(x, s, e)", 5),
        ("f = Constant<value_ints = [4]>()\n e = Add(turn, f)\n"
         "r = Slice(x, turn, e, one, two)", 3),
        ("e = Add(i, three)\n r = Range(i, e, unit)", 70),
        ("e = Sub(i, three)\n m = Neg(unit)\n r = Range(i, e, m)", 70),
        ("w, p = TopK(x, two)\n f = Cast<to = 1>(i)\n r = Mul(w, f)", 70),
    ],
)  # fmt: skip
def test_operands_that_depend_on_the_loop_index(body: str, trips: int) -> None:
    """The loop is kept: no iteration is unrolled."""
    text = turning(body, trips)
    x = np.random.default_rng(0).normal(size=(8, 6)).astype(F32)
    agree(text, x=x)
    module, _ = lowered(parsed(text), OnnxToGraphcore(tuning=Tuning(most_unrolled_turns=0)))
    (loop,) = [op for op in graph_of(module).block.ops if isinstance(op, gc.LoopOp)]
    assert loop.trips.value.data == trips


@pytest.mark.parametrize(
    ("body", "trips"),
    [
        (WINDOW, 8),
        ("b = Sub(turn, one)\n e = Add(b, one)\n r = Slice(x, b, e)", 3),
        ("r0 = Slice(x, zero, turn)\n r = ReduceSum(r0)", 3),
        ("b = Mul(turn, turn)\n e = Add(b, one)\n r = Slice(x, b, e)", 2),
        ("e = Mul(i, three)\n r = Range(i, e, unit)", 3),
        ("r0 = Tile(turn, turn)\n r = ReduceSum(r0)", 3),
        ("d = Constant<value = float[2] {0, 1}>()\n r0 = OneHot(one, i, d)\n"
         "r = ReduceSum(r0)", 3),
        ("a = Mod(turn, two)\n c = Squeeze(a)\n r = CumSum(x, c)", 3),
    ],
)  # fmt: skip
def test_sizes_and_axes_that_depend_on_the_loop_index_are_refused(body: str, trips: int) -> None:
    never = OnnxToGraphcore(tuning=Tuning(most_unrolled_turns=0))
    with pytest.raises(UnsupportedError, match="must be constant"):
        lowered(parsed(turning(body, trips)), never)


def test_gradient_of_a_slice_that_moves_with_the_loop_index() -> None:
    """In a sum of windows, each element counts once per window that covers it."""
    text = turning(WINDOW, 7).replace("(float[8, 6] x) => (y)", "() => (y, loss)\n <float[1] x>")
    text = text.replace("<float[1] x>", "<float[8, 1] x = {0, 0, 0, 0, 0, 0, 0, 0}>")
    text = text[: text.rindex("}")] + "loss = ReduceSum<keepdims = 0>(y) }"
    training = Options(training=Training("loss", SGD(Scalar(1.0))))
    for backend in ("reference", "c"):
        run = popgraph.compile(parsed(text), backend=backend, options=training)
        run()
        assert run.static is not None
        counts = -run.static.read("x")[:, 0]
        np.testing.assert_array_equal(counts, [1, 2, 2, 2, 2, 2, 2, 1])
