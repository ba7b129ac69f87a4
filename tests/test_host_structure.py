"""Tests models with data-dependent structure: the host runs their branches and loops."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser
from typer.testing import CliRunner

import popgraph
from popgraph.cli import app
from popgraph.hosted import HostedModel
from popgraph.passes.optimizer_spec import SGD
from popgraph.passes.options import Options, Training
from popgraph.support.arrays import Array
from popgraph.support.errors import RunError, UnsupportedError

F32 = np.float32
X = np.array([1, 2, 3], F32)
BACKENDS = pytest.mark.parametrize("backend", ["c", "reference"])


def parsed(text: str, opset: int = 18) -> onnx.ModelProto:
    """A model in ONNX's text format."""
    header = f'<ir_version: 8, opset_import: ["": {opset}, "own": 1]>\n'
    return parser.parse_model(header + text)


class Judged:
    """A model that runs in PopGraph and onnxruntime, which must agree."""

    def __init__(self, text: str, backend: str, opset: int = 18) -> None:
        model = parsed(text, opset)
        self.session = onnxruntime.InferenceSession(
            model.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        self.run = popgraph.compile(model, backend=backend)

    def __call__(self, **inputs: Any) -> dict[str, Array]:
        names = [output.name for output in self.session.get_outputs()]
        found = self.run(inputs)
        for name, wanted in zip(names, self.session.run(names, inputs), strict=True):
            compare(name, found[name], wanted)
        return found


def compare(name: str, found: Any, wanted: Any) -> None:
    if isinstance(wanted, list):
        assert len(found) == len(wanted), name
        for one, other in zip(found, wanted, strict=True):
            compare(name, one, other)
        return
    assert found.dtype == wanted.dtype and found.shape == wanted.shape, (name, found, wanted)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6, err_msg=name)


# (a) data-dependent trip counts


WHILE_ROWS = """g (float[3] x, float limit) => (float[3] y, float[N, 3] r, float[N, 2] p, float s) {
  yes = Constant<value = bool {1}>()
  w = Constant<value = float[3, 2] {1, 2, 3, 4, 5, 6}>()
  y, r = Loop (, yes, x) <body =
    b (int64 i, bool go, float[3] s) => (bool more, float[3] t, float[3] u) {
      t = Add(s, x)
      u = Mul(t, t)
      m = ReduceSum<keepdims = 0>(t)
      more = Less(m, limit)
    }>
  p = MatMul(r, w)
  s = ReduceSum<keepdims = 0>(p)
}"""


@BACKENDS
def test_a_while_loop_stacks_rows(backend: str) -> None:
    run = Judged(WHILE_ROWS, backend)
    for limit, turns in ((0, 1), (20, 3), (50, 8)):
        found = run(x=X, limit=np.array(limit, F32))
        assert found["r"].shape == (turns, 3)


COUNTED_ROWS = """g (float[300] d, bool c, float[3] x) => (float[3] y, float[N, 3] r, float[3] s) {
  m = ReduceMax<keepdims = 0>(d)
  n = Cast<to = 7>(m)
  y, r = Loop (n, c, x) <body =
    b (int64 i, bool go, float[3] s) => (bool more, float[3] t, float[3] u) {
      f = Cast<to = 1>(i)
      t = Add(s, f)
      u = Neg(s)
      more = Identity(go)
    }>
  axis = Constant<value_ints = [0]>()
  s = ReduceSum<keepdims = 0>(r, axis)
}"""


@BACKENDS
def test_data_dependent_trip_counts(backend: str) -> None:
    run = Judged(COUNTED_ROWS, backend)
    for turns in (0, 1, 5):
        d = np.full(300, turns, F32)
        for go in (True, False):
            found = run(d=d, c=np.array(go), x=X)
            assert found["r"].shape == (turns * go, 3)


