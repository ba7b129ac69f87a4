"""Tests DataFlow: the returned batches of an anchor, and their shape."""

from __future__ import annotations

import numpy as np
import pytest

import popgraph.popart as popart
from popgraph.popart import AnchorReturnType, DataFlow


def error(call: object) -> str:
    with pytest.raises(popart.popart_exception) as caught:
        call()  # type: ignore[operator]
    return str(caught.value.args[0])


def test_return_types_in_any_case() -> None:
    for text in ("All", "ALL", "all"):
        assert AnchorReturnType(text).id() is popart.AnchorReturnTypeId.All
    assert AnchorReturnType("EVERYN", 4).rp() == 4
    assert AnchorReturnType("Final", popart.TileSet.IO).tileSet() is popart.TileSet.IO


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("Some",), "Invalid anchor return type ID supplied: Some"),
        (("All", 2), "A return period should not be supplied for this anchor return type"),
        (("EveryN", 0), "Anchor return period must be greater than zero"),
        (("EveryN",), "Must specify return period with option 'EVERYN'"),
    ],
)
def test_wrong_return_types(arguments: tuple[object, ...], text: str) -> None:
    assert error(lambda: AnchorReturnType(*arguments)) == text  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("batches", "period", "text"),
    [
        (0, 1, "'Batches per step' must be greater than zero"),
        (2, 4, "Return period must be <= to the number of batches per step"),
        (6, 4, "Return period must be a factor of the number of batches per step"),
    ],
)
def test_wrong_numbers_of_batches(batches: int, period: int, text: str) -> None:
    assert error(lambda: DataFlow(batches, {"x": AnchorReturnType("EveryN", period)})) == text


def test_attributes_of_a_flow() -> None:
    flow = DataFlow(6, {"b": AnchorReturnType("Final"), "a": AnchorReturnType("EveryN", 3)})
    assert (flow.anchors(), flow.nAnchors(), flow.batchesPerStep()) == (["a", "b"], 2, 6)
    assert flow.isAnchored("a")
    assert not flow.isAnchored("c")
    assert str(DataFlow(2, ["x"]).art("x")) == "All"
    assert str(DataFlow(2, ["x"], AnchorReturnType("Sum")).art("x")) == "Sum"
    flow.setBatchesPerStep(9)
    assert flow.batchesPerStep() == 9


RETURNS = {
    "All": ((), (6, 1, 2), slice(None)),
    "EveryN": ((3,), (2, 1, 2), slice(2, None, 3)),
    "Final": ((), (1, 2), 5),
    "Sum": ((), (1, 2), None),
}


@pytest.mark.parametrize("kind", RETURNS)
def test_anchors_of_six_batches(kind: str, device: popart.DeviceInfo) -> None:
    period, shape, which = RETURNS[kind]
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [1, 2])
    y = builder.aiOnnx.mul([x, x])
    flow = DataFlow(6, {y: AnchorReturnType(kind, *period)})
    session = popart.InferenceSession(builder.getModelProto(), flow, device)
    anchors = session.initAnchorArrays()
    assert anchors[y].shape == shape
    data = np.arange(12, dtype=np.float32).reshape(6, 1, 2)
    session.prepareDevice()
    session.run(popart.PyStepIO({x: data}, anchors))
    squares = data * data
    expected = squares.sum(0) if which is None else squares[which]
    np.testing.assert_array_equal(anchors[y], expected)


def test_a_single_batch_has_no_batch_axis(device: popart.DeviceInfo) -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("DOUBLE", [1, 3])
    y = builder.aiOnnx.exp([x])
    session = popart.InferenceSession(builder.getModelProto(), DataFlow(1, [y]), device)
    anchors = session.initAnchorArrays()
    assert (anchors[y].shape, anchors[y].dtype) == ((1, 3), np.float64)


def test_inputs_weights_and_inner_tensors_can_be_anchored(device: popart.DeviceInfo) -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2])
    w = builder.addInitializedInputTensor(np.float32([3, 4]))
    inner = builder.aiOnnx.add([x, w])
    y = builder.aiOnnx.mul([inner, inner])
    session = popart.InferenceSession(
        builder.getModelProto(), DataFlow(1, [x, w, inner, y]), device
    )
    anchors = session.initAnchorArrays()
    session.prepareDevice()
    session.run(popart.PyStepIO({x: np.float32([1, 2])}, anchors))
    assert {id: array.tolist() for id, array in anchors.items()} == {
        x: [1, 2],
        w: [3, 4],
        inner: [4, 6],
        y: [16, 36],
    }


def test_anchors_that_do_not_exist() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2])
    y = builder.aiOnnx.exp([x])
    proto = builder.getModelProto()
    assert error(lambda: popart.InferenceSession(proto, DataFlow(1, ["z"]))) == (
        f"Anchor tensor `z' not in Ir Tensors. The tensors are:\n[{y} {x}]"
    )
    text = error(lambda: popart.InferenceSession(proto, DataFlow(1, [f"Gradient___{y}"])))
    assert text.startswith(
        f"Anchor tensor `Gradient___{y}' not in Ir Tensors. \nInterestingly, `{y}' IS in tensors.\n"
    )
    assert error(lambda: popart.InferenceSession(proto, DataFlow(1, []))) == (
        "User must specify an anchor tensor when doing inference."
    )
