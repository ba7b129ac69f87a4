"""Tests weights that no program reads: sessions hold, save and replace them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import popgraph.popart as popart
from popgraph import compat

F32 = np.float32
WEIGHTS = {
    "w": np.array([1, 2], F32),
    "in_no_turn": np.array([3, 4], F32),
    "not_taken": np.array([5, 6], F32),
    "for_nobody": np.array([7, 8], F32),
    "unread": np.array([9, 10], F32),
}


def info(name: str, kind: int = TensorProto.FLOAT, shape: tuple[int, ...] = (2,)) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def body(*weights: str) -> onnx.GraphProto:
    """The body of a loop that adds a weight to each carried value."""
    nodes = [helper.make_node("Identity", ["going"], ["on"])]
    inputs = [info("turn", TensorProto.INT64, ()), info("going", TensorProto.BOOL, ())]
    outputs = [info("on", TensorProto.BOOL, ())]
    for number, weight in enumerate(weights):
        nodes.append(helper.make_node("Add", [f"old{number}", weight], [f"new{number}"]))
        inputs.append(info(f"old{number}"))
        outputs.append(info(f"new{number}"))
    return helper.make_graph(nodes, "body", inputs, outputs)


def branch(name: str, op: str, inputs: list[str]) -> onnx.GraphProto:
    return helper.make_graph([helper.make_node(op, inputs, [name])], name, [], [info(name)])


def model() -> onnx.ModelProto:
    """
    y = x w, followed by a loop without iterations, a constant branch, and a loop of two values.

    The second value of the last loop is unused, so `canonicalize` removes it.
    """
    branches = {
        "then_branch": branch("then", "Identity", ["b"]),
        "else_branch": branch("else", "Mul", ["b", "not_taken"]),
    }
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["a"]),
        helper.make_node("Loop", ["none", "", "a"], ["b"], body=body("in_no_turn")),
        helper.make_node("If", ["yes"], ["c"], **branches),
        helper.make_node("Loop", ["two", "", "c", "a"], ["y", "d"], body=body("w", "for_nobody")),
        helper.make_node("ReduceSum", ["y"], ["loss"], keepdims=0),
    ]
    steering = {"none": np.array(0), "two": np.array(2), "yes": np.array(True)}
    held = [numpy_helper.from_array(array, name) for name, array in (WEIGHTS | steering).items()]
    whole = helper.make_graph(nodes, "g", [info("x")], [info("y")], held)
    opsets = [helper.make_opsetid("", 18)]
    made = helper.make_model(whole, opset_imports=opsets, ir_version=9)
    onnx.checker.check_model(made)
    return made


OPTIMIZERS: dict[str, Any] = {
    "constant": popart.ConstSGD(0.5),
    "momentum": popart.SGD(
        {"defaultLearningRate": (0.5, False), "defaultMomentum": (0.5, False)},
    ),
    "adam": popart.Adam({"defaultLearningRate": (0.5, False)}),
}


def trained(source: object, api: Any, optimizer: Any, device: Any, steps: int = 2) -> Any:
    """A session after some steps, whose weights have been fetched."""
    session = api.TrainingSession(source, api.DataFlow(1, ["loss"]), "loss", optimizer, device)
    session.prepareDevice()
    session.weightsFromHost()
    for _ in range(steps):
        stepio = api.PyStepIO({"x": np.ones(2, F32)}, session.initAnchorArrays())
        session.run(stepio)
    session.weightsToHost()
    return session


def saved(session: Any, path: Path) -> dict[str, Any]:
    session.modelToHost(str(path))
    held = onnx.load(path).graph.initializer
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in held}


def assert_unchanged(found: dict[str, Any], but: str = "w") -> None:
    assert not np.array_equal(found[but], WEIGHTS[but])
    for name in WEIGHTS.keys() - {but}:
        np.testing.assert_array_equal(found[name], WEIGHTS[name], err_msg=name)


@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_unread_weights_are_saved_unchanged(
    optimizer: popart.Optimizer, device: popart.DeviceInfo, tmp_path: Path
) -> None:
    session = trained(model().SerializeToString(), popart, optimizer, device)
    assert_unchanged(dict(session.weights()))
    assert_unchanged(saved(session, tmp_path / "trained.onnx"))
    held = {name: np.empty(2, F32) for name in WEIGHTS}
    session.readWeights(popart.PyWeightsIO(held))
    assert_unchanged(held)


@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_training_continues_from_a_saved_model(
    optimizer: popart.Optimizer, device: popart.DeviceInfo, tmp_path: Path
) -> None:
    """Saves optimizer states, too: four steps equal two and two."""
    path = tmp_path / "half.onnx"
    saved(trained(model().SerializeToString(), popart, optimizer, device), path)
    resumed = trained(str(path), popart, optimizer, device)
    whole = trained(model().SerializeToString(), popart, optimizer, device, steps=4)
    assert resumed.weights().keys() == whole.weights().keys()
    for name, array in whole.weights().items():
        np.testing.assert_allclose(resumed.weights()[name], array, rtol=1e-6, err_msg=name)


def test_new_values_of_unread_weights_are_kept(device: popart.DeviceInfo, tmp_path: Path) -> None:
    session = trained(model().SerializeToString(), popart, OPTIMIZERS["adam"], device)
    new = {name: array + 1 for name, array in WEIGHTS.items()}
    session.writeWeights(popart.PyWeightsIO(new))
    session.weightsFromHost()
    found = saved(session, tmp_path / "written.onnx")
    for name, array in new.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)
    other = trained(model().SerializeToString(), popart, OPTIMIZERS["adam"], device)
    other.resetHostWeights(str(tmp_path / "written.onnx"))
    other.weightsFromHost()
    other.weightsToHost()
    for name, array in new.items():
        np.testing.assert_array_equal(other.weights()[name], array, err_msg=name)


@pytest.mark.parametrize("name", [*WEIGHTS, "two"])
def test_every_weight_can_be_anchored(name: str, device: popart.DeviceInfo) -> None:
    """Anchors include weights that no program reads, and an integer."""
    session = popart.TrainingSession(
        model().SerializeToString(),
        popart.DataFlow(1, ["loss", name]),
        "loss",
        popart.ConstSGD(0.5),
        device,
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({"x": np.ones(2, F32)}, anchors))
    expected = {**WEIGHTS, "two": np.array(2), "w": WEIGHTS["w"] - 1.5}
    np.testing.assert_array_equal(anchors[name], expected[name])


@pytest.fixture
def old_names() -> Iterator[Any]:
    """The module `popart`, as old programs import it."""
    compat.enable()
    import popart as named

    yield named
    compat.disable()
    sys.modules.pop("popart", None)


def test_old_programs_read_unread_weights(old_names: Any, tmp_path: Path) -> None:
    device = old_names.DeviceManager().createCpuDevice()
    source = model().SerializeToString()
    session = trained(source, old_names, old_names.ConstSGD(0.5), device)
    path = tmp_path / "old.onnx"
    assert_unchanged(saved(session, path))
    held = {name: np.empty(2, F32) for name in WEIGHTS}
    again = trained(str(path), old_names, old_names.ConstSGD(0.5), device, steps=0)
    again.readWeights(old_names.PyWeightsIO(held))
    assert_unchanged(held)