UNBOUNDED_SUM = """g (float[300] d) => (float[N] r, float q) {
  yes = Constant<value = bool {1}>()
  zero = Constant<value_float = 0.0>()
  top = ReduceMax<keepdims = 0>(d)
  q, r = Loop (, yes, zero) <body =
    b (int64 i, bool go, float s) => (bool more, float t, float u) {
      f = Cast<to = 1>(i)
      t = Add(s, f)
      more = Less(t, top)
      k, u = Loop (, more, t) <body =
        c (int64 j, bool goes, float v) => (bool again, float w, float l) {
          w = Sub(v, top)
          again = Greater(w, top)
          l = Identity(w)
        }>
      u = Add(k, t)
    }>
}"""


@BACKENDS
def test_a_loop_in_a_loop(backend: str) -> None:
    text = UNBOUNDED_SUM.replace("k, u = Loop", "k, many = Loop")
    text = text.replace("u = Add(k, t)", "e = ReduceSum<keepdims = 0>(many) u = Add(k, e)")
    run = Judged(text, backend)
    for top in (0.0, 4.0, 12.0):
        run(d=np.full(300, top, F32))


SCANS = """g (float[N, 2] x, float[300] d) => (float[2] y, float[N, M] r) {
  top = ReduceMax<keepdims = 0>(d)
  n = Cast<to = 7>(top)
  zero = Constant<value_int = 0>()
  one = Constant<value_int = 1>()
  first = Constant<value = float[2] {0, 0}>()
  y, r = Scan<num_scan_inputs = 1, body =
    b (float[2] s, float[2] row) => (float[2] t, float[M] u) {
      t = Add(s, row)
      many = Range(zero, n, one)
      f = Cast<to = 1>(many)
      m = ReduceMax<keepdims = 0>(t)
      u = Mul(f, m)
    }>(first, x)
}"""


@BACKENDS
def test_data_dependent_rows_of_a_scan(backend: str) -> None:
    run = Judged(SCANS, backend)
    for rows, n in ((3, 4), (1, 2), (3, 0), (2, 4)):
        found = run(x=np.arange(2 * rows, dtype=F32).reshape(rows, 2), d=np.full(300, n, F32))
        assert found["r"].shape == (rows, n)


OLD_SCAN = """g (float[2, 3, 4] x, int64[2] lens, float[300] d)
    => (float[2, 4] y, float[2, 3, 4] r) {
  zero = Constant<value = float[2, 4] {0, 0, 0, 0, 0, 0, 0, 0}>()
  top = ReduceMax<keepdims = 1, axes = [0]>(d)
  y, r = Scan<num_scan_inputs = 1, directions = [1], body =
    b (float[4] s, float[4] row) => (float[4] t, float[4] u) {
      size = Cast<to = 7>(top)
      u = Reshape(row, size)
      t = Add(s, u)
    }>(lens, zero, x)
}"""


@BACKENDS
def test_a_scan_of_a_batch(backend: str) -> None:
    run = Judged(OLD_SCAN, backend, opset=8)
    x = np.arange(24, dtype=F32).reshape(2, 3, 4)
    for lens in ((3, 3), (1, 2)):
        run(x=x, lens=np.array(lens), d=np.full(300, 4, F32))
    found = run.run(x=x, lens=np.array([0, 1]), d=np.full(300, 4, F32))
    np.testing.assert_array_equal(found["r"], [np.zeros((3, 4)), [x[1, 0], *np.zeros((2, 4))]])


# (b) branches with different shapes


BRANCHES = """g (float[2, 3] x, float limit) => (float y, float[N] z, float[2, 3] e) {{
  s = ReduceSum<keepdims = 0>(x)
  c = Less(s, limit)
  e = Exp(x)
  {first} = If (c) <
    then_branch = t () => ({then_type} a) {{ {then} }},
    else_branch = f () => ({else_type} a) {{ {otherwise} }}
  >
  y = ReduceSum<keepdims = 0>(v)
  flat = Constant<value_ints = [-1]>()
  z = Reshape(v, flat)
}}"""
SIZES = {
    "first": "v",
    "then_type": "float[2, 3]",
    "then": "a = Neg(x)",
    "else_type": "float[4, 3]",
    "otherwise": "a = Concat<axis = 0>(x, e)",
}
RANKS = SIZES | {"else_type": "float[3]", "otherwise": "a = ReduceMax<keepdims = 0>(x, axis)"}
NESTED = SIZES | {
    "otherwise": """
      d = Greater(s, zero)
      a = If (d) <
        then_branch = tt () => (float[1, 3] b) { b = Slice(x, from, to, from) },
        else_branch = ff () => (float[6, 3] b) { b = Concat<axis = 0>(x, x, e) }
      >""",
    "else_type": "float[K, 3]",
}
EITHER = SIZES | {
    "else_type": "float[K, 3]",
    "otherwise": "b = Concat<axis = 0>(x, x) g = Greater(b, zero) "
    "a0 = Compress<axis = 0>(b, picks) a = Exp(a0)",
}


