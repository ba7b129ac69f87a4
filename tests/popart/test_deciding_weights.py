"""Tests branches and loops whose conditions depend on weights that training changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import popgraph.popart as popart

F32 = np.float32
ONES, LOW = np.ones(2, F32), np.full(2, 0.25, F32)
"""Weights whose sum is above and below 1."""


def info(name: str, kind: int = TensorProto.FLOAT, shape: tuple[int, ...] = (2,)) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def product(name: str, factor: str) -> Any:
    node = helper.make_node("Mul", ["a", factor], [name])
    return helper.make_graph([node], name, [], [info(name)])


def branch() -> Any:
    """An If node: the product for large weights, ten times the product for small ones."""
    branches = {"then_branch": product("then", "one"), "else_branch": product("else", "ten")}
    return helper.make_node("If", ["large"], ["y"], **branches)


def loop() -> Any:
    """A Loop node: for large weights, three iterations multiply the product by 1000."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["going"], ["on"]),
            helper.make_node("Mul", ["old", "ten"], ["new"]),
        ],
        "body",
        [info("turn", TensorProto.INT64, ()), info("going", TensorProto.BOOL, ()), info("old")],
        [info("on", TensorProto.BOOL, ()), info("new")],
    )
    return helper.make_node("Loop", ["three", "large", "a"], ["y"], body=body)


KINDS = {"branch": (branch, 1, 10), "loop": (loop, 1000, 1)}
"""The control-flow node, and the factors for large and for small weights."""


def constant(name: str, array: Any) -> Any:
    """A Constant node instead of an initializer, which would be a weight."""
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array))


def model(kind: str) -> bytes:
    nodes = [
        constant("one", np.array(1, F32)),
        constant("ten", np.array(10, F32)),
        constant("three", np.array(3)),
        helper.make_node("Mul", ["x", "w"], ["a"]),
        helper.make_node("ReduceSum", ["w"], ["total"], keepdims=0),
        helper.make_node("Greater", ["total", "one"], ["large"]),
        KINDS[kind][0](),
        helper.make_node("ReduceSum", ["y"], ["loss"], keepdims=0),
    ]
    weights = [numpy_helper.from_array(ONES, "w")]
    graph = helper.make_graph(nodes, "g", [info("x")], [info("y")], weights)
    opsets = [helper.make_opsetid("", 18)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    return bytes(made.SerializeToString())


def run(session: Any) -> Any:
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({"x": ONES}, anchors))
    return anchors


@pytest.mark.parametrize("kind", KINDS)
def test_conditions_use_the_weights_of_their_step(kind: str, device: popart.DeviceInfo) -> None:
    """Regression: the initial weights decided every step."""
    _, large, small = KINDS[kind]
    optimizer = popart.ConstSGD(0.75 / large)
    flow = popart.DataFlow(1, ["y", "Gradient___w"])
    session = popart.TrainingSession(model(kind), flow, "loss", optimizer, device)
    session.prepareDevice()
    session.weightsFromHost()
    first, second = run(session), run(session)
    np.testing.assert_allclose(first["y"], ONES * large)
    np.testing.assert_allclose(first["Gradient___w"], ONES * large)
    np.testing.assert_allclose(second["y"], LOW * small, rtol=1e-5)
    np.testing.assert_allclose(second["Gradient___w"], ONES * small)


@pytest.mark.parametrize("kind", KINDS)
def test_conditions_use_weights_written_by_the_host(kind: str, device: popart.DeviceInfo) -> None:
    _, large, small = KINDS[kind]
    options = popart.SessionOptions()
    options.constantWeights = False
    flow = popart.DataFlow(1, ["y"])
    session = popart.InferenceSession(model(kind), flow, device, userOptions=options)
    session.prepareDevice()
    session.weightsFromHost()
    np.testing.assert_allclose(run(session)["y"], ONES * large)
    session.writeWeights(popart.PyWeightsIO({"w": LOW}))
    session.weightsFromHost()
    np.testing.assert_allclose(run(session)["y"], LOW * small)
