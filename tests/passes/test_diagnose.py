"""
Tests that compilation reports all unsupported nodes at once, and that `diagnose` counts nodes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser
from typer.testing import CliRunner

import popgraph
from popgraph.builder.onnx.read import import_model
from popgraph.cli import app
from popgraph.dialects.program import WeightStore
from popgraph.passes.onnx.diagnose import Diagnosis, diagnose
from popgraph.support.errors import UnsupportedError, UnsupportedGroup

HEAD = '<ir_version: 8, opset_import: ["": 17, "com.example": 1, "com.microsoft": 1, "own": 1]>'
SEVERAL = """
g (float[3,3] x) => (y, z, w) {
  a = com.example.Bar(x)
  b = Relu(a)
  c = com.example.Bar(b)
  d = com.microsoft.FusedGemm<activation = "Swish">(x, x)
  e = Exp(d)
  y = Relu(x)
  z = com.example.Baz(c, e)
  w = own.Twice(x)
}
<domain: "own", opset_import: ["": 17, "com.example": 1]>
Twice (x) => (y) { inner = com.example.Bar(x)  y = Add(inner, inner) }
"""
TRY = "use operators that `popgraph ops` lists, or remove the node"
TOLD = f"""the operator com.example.Bar-1 is not supported
  at: node 'a' (com.example.Bar-1), and 2 more nodes
  try: {TRY}

the activation 'Swish' of FusedGemm is not supported
  at: node 'd' (com.microsoft.FusedGemm-1)
  try: use a separate node for the activation

the operator com.example.Baz-1 is not supported
  at: node 'z' (com.example.Baz-1)
  try: {TRY}"""


def model(text: str) -> onnx.ModelProto:
    found: onnx.ModelProto = parser.parse_model(HEAD + text)
    return found


def diagnosis(text: str) -> Diagnosis:
    store = WeightStore()
    return diagnose(import_model(model(text), store), store)


@pytest.mark.parametrize("backend", ["c", "reference"])
def test_all_refusals_are_reported_at_once(backend: str) -> None:
    with pytest.raises(UnsupportedGroup) as caught:
        popgraph.compile(model(SEVERAL), backend=backend)
    assert str(caught.value) == TOLD


def test_a_refused_node_of_a_function_is_named_by_its_call() -> None:
    text = SEVERAL[SEVERAL.index("<domain") :]
    with pytest.raises(UnsupportedError) as caught:
        popgraph.compile(model("g (float[3,3] x) => (w) { w = own.Twice(x) }" + text))
    assert caught.value.where == "node 'w', which is made of com.example.Bar-1"


def test_consequences_of_a_refusal_are_not_reported() -> None:
    """The shape of Reshape is not constant only because its source was refused."""
    with pytest.raises(UnsupportedError) as caught:
        popgraph.compile(
            model("g (int64[2] x) => (z) { s = com.example.Bar(x)  r = Exp(s) z = Reshape(x, s) }")
        )
    assert not isinstance(caught.value, UnsupportedGroup)
    assert caught.value.where == "node 's' (com.example.Bar-1)"


def test_refused_nodes_in_subgraphs_are_reported() -> None:
    with pytest.raises(UnsupportedError) as caught:
        popgraph.compile(
            model(
                """g (float[3] x, bool c) => (y) {
                  y = If (c) <
                    then_branch = one () => (float[3] a) { a = com.example.Bar(x) },
                    else_branch = two () => (float[3] b) { b = com.example.Bar(x) }
                  >
                }"""
            )
        )
    assert caught.value.where == "node 'a' (com.example.Bar-1), and 1 more node"


STEPS = "g (float[{n},3] x) => (y, z, v) {{ a = com.example.Bar(x) y = Cast<to = 8>(x) {more} }}"
MORE = "z = com.example.Baz(x) v = Softmax(x)"


@pytest.mark.parametrize("size", [3, "N"])
def test_refusals_in_models_with_host_steps_are_reported_at_once(size: object) -> None:
    with pytest.raises(UnsupportedGroup, match=r"Bar-1[^$]*Baz-1"):
        popgraph.compile(model(STEPS.format(n=size, more=MORE)))


@pytest.mark.parametrize("size", [3, "N"])
def test_a_diagnosis_counts_all_nodes(size: object) -> None:
    found = diagnosis(STEPS.format(n=size, more=MORE))
    assert (found.nodes, found.compiled, len(found.hosted), len(found.refused)) == (4, 1, 1, 2)
    ((name, where, reason),) = found.hosted
    assert (name, where) == ("Cast-13", "node 'y' (Cast-13)")
    assert reason.startswith("'y' is string[")
    assert found.is_open == (size == "N")


def test_a_diagnosis_continues_after_host_steps() -> None:
    text = """g (float[99999] x) => (y, z) {
      m = ReduceMax<keepdims = 1>(x)
      n = Cast<to = 7>(m)
      y = Tile(x, n)
      z = com.example.Bar(y)
    }"""
    found = diagnosis(text)
    assert [one[:2] for one in found.hosted] == [("Tile-13", "node 'y' (Tile-13)")]
    assert [one.where for one in found.refused] == ["node 'z' (com.example.Bar-1)"]
    assert found.compiled == 2


def test_a_diagnosis_of_a_supported_model() -> None:
    text = "g (float[3,3] x) => (y) { a = com.microsoft.BiasGelu(x, x)  y = Relu(a) }"
    assert diagnosis(text) == Diagnosis(nodes=2)
    store = WeightStore()
    module = import_model(model(text), store)
    before = str(module)
    diagnose(module, store)
    assert str(module) == before


def call(*arguments: Any) -> Any:
    return CliRunner().invoke(app, [str(one) for one in arguments])


def test_the_doctor_command_diagnoses_models(tmp_path: Path) -> None:
    onnx.save(model(SEVERAL), tmp_path / "bad.onnx")
    result = call("doctor", tmp_path / "bad.onnx")
    assert result.exit_code == 1
    assert "cannot be compiled  5" in result.output
    assert "error: the operator com.example.Baz-1 is not supported" in result.output
    onnx.save(model("g (float[N] x) => (y) { y = Cast<to = 8>(x) }"), tmp_path / "good.onnx")
    result = call("doctor", tmp_path / "good.onnx", "--dim", "N=2")
    assert result.exit_code == 0
    assert "1 x Cast-13  node 'y' (Cast-13)  'y' is string" in result.output


def test_the_check_command_warns_of_unsupported_nodes(tmp_path: Path) -> None:
    file = tmp_path / "net.pgraph"
    file.write_text(
        "opset 21\nopset com.example 1\n"
        "graph g(x: f32[3]) -> y {\n  a = com.example.Bar(x)\n  y = Relu(com.example.Bar(a))\n}\n"
    )
    result = call("check", file)
    assert result.exit_code == 0
    assert "warning: the operator com.example.Bar-1 is not supported" in result.output
    assert f"{file}:4, node 'a' (com.example.Bar-1), and 1 more node" in result.output
    assert call("check", file, "--strict").exit_code == 1


def test_a_refused_model_leaves_other_programs_usable() -> None:
    good = popgraph.compile(model("g (float[2] x) => (y) { y = Neg(x) }"))
    with pytest.raises(UnsupportedGroup):
        popgraph.compile(model(SEVERAL))
    np.testing.assert_array_equal(good(x=np.ones(2, np.float32))["y"], [-1, -1])
