"""Tests the lowering of LSTM, GRU and RNN against NumPy and onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import popgraph
from popgraph.backends.reference import evaluate
from popgraph.dialects.graphcore import MatMulOp, TransposeOp
from popgraph.dialects.graphcore.control import LoopOp
from popgraph.passes.onnx.to_graphcore import OnnxToGraphcore
from popgraph.passes.optimizer_spec import SGD, Scalar
from popgraph.passes.options import Options, Training
from popgraph.support.arrays import Array
from popgraph.support.errors import TypeMismatchError
from tests.checking import check_ir
from tests.passes.test_onnx_to_graphcore import lowered
from tests.recurrences import (
    ACTIVATIONS,
    DEFAULTS,
    GATES,
    Recurrence,
    by_hand,
    recurrences,
    spelled_out,
)
from tests.sampling import examples

WEIGHTS = ("w", "r", "b", "p")
TOLERANCE = {"float16": 1e-2, "bfloat16": 6e-2, "float32": 2e-5, "float64": 1e-12}


def found(case: Recurrence, fixed: tuple[str, ...] = WEIGHTS, **options: Any) -> dict[str, Array]:
    """The outputs of the lowered node."""
    module, compilation = lowered(case.model(fixed), OnnxToGraphcore(**options))
    check_ir(module)
    arrays = {name: array for name, array in case.arrays().items() if name not in fixed}
    outputs, _ = evaluate(module, arrays, compilation.weights)
    assert all(array.dtype == np.dtype(case.dtype) for array in outputs.values())
    return outputs


def assert_close(
    outputs: Mapping[str, Array], wanted: Mapping[str, Array], tolerance: float
) -> None:
    assert outputs.keys() == wanted.keys()
    for name, array in wanted.items():
        error = np.abs(outputs[name].astype(np.float64) - array) / (1 + np.abs(array))
        assert outputs[name].shape == array.shape
        assert error.max(initial=0) <= tolerance, f"{name}: {outputs[name]}, not {array}"


def assert_equations(case: Recurrence, fixed: bool = True) -> None:
    outputs = found(case, WEIGHTS if fixed else ())
    assert_close(outputs, by_hand(case), TOLERANCE["float64"])


@given(recurrences(dtype="float64"), st.booleans())
def test_recurrent_layers_are_their_equations(case: Recurrence, fixed: bool) -> None:
    assert_equations(case, fixed)


@given(recurrences())
@settings(deadline=None)
def test_recurrent_layers_are_those_of_onnxruntime(case: Recurrence) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="the oracle for recurrent layers")
    plain = replace(case, layout=0)  # onnxruntime supports layout 0 only
    model = spelled_out(plain).model().SerializeToString()
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    expected = dict(zip(names, session.run(names, plain.arrays()), strict=True))
    clips = case.op == "LSTM" and case.clip is not None
    if clips:  # onnxruntime clips the input of other activations than ONNX says: see `by_hand`
        assert_close(expected, by_hand(plain, clips_cell=False), 1e-4)
    else:
        assert_close(found(plain), expected, 1e-4)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("op", sorted(GATES))
def test_recurrent_states_have_the_type_of_the_model(op: str, dtype: str) -> None:
    given = frozenset({"b", "initial_h", *(("initial_c", "p") if op == "LSTM" else ())})
    case = Recurrence(op, steps=12, features=8, hidden=8, given=given, dtype=dtype)
    case = replace(case, direction="bidirectional", lengths=(12, 5, 9))
    assert_close(found(case), by_hand(case), TOLERANCE[dtype])


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
@pytest.mark.parametrize("op", sorted(GATES))
def test_default_parameters_of_recurrent_activations(op: str, name: str) -> None:
    case = Recurrence(op, dtype="float64", activations=(name,) * len(DEFAULTS[op]))
    if name == "ScaledTanh":  # ONNX has no operator with defaults for it
        with pytest.raises(TypeMismatchError, match="no default parameters"):
            found(case)
        case = replace(case, alpha=(0.5,) * 3, beta=(0.25,) * 3)
    assert_close(found(case), by_hand(case), TOLERANCE["float64"])


@pytest.mark.parametrize("opset", [1, 3, 7, 14, 22])
@pytest.mark.parametrize("op", sorted(GATES))
def test_recurrent_layers_of_old_versions(op: str, opset: int) -> None:
    case = Recurrence(op, direction="reverse", lengths=(2, 4, 1), opset=opset)
    assert_close(found(case), by_hand(case), TOLERANCE["float32"])


def test_gru_1_accepts_its_misspelt_default() -> None:
    case = Recurrence("GRU", opset=1, activations=("Sigmoid", "Tanh"))
    model = case.model(WEIGHTS)
    names = [attribute.name for attribute in model.graph.node[0].attribute]
    del model.graph.node[0].attribute[names.index("direction")]
    assert popgraph.compile(model, backend="reference")


def test_recurrent_layers_on_empty_sequences() -> None:
    given = frozenset({"initial_h", "initial_c"})
    case = Recurrence("LSTM", lengths=(0, 4, 9), given=given, dtype="float64")
    outputs = found(case)
    np.testing.assert_array_equal(outputs["y_h"][0, 0], case.arrays()["initial_h"][0, 0])
    assert not outputs["y"][:, 0, 0].any()
    assert_close(outputs, by_hand(case), TOLERANCE["float64"])
    empty = replace(case, steps=0, lengths=None)
    assert_close(found(empty), by_hand(empty), 0)


def loops(case: Recurrence, fixed: tuple[str, ...] = WEIGHTS, **options: Any) -> list[LoopOp]:
    module, _ = lowered(case.model(fixed), OnnxToGraphcore(**options))
    return [op for op in module.walk() if isinstance(op, LoopOp)]


@pytest.mark.parametrize("op", sorted(GATES))
def test_recurrent_loops_have_constants_and_one_matmul(op: str) -> None:
    given = frozenset({"b", "p"} if op == "LSTM" else {"b"})
    case = Recurrence(op, given=given, direction="bidirectional", variant=True)
    for loop in loops(case):
        assert not loop.captured
        assert len(loop.scanned) == 1
        inner = [type(each) for each in loop.block.ops]
        assert inner.count(MatMulOp) == 1
        assert TransposeOp not in inner
    for loop in loops(case, weights="variable", training=True):
        assert len(loop.captured) == {"RNN": 1, "GRU": 2, "LSTM": 4}[op]


def test_full_sequence_lengths_need_no_mask() -> None:
    case = Recurrence("RNN", lengths=(4, 4, 7))
    (plain,) = loops(replace(case, lengths=None))
    (loop,) = loops(case, (*WEIGHTS, "sequence_lens"))
    assert [each.name for each in loop.block.ops] == [each.name for each in plain.block.ops]
    (masked,) = loops(replace(case, lengths=(4, 4, 3)), (*WEIGHTS, "sequence_lens"))
    assert not masked.captured
    assert len(list(masked.block.ops)) > len(list(loop.block.ops))


def test_absent_recurrent_outputs_are_not_stacked() -> None:
    (loop,) = loops(Recurrence("LSTM", wanted=(False, True, False)))
    assert not loop.stacked


# PopART's


def popart_arrays(case: Recurrence) -> dict[str, Array]:
    """The inputs of an ONNX node in PopART's layout: gates f, i, c, o; matrices transposed."""
    arrays = case.arrays()

    def gates(name: str) -> Array:
        parts = np.split(arrays[name][0], 4)
        return np.stack([parts[place].T for place in (2, 0, 3, 1)])

    made = {"x": arrays["x"], "weights": np.concatenate([gates("w"), gates("r")], axis=1)}
    if "b" in arrays:
        wb, rb = np.split(arrays["b"][0], 2)
        parts = np.split(wb + rb, 4)
        made["bias"] = np.stack([parts[place] for place in (2, 0, 3, 1)])
    if "initial_h" in arrays:
        made["state"] = np.concatenate([arrays["initial_h"], arrays["initial_c"]])
    return made


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("full", [0, 1])
@pytest.mark.parametrize(
    "names", [frozenset(), frozenset({"b"}), frozenset({"b", "initial_h", "initial_c"})]
)
def test_lstm_of_popart(names: frozenset[str], full: int, constant: bool) -> None:
    case = Recurrence("LSTM", given=names)
    arrays = popart_arrays(case)
    builder, ids, inputs = popgraph.Builder(), [], {}
    for name, array in arrays.items():
        if constant and name in ("weights", "bias"):
            ids.append(builder.aiOnnx.constant(array))
        else:
            ids.append(builder.addInputTensor(popgraph.TensorInfo("FLOAT", array.shape)))
            inputs[ids[-1]] = array
    outputs = builder.aiGraphcore.lstm(ids, outputFullSequence=full)
    for output in outputs:
        builder.addOutputTensor(output)
    assert builder.getTensorShape(outputs[0]) == [4, 3, 3][1 - full :]
    assert builder.getTensorShape(outputs[1]) == [3, 3]
    run = popgraph.compile(builder.getModelProto(), backend="reference")
    results = run(inputs)
    wanted = by_hand(case)
    expected = {
        outputs[0]: wanted["y"][:, 0] if full else wanted["y_h"][0],
        outputs[1]: wanted["y_c"][0],
    }
    assert_close(results, expected, TOLERANCE["float32"])


