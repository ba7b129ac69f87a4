"""Tests the backend interface of the onnx package, also under ONNX's own runner."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import popgraph.backend
from popgraph.backend import CBackend, ReferenceBackend
from popgraph.support.errors import PopgraphError, RunError, UnsupportedError

BACKENDS = pytest.mark.parametrize("backend", [CBackend, ReferenceBackend])
X = np.array([[1.0, -2.0, 3.0]], np.float32)


def model(op: str = "Sub", **attributes: Any) -> onnx.ModelProto:
    """A model `y = op(x, w)` with w = 1, which is also an input as in old models."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3])
    w = helper.make_tensor_value_info("w", TensorProto.FLOAT, [1])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    node = helper.make_node(op, ["x", "w"], ["y"], **attributes)
    initial = numpy_helper.from_array(np.ones(1, np.float32), "w")
    return helper.make_model(helper.make_graph([node], "g", [x, w], [y], [initial]))


@BACKENDS
def test_a_prepared_model_runs_repeatedly(backend: type[CBackend]) -> None:
    prepared = backend.prepare(model())
    for factor in (1, 2):
        outputs = prepared.run([factor * X])
        np.testing.assert_array_equal(outputs[0], factor * X - 1)
        np.testing.assert_array_equal(outputs["y"], outputs[0])


def test_inputs_by_order_or_by_name() -> None:
    prepared = ReferenceBackend.prepare(model())
    for inputs in (X, [X], (X,), {"x": X}, [numpy_helper.from_array(X)]):
        np.testing.assert_array_equal(prepared.run(inputs)[0], X - 1)
    with pytest.raises(RunError, match="2 inputs are given, the model has 1"):
        prepared.run([X, X])


def test_the_module_is_a_backend() -> None:
    (y,) = popgraph.backend.run_model(model(), [X], "CPU:0", threads=2, rtol=1e-3)
    np.testing.assert_array_equal(y, X - 1)
    assert popgraph.backend.supports_device("CPU")
    assert not popgraph.backend.supports_device("CUDA:0")
    with pytest.raises(PopgraphError, match="there is no device 'CUDA'"):
        popgraph.backend.prepare(model(), "CUDA")


def test_refused_models_are_not_compatible() -> None:
    assert popgraph.backend.is_compatible(model())
    assert not popgraph.backend.is_compatible(model(), "CUDA")
    refused = model("Nothing")
    refused.graph.node[0].domain = "com.example"
    del refused.graph.node[0].input[1:], refused.graph.initializer[:]
    refused.opset_import.append(helper.make_opsetid("com.example", 5))
    assert not popgraph.backend.is_compatible(refused)
    with pytest.raises(UnsupportedError, match=r"the operator com\.example\.Nothing"):
        popgraph.backend.prepare(refused)


@BACKENDS
def test_a_sequence_is_a_list(backend: type[CBackend]) -> None:
    given = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, [1, 3])
    length = helper.make_tensor_value_info("n", TensorProto.INT64, [])
    node = helper.make_node("SequenceLength", ["s"], ["n"])
    made = helper.make_model(helper.make_graph([node], "g", [given], [length]))
    assert backend.is_compatible(made)
    (n,) = backend.run_model(made, [[X, X]])
    assert n == 2


@BACKENDS
def test_a_node_runs(backend: type[CBackend]) -> None:
    node = helper.make_node("Add", ["a", "b"], ["c"])
    (c,) = backend.run_node(node, [X, X], outputs_info=[(np.float32, (1, 3))])
    np.testing.assert_array_equal(c, X + X)
    twice = helper.make_node("Mul", ["a", "a"], ["c"])
    np.testing.assert_array_equal(backend.run_node(twice, X)[0], X * X)
    clip = helper.make_node("Clip", ["a", "", "high"], ["c"])
    (clipped,) = backend.run_node(clip, [X, np.float32(2)], opset_version=13)
    np.testing.assert_array_equal(clipped, np.minimum(X, 2))


def test_run_node_uses_the_newest_or_given_version() -> None:
    """Softmax before opset 13 normalizes over all axes from `axis` on."""
    x = np.arange(8, dtype=np.float32).reshape(2, 2, 2)
    node = helper.make_node("Softmax", ["x"], ["y"], axis=1)
    (new,) = ReferenceBackend.run_node(node, x)
    (old,) = ReferenceBackend.run_node(node, x, opset_version=11)
    np.testing.assert_allclose(new.sum(1), 1, rtol=1e-6)
    np.testing.assert_allclose(old.sum((1, 2)), 1, rtol=1e-6)


OWN_RUNNER = """
from onnx.backend.test import BackendTest, runner
from onnx.helper import make_opsetid

import popgraph.backend

refused = "mystery"
names = ("relu", "sub", "batchnorm_epsilon", "operator_chunk", "softmax_lastdim", refused)
kept = (*names, "sign", "gradient_of_add")
load = runner.load_model_tests

def with_a_mystery(kind):
    found = [case for case in load(kind=kind) if any(map(case.name.endswith, kept))]
    for case in found:
        if case.name == "test_sign":  # an operator that nobody knows: all of ONNX's are supported
            case.name = "test_mystery"
            case.model.graph.node[0].domain = "no.such.domain"
            case.model.opset_import.append(make_opsetid("no.such.domain", 1))
    return found

runner.load_model_tests = with_a_mystery
tests = BackendTest(popgraph.backend, __name__)
for name in names:
    tests.include(f"^test_{name}_cpu")
tests.include("^test_relu_cuda")
tests.include("^test_gradient_of_add_cpu")  # of another kind
tests.xfail(f"^test_{refused}_cpu")
globals().update(tests.test_cases)
"""


@pytest.mark.budget
def test_the_backend_passes_onnx_s_own_runner(tmp_path: Path) -> None:
    (tmp_path / "test_of_onnx.py").write_text(OWN_RUNNER)
    command = [sys.executable, "-m", "pytest", "-rsx", "-p", "no:cacheprovider", "test_of_onnx.py"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    last = ran.stdout.splitlines()[-1]
    assert "6 passed" in last and "1 xfailed" in last, ran.stdout
    assert "Backend doesn't support device CUDA" in ran.stdout