@BACKENDS
@pytest.mark.parametrize("parts", [SIZES, RANKS, NESTED, EITHER])
def test_branches_with_different_shapes(parts: dict[str, str], backend: str) -> None:
    constants = """zero = Constant<value_float = 0.0>()
      axis = Constant<value_ints = [0]>()
      from = Constant<value_ints = [0]>()
      to = Constant<value_ints = [1]>()
      picks = Constant<value = bool[4] {1, 0, 1, 1}>()
      s = ReduceSum"""
    run = Judged(BRANCHES.format(**parts).replace("s = ReduceSum", constants, 1), backend)
    x = np.arange(6, dtype=F32).reshape(2, 3)
    for sign in (1, -1, 1):
        for limit in (100, -100):
            run(x=sign * x, limit=np.array(limit, F32))


# (c) states with changing shapes


GROWTH = """g (float[2] x, float limit) => (float[N] y, float s, int64 n) {
  yes = Constant<value = bool {1}>()
  zero = Constant<value_int = 0>()
  one = Constant<value_int = 1>()
  y, n = Loop (, yes, x, zero) <body =
    b (int64 i, bool go, float[K] s, int64 k) => (bool more, float[L] t, int64 l) {
      a = Mul(s, x0)
      t = Concat<axis = 0>(a, x)
      m = ReduceSum<keepdims = 0>(t)
      l = Add(k, one)
      more = Less(m, limit)
    }>
  s = ReduceMax<keepdims = 0>(y)
}"""


@BACKENDS
def test_a_growing_loop_state(backend: str) -> None:
    run = Judged(GROWTH.replace("Mul(s, x0)", "Neg(s)"), backend)
    for limit in (-10, 2, -3):
        run(x=X[:2], limit=np.array(limit, F32))
    text = GROWTH.replace("a = Mul(s, x0)", "two = Constant<value_float = 1.5>() a = Mul(s, two)")
    run = Judged(text, backend)
    for limit, turns in ((1, 1), (20, 3), (20, 3), (1000, 12)):
        found = run(x=X[:2], limit=np.array(limit, F32))
        assert found["n"] == turns, found["n"]
        assert found["y"].shape == (2 * turns + 2,)


COUNTED_GROWTH = """g (int64 n, float[2] x) => (float[N] y, float[M] r) {
  yes = Constant<value = bool {1}>()
  y, r = Loop (n, yes, x) <body =
    b (int64 i, bool go, float[K] s) => (bool more, float[L] t, float u) {
      more = Identity(go)  t = Concat<axis = 0>(s, x)  u = ReduceSum<keepdims = 0>(t)
    }>
}"""


@BACKENDS
def test_a_growing_loop_state_over_many_iterations(backend: str) -> None:
    run = Judged(COUNTED_GROWTH, backend)
    for turns in (0, 3, 70):
        assert run(n=np.array(turns), x=X[:2])["r"].shape == (turns,)


# (d) data-dependent structure


STRUCTURE = """g (float[300] d, float[2, 6] x) => (float[N] y, float s, float[2, 6] e) {{
  top = ReduceMax<keepdims = 0>(d)
  n = Cast<to = 7>(top)
  zero = Constant<value_int = 0>()
  one = Constant<value_int = 1>()
  flat = Constant<value_ints = [-1]>()
  first = Constant<value_ints = [0]>()
  second = Constant<value_ints = [1]>()
  ns = Reshape(n, flat)
  e = Exp(x)
  {nodes}
  y = Reshape(v, flat)
  q = Mul(y, y)
  s = ReduceSum<keepdims = 0>(q)
}}"""


