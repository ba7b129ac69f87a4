"""Tests inputs that select branches that fit only some shapes, as in speech models."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser
from typer.testing import CliRunner

import popgraph
from popgraph import compiler
from popgraph.backends.base import Executable
from popgraph.backends.reference import evaluate
from popgraph.builder.onnx.read import import_model
from popgraph.cli import app
from popgraph.passes.base import Compilation
from popgraph.passes.optimizer_spec import SGD, Scalar
from popgraph.passes.options import Options, Training
from popgraph.support import files
from popgraph.support.arrays import Array
from popgraph.support.errors import TypeMismatchError

BACKENDS = ("c", "reference")
RNG = np.random.default_rng(0)
WIDE, NARROW = (RNG.normal(size=(size, 3)).astype(np.float32) for size in (4, 2))

RATES = """<ir_version: 8, opset_import: ["": 18]>
g ({condition}, float[{sizes}] x) => (float[{given}] y) {{
  {choice}
  y = If (chosen) <
    then_branch = t () => (float[{given}] a) {{ a = MatMul(x, wide) }},
    else_branch = e () => (float[{given}] b) {{ m = MatMul(x, narrow)  b = Neg(m) }}
  >
}}"""
BY_RATE = "sixteen = Constant<value_int = 16>()  chosen = Equal(rate, sixteen)"
BY_DATA = "s = ReduceSum<keepdims = 0>(x)  chosen = Cast<to = 9>(s)"


def model(
    sizes: str = "N, K",
    given: str = "N, 3",
    condition: str = "int64 rate",
    choice: str = BY_RATE,
) -> onnx.ModelProto:
    """A model of x @ wide if rate is 16 (x has 4 columns), else -(x @ narrow) (2 columns)."""
    text = RATES.format(sizes=sizes, given=given, condition=condition, choice=choice)
    made = parser.parse_model(text)
    for name, array in (("wide", WIDE), ("narrow", NARROW)):
        made.graph.initializer.append(numpy_helper.from_array(array, name))
    return made


def rows(count: int, size: int) -> Array:
    return RNG.normal(size=(count, size)).astype(np.float32)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("given", ["N, 3", "M, L"])
def test_the_branch_that_does_not_fit_is_not_checked(backend: str, given: str) -> None:
    run = popgraph.compile(model(given=given), backend=backend)
    assert run.structural == ()
    for count in (1, 5, 1):
        x, y = rows(count, 4), rows(count, 2)
        np.testing.assert_allclose(run(x=x, rate=np.array(16))["y"], x @ WIDE, rtol=1e-5)
        np.testing.assert_allclose(run(x=y, rate=np.array(8))["y"], -(y @ NARROW), rtol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_branch_that_is_taken_must_fit(backend: str) -> None:
    run = popgraph.compile(model(), backend=backend)
    for size, rate in ((4, 8), (2, 16)):
        with pytest.raises(TypeMismatchError, match="MatMul") as caught:
            run(x=rows(2, size), rate=np.array(rate))
        assert f"with input 'rate' = {rate}" in caught.value.where
    with pytest.raises(TypeMismatchError, match="MatMul"):
        run(x=rows(2, 3), rate=np.array(8))


def test_branches_of_a_model_with_known_shapes() -> None:
    """Declared shapes of the branch that does not fit are ignored."""
    for sizes, rate, weights in (("5, 4", 16, WIDE), ("5, 2", 8, -NARROW)):
        run = popgraph.compile(model(sizes, "5, 3"))
        assert run.structural == ("rate",)
        x = rows(5, len(weights))
        np.testing.assert_allclose(run(x=x, rate=np.array(rate))["y"], x @ weights, rtol=1e-5)


def test_branches_that_both_fit_are_one_program(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[object] = []
    build = compiler.BuildRequest.executable

    def counted(request: compiler.BuildRequest) -> Executable:
        made = build(request)  # A program for many sizes may be impossible.
        built.append(request)
        return made

    monkeypatch.setattr(compiler.BuildRequest, "executable", counted)
    made = model(given="M, L")
    made.graph.initializer[1].CopyFrom(numpy_helper.from_array(-WIDE, "narrow"))
    run = popgraph.compile(made)
    x = rows(2, 4)
    for rate in (16, 8, 9, 10):
        np.testing.assert_allclose(run(x=x, rate=np.array(rate))["y"], x @ WIDE, rtol=1e-5)
    assert len(built) == 1
    run(x=rows(3, 4), rate=np.array(8))
    assert len(built) == 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_branches_that_give_different_types_for_some_shapes(backend: str) -> None:
    text = """<ir_version: 8, opset_import: ["": 18]>
    g (bool c, float[N] x, float[M] z) => (float[K] y) {
      y = If (c) <
        then_branch = t () => (float[K] a) { a = Neg(x) },
        else_branch = e () => (float[K] b) { b = Neg(z) }
      >
    }"""
    run = popgraph.compile(parser.parse_model(text), backend=backend)
    for sizes in ((3, 3), (3, 4)):
        x, z = (np.ones(size, np.float32) * size for size in sizes)
        for c, taken in ((True, x), (False, z)):
            np.testing.assert_array_equal(run(c=np.array(c), x=x, z=z)["y"], -taken)


@pytest.mark.parametrize("backend", BACKENDS)
def test_data_cannot_choose_a_branch_that_does_not_fit(backend: str) -> None:
    made = model("300, K", "300, 3", "float unused", BY_DATA)
    run = popgraph.compile(made, backend=backend)
    with pytest.raises(TypeMismatchError) as caught:
        run(x=rows(300, 4), unused=np.array(0, np.float32))
    assert caught.value.what.startswith(
        "a branch of If that data may choose cannot be computed: MatMul-13 does not take inputs"
    )


def test_a_branch_of_another_rank_is_refused_by_its_node() -> None:
    """Ranks are checked before lowerings rely on them."""
    text = """<ir_version: 8, opset_import: ["": 18]>
    g (float[A, B, C] x) => (float[K, L, M] y) {
      s = ReduceSum<keepdims = 0>(x)
      c = Cast<to = 9>(s)
      y = If (c) <
        then_branch = t () => (float[K, L, M] a) { v = Unsqueeze(x, axis)  u, a = LSTM(v, w, r) },
        else_branch = e () => (float[K, L, M] b) { b = Neg(x) }
      >
    }"""
    made = parser.parse_model(text)
    for name, array in (("axis", np.array([0])), ("w", np.ones((1, 8, 2), np.float32))):
        made.graph.initializer.append(numpy_helper.from_array(array, name))
    made.graph.initializer.append(numpy_helper.from_array(np.ones((1, 8, 2), np.float32), "r"))
    with pytest.raises(TypeMismatchError, match="`X` has 4 axes"):
        popgraph.compile(made)(x=np.ones((10, 15, 2), np.float32))


AT_ONCE = """
import sys, numpy as np, popgraph
run = popgraph.compile(sys.argv[1])
for size, rate in ((4, 16), (2, 8), (4, 16)):
    assert run(x=np.ones((5, size), np.float32), rate=np.array(rate))["y"].shape == (5, 3)
