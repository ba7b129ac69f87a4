"""Tests short calls: the Python functions that a call runs, and what a call must not skip."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import popgraph
from popgraph import PopgraphError, ort
from popgraph.support.arrays import Array
from popgraph.training.samples import Order, Samples, source_of

sys.path.append(str(Path(__file__).parent.parent / "benchmarks"))

TEXT = "graph net(x: f32[2, 3]) -> (y: f32[2, 3]) { y = Relu(x) }"
X = np.array([[-1, 2, 3], [4, -5, 6]], np.float32)


@pytest.fixture(autouse=True)
def without_poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Poisoning memory would run functions of its own."""
    monkeypatch.setenv("POPGRAPH_POISON", "0")


@pytest.fixture(scope="module")
def run() -> popgraph.Runner:
    return popgraph.compile(TEXT, quick=False)


def functions(call: Callable[[], object]) -> int:
    """The number of Python functions that a repeated call runs, without its own."""
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    call()
    call()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return count - 1


@pytest.mark.parametrize(
    ("name", "most"), [("relu", 3), ("open mlp", 5)], ids=["one size", "sizes of the call"]
)
def test_a_call_runs_few_functions(name: str, most: int) -> None:
    import calls

    assert functions(calls.by_keyword(name)) <= most


def test_a_call_of_a_session_runs_few_functions() -> None:
    import calls

    assert functions(calls.by_session("relu")) <= 6


def test_a_training_step_runs_few_functions() -> None:
    import calls

    trainer, data = calls.trainer(), calls.data(4)

    def steps(count: int) -> int:
        return functions(lambda: trainer.fit(data, batch=calls.BATCH, steps=count))

    assert steps(3) - steps(2) <= 37


def test_a_step_of_popart_runs_few_functions() -> None:
    import calls

    assert functions(calls.by_popart()) <= 52


def test_times_of_calls_are_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    import calls

    calls.main(["relu", "--seconds", "0.01"])
    _, _, row = capsys.readouterr().out.splitlines()
    name, ours, kernels, *_ = (cell.strip() for cell in row.strip("|").split("|"))
    assert name == "relu" and 0 < float(kernels) < float(ours)


class Counting(Mapping[str, Any]):
    """Inputs that are computed when they are read."""

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        self.arrays, self.reads = arrays, 0

    def __getitem__(self, name: str) -> Any:
        self.reads += 1
        return self.arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.arrays)

    def __len__(self) -> int:
        return len(self.arrays)


def test_a_mapping_is_read_once(run: popgraph.Runner) -> None:
    given = Counting({"x": X.astype(np.float64)})
    np.testing.assert_array_equal(run(given)["y"], np.maximum(X, 0))
    assert given.reads == 1


FITTING: dict[str, Callable[[], Any]] = {
    "strided": lambda: np.repeat(X, 2, axis=1)[:, ::2],
    "Fortran": lambda: np.asfortranarray(X),
    "big-endian": lambda: X.astype(">f4"),
    "unaligned": lambda: (
        np.frombuffer(b" " + X.tobytes(), np.uint8)[1:].view(np.float32).reshape(2, 3)
    ),
    "read-only": lambda: np.broadcast_to(X, X.shape),
    "subclass": lambda: np.ma.array(X),
    "list": X.tolist,
    "f64": lambda: X.astype(np.float64),
    "f16": lambda: X.astype(np.float16),
    "i8": lambda: X.astype(np.int8),
}