@BACKENDS
@pytest.mark.parametrize(
    "nodes",
    [
        "sh = Concat<axis = 0>(ns, flat) w = Reshape(x, sh) v = ReduceMax<keepdims = 0>(w, first)",
        "r = Range(zero, n, one) v = Cast<to = 1>(r)",
        "v = Slice(x, first, ns, second)",
        "b = Sub(ns, second) v = Slice(x, b, ns, second)",
        "sh = Concat<axis = 0>(ns, second, second) v = Expand(x, sh)",
        "sh = Concat<axis = 0>(second, ns) v = Tile(x, sh)",
        "v, w = TopK(x, ns)",
        "sh = Concat<axis = 0>(first, ns, first, first) v = Pad(x, sh)",
        "z = ConstantOfShape(ns) v = Exp(z)",
        "i = Cast<to = 7>(x) off = Constant<value = float[2] {0, 1}>() v = OneHot(i, ns, off)",
        "b = Sub(ns, second) a = Abs(b) ax = Min(a, second) v = ReduceSum<keepdims = 0>(x, ax)",
        "rest = Sub(six, ns) sh = Concat<axis = 0>(ns, rest) v, w = Split<axis = 1>(x, sh)",
    ],
)
def test_data_dependent_structure(nodes: str, backend: str) -> None:
    six = "six = Constant<value_ints = [6]>()\n  "
    run = Judged(STRUCTURE.format(nodes=six + nodes), backend)
    rng = np.random.default_rng(0)
    x = rng.random((2, 6), F32)
    for n in (1, 3, 2, 4, 3) if "Reshape(x" not in nodes else (1, 3, 2, 4, 12):
        d = rng.random(300).astype(F32)
        d[7] = n
        run(d=d, x=x)


def test_a_node_becomes_a_host_step_after_many_values() -> None:
    text = STRUCTURE.format(nodes="v = Slice(x, first, ns, second)").replace("6]", "60]")
    run = Judged(text, "c")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in range(1, 14):
            run(d=np.full(300, n % 3, F32), x=np.ones((2, 60), F32))
        model = run.run.made
        assert isinstance(model, HostedModel)
        assert [type(step).__name__ for step in model.steps] == ["Segment", "Segment"]
        for n in range(1, 14):
            run(d=np.full(300, n, F32), x=np.ones((2, 60), F32))
    kinds = [type(step).__name__ for step in model.steps]
    assert kinds == ["Segment", "HostStep", "Segment"]


# Positions of such nodes


FUNCTIONS = """g (float[2, 3] x, float[300] d) => (float[N, 3] y, float[M] z) {
  a = own.Scaled(x)
  y = own.Twice(a, d)
  flat = Constant<value_ints = [-1]>()
  z = Reshape(y, flat)
}
<domain: "own", opset_import: ["": 18, "own": 1]>
Scaled (v) => (w) { two = Constant<value_float = 2.0>() w = Mul(v, two) }
<domain: "own", opset_import: ["": 18, "own": 1]>
Twice (v, d) => (w) { u = own.Rows(v, d) w = own.Rows(u, d) }
<domain: "own", opset_import: ["": 18, "own": 1]>
Rows (v, d) => (w) {
  top = ReduceMax<keepdims = 0>(d)
  zero = Constant<value_float = 0.0>()
  first = Constant<value_ints = [0]>()
  last = Constant<value_ints = [1]>()
  c = Less(top, zero)
  w = If (c) <
    then_branch = t () => (float[P, 3] a) { a = Neg(v) },
    else_branch = f () => (float[Q, 3] a) { a = Slice(v, first, last) }
  >
}"""


@BACKENDS
def test_functions_of_the_model(backend: str) -> None:
    run = Judged(FUNCTIONS, backend)
    x = np.arange(6, dtype=F32).reshape(2, 3)
    for top in (1, -1, 1):
        assert run(x=x, d=np.full(300, top, F32))["y"].shape == ((1 if top > 0 else 2), 3)