for name in ("popgraph.compiler", "popgraph.dialects", "xdsl", "onnx", "lark"):
    assert name not in sys.modules, name
"""


def test_another_process_starts_without_the_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POPGRAPH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("POPGRAPH_PROGRAM_CACHE", "1")
    monkeypatch.setattr(files, "SETTLED", -1.0)
    path = tmp_path / "model.onnx"
    path.write_bytes(model().SerializeToString())
    run = popgraph.compile(path)
    for size, rate in ((4, 16), (2, 8)):
        run(x=rows(5, size), rate=np.array(rate))
    subprocess.run([sys.executable, "-c", AT_ONCE, str(path)], check=True)


def test_random_inputs_do_not_choose(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(model().SerializeToString())
    command = ["run", str(path), "--random", "--dim", "N=2", "--dim", "K=4"]
    refused = CliRunner().invoke(app, command)
    assert refused.exit_code == 1
    assert "input 'rate' decides the structure of the model: it is not generated" in refused.output
    done = CliRunner().invoke(app, [*command, "--value", "rate=16"])
    assert done.exit_code == 0, done.output
    assert "float32[2, 3]" in done.output


UNDECLARED = """
<ir_version: 9, opset_import: ["" : 18]> graph (float[2] x) => (float loss)
<int64 n = {3}, bool on = {1}, float limit = {0.1}>
{
    mean = ReduceMean <keepdims = 0> (x)
    p = Greater (mean, limit)
    y = If (p) <
        then_branch = g () => (float[2] s) {
            w = Loop (n, on, x) <
                body = b (int64 i, bool c, float[2] a) => (bool d, float[2] e) {
                    d = Identity (c) e = Mul (a, a)
                }
            >
            s = Add (w, x)
        },
        else_branch = h () => (float[2] u) { u = Neg (x) }
    >
    loss = ReduceSum <keepdims = 0> (y)
}
"""


def test_branches_of_equal_types_have_gradients_if_types_are_undeclared() -> None:
    """The state of a Loop in a branch has no declared shape; the condition decides no structure."""
    proto = onnx.parser.parse_model(UNDECLARED)
    for branch in proto.graph.node[2].attribute:
        branch.g.output[0].type.tensor_type.ClearField("shape")
    compilation = Compilation()
    module = import_model(proto, compilation.weights)
    rule = SGD(learning_rate=Scalar(0.1))
    options = Options(Training("loss", rule, ("x",)), extra_outputs=("x",))
    compiler.lower(module, compilation, options, level="graphcore")
    for x, expected in (([1, 0.5], [9, 1 + 8 * 0.5**7]), ([-1, -2], [-1, -1])):
        outputs, _ = evaluate(module, {"x": np.array(x, np.float32)}, compilation.weights)
        np.testing.assert_allclose(outputs["Gradient___x"], expected)