@given(recurrences(dtype="float64"), st.booleans())
@settings(max_examples=examples(25, slow=20), deadline=None)
def test_later_passes_keep_recurrent_layers(case: Recurrence, fixed: bool) -> None:
    held = WEIGHTS if fixed else ()
    run = popgraph.compile(case.model(held), backend="reference")
    arrays = {name: array for name, array in case.arrays().items() if name not in held}
    assert_close(run(arrays), by_hand(case), TOLERANCE["float64"])


# Training

SLOPE = 1e-5
"""Step of central differences."""


def with_loss(case: Recurrence) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """The node with its weights, and a weighted sum of all outputs as the loss."""
    model, rng = case.model(WEIGHTS), np.random.default_rng(case.seed)
    factors = {name: rng.normal(size=array.shape) for name, array in by_hand(case).items()}
    nodes, terms = model.graph.node, []
    for name, array in factors.items():
        value = numpy_helper.from_array(array)
        nodes.append(helper.make_node("Constant", [], [f"{name}_factor"], value=value))
        nodes.append(helper.make_node("Mul", [name, f"{name}_factor"], [f"{name}_scaled"]))
        nodes.append(
            helper.make_node("ReduceSum", [f"{name}_scaled"], [f"{name}_term"], keepdims=0)
        )
        terms.append(f"{name}_term")
    nodes.append(helper.make_node("Sum", terms, ["loss"]))
    model.graph.output.append(helper.make_tensor_value_info("loss", TensorProto.DOUBLE, []))
    return model, factors