SEQUENCES = """g (float[3] x, float limit) => (float[N] y, seq(float[M]) all, int64 n) {
  yes = Constant<value = bool {1}>()
  none = SequenceEmpty<dtype = 1>()
  s, all, last = Loop (, yes, zero, none, x) <body =
    b (int64 i, bool go, float k, seq(float[M]) q, float[A] v)
      => (bool more, float l, seq(float[M]) p, float[B] w) {
      w = Concat<axis = 0>(v, x)
      p = SequenceInsert(q, w)
      m = ReduceSum<keepdims = 0>(w)
      l = Add(k, m)
      more = Less(l, limit)
    }>
  n = SequenceLength(all)
  u = ConcatFromSequence<axis = 0>(all)
  y = Exp(u)
}"""


@BACKENDS
def test_sequences_are_states(backend: str) -> None:
    text = SEQUENCES.replace("none = S", "zero = Constant<value_float = 0.0>()\n none = S")
    run = Judged(text, backend)
    for limit in (-1, 30, 100):
        run(x=X / 10, limit=np.array(limit / 10, F32))


DECODING = """g (float[300, 4] w, float[4] x, int64 most) => (int64[N] picks, float[4] y) {
  yes = Constant<value = bool {1}>()
  one = Constant<value_ints = [1]>()
  zero = Constant<value_ints = [0]>()
  end = Constant<value_int = 7>()
  flat = Constant<value_ints = [-1]>()
  none = ConstantOfShape<value = int64[1] {0}>(zero)
  y, picks = Loop (most, yes, x, none) <body =
    b (int64 i, bool go, float[4] s, int64[P] p) => (bool more, float[4] t, int64[Q] q) {
      scores = MatMul(w, s)
      at = ArgMax<axis = 0, keepdims = 1>(scores)
      after = Add(at, one)
      row = Slice(w, at, after)
      new = Reshape(row, flat)
      t0 = Add(s, new)
      norm = ReduceL2<keepdims = 1>(t0)
      t = Div(t0, norm)
      q = Concat<axis = 0>(p, at)
      at0 = Squeeze(at, zero)
      same = Equal(at0, end)
      more = Not(same)
    }>
}"""


@BACKENDS
def test_a_picked_index_slices_rows_on_the_host(backend: str) -> None:
    """The host slices the row, so there is no program for every position."""
    run = Judged(DECODING.replace("y, picks = Loop", "y, picks = Loop"), backend)
    w = np.random.default_rng(0).standard_normal((300, 4)).astype(F32)
    for seed, most in ((1, 5), (2, 0), (3, 6)):
        x = np.random.default_rng(seed).standard_normal(4).astype(F32)
        found = run(w=w, x=x, most=np.array(most))
        assert len(found["picks"]) <= most


def test_two_hosted_loops_in_a_branch() -> None:
    loop = """{out} = Loop (, yes, {of}) <body =
        b (int64 i, bool go, float[K] s) => (bool more, float[L] t) {{
          t = Concat<axis = 0>(s, x)
          m = ReduceSum<keepdims = 0>(t)
          more = Less(m, limit)
        }}>"""
    branch = loop.format(out="k", of="x") + loop.replace("(s, x)", "(x, s, x)").format(
        out="a", of="k"
    )
    text = f"""g (float[3] x, float limit) => (float[N] y) {{
      yes = Constant<value = bool {{1}}>()
      total = ReduceSum<keepdims = 0>(x)
      c = Less(total, limit)
      v = If (c) <
        then_branch = tb () => (float[A] a) {{ {branch} }},
        else_branch = f () => (float[3] a) {{ a = Neg(x) }}
      >
      y = Exp(v)
    }}"""
    run = Judged(text, "c")
    for limit in (0.5, 3, 1):
        run(x=X / 10, limit=np.array(limit, F32))


def test_host_steps_of_an_open_model() -> None:
    text = """g (float[N] x) => (float[M] y) {
      top = ReduceMax<keepdims = 1>(x)
      n = Cast<to = 7>(top)
      zero = Constant<value_ints = [0]>()
      v = Slice(x, zero, n)
      y = Exp(v)
    }"""
    run = Judged(text, "c")
    for size in (300, 400, 10, 300):
        assert run(x=np.full(size, 3, F32))["y"].shape == (3,)