@pytest.mark.parametrize("kind", FITTING)
def test_inputs_of_all_kinds_follow_and_precede_plain_ones(kind: str, run: popgraph.Runner) -> None:
    plain = run(x=-X)["y"]
    found = run(x=FITTING[kind]())["y"]
    again = run(x=-X)["y"]
    np.testing.assert_array_equal(found, np.maximum(X, 0))
    np.testing.assert_array_equal(plain, again)
    assert not np.shares_memory(plain, again)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "input 'x' is missing"),
        ({"z": X}, "the model has no input 'z'"),
        ({"x": X, "z": X}, "the model has no input 'z'"),
        ({"x": X[0]}, "input 'x' must have the shape 2x3, not 3$"),
        ({"x": X.T}, "input 'x' must have the shape 2x3, not 3x2"),
        ({"x": X.astype(complex)}, "input 'x' holds complex128, the model requires float32"),
        ({"x": np.array("text")}, "input 'x' must have the shape"),
        ([X], "inputs are given by name, not as list"),
    ],
    ids=str,
)
def test_errors_are_the_same_after_a_call_that_fits(
    given: Any, message: str, run: popgraph.Runner
) -> None:
    run(x=X)
    with pytest.raises(PopgraphError, match=message):
        run(given)
    np.testing.assert_array_equal(run(x=X)["y"], np.maximum(X, 0))


def test_a_session_checks_each_array_after_one_that_fits() -> None:
    session = ort.InferenceSession(_onnx("Relu", "float", ["N", 3]))
    (first,) = session.run(None, {"x": X})
    (again,) = session.run(["y"], {"x": X})
    (rows,) = session.run(None, {"x": X[:1]})
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(rows, first[:1])
    for wrong, message in (
        (X.astype(np.float64), r"Actual: \(tensor\(double\)\)"),
        (X[:, :2], "index: 1 Got: 2 Expected: 3"),
        (X[0], "Invalid rank for input: x Got: 1 Expected: 2"),
    ):
        with pytest.raises(ort.errors.InvalidArgument, match=message):
            session.run(None, {"x": wrong})
    with pytest.raises(ValueError, match="Required inputs"):
        session.run(None, {"z": X})
    np.testing.assert_array_equal(session.run(None, {"x": X.astype(">f4")})[0], first)


def test_strings_of_a_session_are_objects_in_each_call() -> None:
    session = ort.InferenceSession(_onnx("Identity", "string", ["N"]))
    for texts in (["a"], ["a"], ["b", "cd"]):
        (found,) = session.run(None, {"x": np.array(texts, object)})
        assert found.dtype == object and found.tolist() == texts


def _onnx(operator: str, element: str, shape: list[int | str]) -> bytes:
    from onnx import TensorProto, helper

    kind = getattr(TensorProto, element.upper())
    x, y = (helper.make_tensor_value_info(name, kind, shape) for name in "xy")
    graph = helper.make_graph([helper.make_node(operator, ["x"], ["y"])], "net", [x], [y])
    made: bytes = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)]
    ).SerializeToString()
    return made


LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "plain": lambda x: x,
    "Fortran": np.asfortranarray,
    "strided": lambda x: np.repeat(x, 2, axis=0)[::2],
    "big-endian": lambda x: x.astype(">f4"),
    "read-only": lambda x: np.broadcast_to(x, x.shape),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shuffled", [True, False], ids=["shuffled", "in order"])
def test_batches_are_rows_of_arrays_in_any_layout(layout: str, shuffled: bool) -> None:
    rows = np.arange(21, dtype=np.float32).reshape(7, 3)
    source, order = source_of({"x": LAYOUTS[layout](rows)}, ["x"]), Order(3, shuffled, seed=5)
    numbers = np.asarray(order.of_epoch(7, 2))
    found = [batch["x"] for batch in source.epoch(order, 2, 0)]
    assert [len(batch) for batch in found] == [3, 3, 1]
    np.testing.assert_array_equal(np.concatenate(found), rows[numbers])
    rest = [batch["x"] for batch in source.epoch(order, 2, 1)]
    np.testing.assert_array_equal(np.concatenate(rest), rows[numbers[3:]])


def test_batches_in_order_are_views() -> None:
    rows = np.arange(12, dtype=np.float32).reshape(6, 2)
    whole = source_of({"x": rows}, ["x"])
    assert isinstance(whole, Samples)
    for source in (whole, whole.weighed(np.ones(6))):
        for batch in source.epoch(Order(4, shuffled=False), 0, 0):
            assert np.shares_memory(batch["x"], rows)