def assert_trains(case: Recurrence, backend: str, steps: int = 1) -> None:
    """Gradients are slopes of the equations, and weights follow them step by step."""
    model, factors = with_loss(case)
    arrays = case.arrays()
    floats = sorted(arrays.keys() - {"sequence_lens"})
    training = Training("loss", SGD(Scalar(0.125)), tuple(floats))
    options = Options(training=training, extra_outputs=tuple(floats))
    inputs = {name: array for name, array in arrays.items() if name not in WEIGHTS}
    program = popgraph.compile(model, backend=backend, options=options).program(inputs)

    def loss(given: Mapping[str, Array]) -> float:
        outputs = by_hand(case, given=given)
        return float(sum(np.sum(outputs[name] * factor) for name, factor in factors.items()))

    for _ in range(steps):
        found = program.run(inputs)
        np.testing.assert_allclose(found["loss"], loss(arrays), rtol=1e-9, atol=1e-9)
        for name in floats:
            assert_slope(case, arrays, name, found[f"Gradient___{name}"], loss)
        for name in arrays.keys() & set(WEIGHTS):
            arrays[name] = arrays[name] - 0.125 * found[f"Gradient___{name}"]
            np.testing.assert_allclose(program.read(name), arrays[name], rtol=1e-9, atol=1e-9)


def assert_slope(
    case: Recurrence,
    arrays: Mapping[str, Array],
    name: str,
    gradient: Array,
    loss: Callable[[Mapping[str, Array]], float],
) -> None:
    """Compares in a random direction, unless the loss has a kink there."""
    value = arrays[name]
    direction = np.random.default_rng(case.seed + 1).uniform(-1, 1, value.shape)
    ends = [loss({**arrays, name: value + side * SLOPE * direction}) for side in (1, 0, -1)]
    right, left = ((ends[at] - ends[at + 1]) / SLOPE for at in (0, 1))
    scale = max(1.0, abs(right), abs(left))
    if abs(right - left) <= 1e-3 * scale:
        slope = float(np.sum(gradient * direction))
        assert abs(slope - (right + left) / 2) <= 1e-3 * scale, f"{name}: {slope}, not {right}"


@given(recurrences(dtype="float64").map(lambda case: replace(case, exact=False)))
def test_recurrent_gradients_are_slopes(case: Recurrence) -> None:
    assert_trains(case, "reference")


@given(recurrences(dtype="float64").map(lambda case: replace(case, exact=False)))
@settings(max_examples=examples(10, slow=50))
def test_recurrent_layers_train_in_c(case: Recurrence) -> None:
    assert_trains(case, "c", steps=3)