# Refusals


REFUSED = {
    WHILE_ROWS: ("output 'r' of Loop has a row for each iteration", "(Loop-16)"),
    GROWTH.replace("Mul(s, x0)", "Neg(s)"): ("state 's' of Loop changes", "(Loop-16)"),
    STRUCTURE.format(nodes="v = Slice(x, first, ns, second)"): (
        "ends of Slice must be constant",
        "(Slice-13)",
    ),
}


@pytest.mark.parametrize("text", REFUSED)
def test_hosted_structure_has_no_c_source(text: str, tmp_path: Path) -> None:
    onnx.save(parsed(text), tmp_path / "m.onnx")
    made = CliRunner().invoke(app, ["emit", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "c")])
    assert made.exit_code == 1
    what, where = REFUSED[text]
    assert what in made.output and where in made.output
    assert "the host" in made.output
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("text", REFUSED)
def test_there_is_no_gradient_through_the_host(text: str) -> None:
    options = Options(training=Training("s", SGD()))
    with pytest.raises(UnsupportedError) as error:
        popgraph.compile(parsed(text), options=options)
    what, where = REFUSED[text]
    assert what in error.value.what and where in error.value.where
    assert "nodes that only Python computes have no gradient" in error.value.hint


def test_an_endless_loop_is_refused() -> None:
    grows = GROWTH.replace("Mul(s, x0)", "Neg(s)").replace("Less(m, limit)", "Identity(go)")
    with pytest.raises(UnsupportedError, match="never ends"):
        popgraph.compile(parsed(grows))


def test_rows_of_one_shape() -> None:
    text = """g (float[2] x, float limit) => (float[N, K] r) {
      yes = Constant<value = bool {1}>()
      y, r = Loop (, yes, x) <body =
        b (int64 i, bool go, float[K] s) => (bool more, float[L] t, float[L] u) {
          t = Concat<axis = 0>(s, x)
          u = Neg(t)
          m = ReduceSum<keepdims = 0>(t)
          more = Less(m, limit)
        }>
    }"""
    run = popgraph.compile(parsed(text))
    assert run(x=X[:2], limit=np.array(0, F32))["r"].shape == (1, 4)
    with pytest.raises(RunError, match="the rows of Loop differ"):
        run(x=X[:2], limit=np.array(100, F32))


def test_uncomputable_nodes_have_errors() -> None:
    model = parsed(GROWTH.replace("Mul(s, x0)", "own.Unknown(s)"))
    with pytest.raises(UnsupportedError, match=r"own\.Unknown-1 is not supported"):
        popgraph.compile(model)


def test_random_numbers_differ_between_iterations() -> None:
    text = """g (float[300] d) => (float[N] y) {
      top = ReduceMax<keepdims = 0>(d)
      yes = Constant<value = bool {1}>()
      none = Constant<value_floats = []>()
      zero = Constant<value_ints = [0]>()
      empty = ConstantOfShape(zero)
      four = Constant<value_ints = [40]>()
      y = Loop (, yes, empty) <body =
        b (int64 i, bool go, float[K] s) => (bool more, float[L] t) {
          z = ConstantOfShape(four)
          u = RandomUniformLike(z)
          t = Concat<axis = 0>(s, u)
          f = Cast<to = 1>(i)
          more = Less(f, top)
        }>
    }""".replace("none = Constant<value_floats = []>()\n", "")
    run = popgraph.compile(parsed(text))
    drawn = [run(d=np.full(300, top, F32))["y"] for top in (3, 3, 4)]
    assert [array.size for array in drawn] == [160, 160, 200]
    assert len(np.unique(np.concatenate(drawn))) > 510


def test_threads_share_hosted_models() -> None:
    run = popgraph.compile(parsed(DECODING), backend="reference")
    w = np.random.default_rng(0).standard_normal((300, 4)).astype(F32)
    xs = np.random.default_rng(1).standard_normal((8, 4)).astype(F32)

    def picks(x: Array) -> list[int]:
        return list(run(w=w, x=x, most=np.array(10))["picks"])

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(picks, xs))
    assert found == [picks(x) for x in xs]
