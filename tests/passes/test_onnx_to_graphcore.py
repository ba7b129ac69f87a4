"""Tests `onnx-to-graphcore` on ONNX's node tests, old versions and PopART's operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from xdsl.dialects.builtin import ModuleOp, NameLoc

from popgraph.backends.reference import evaluate, first_state
from popgraph.builder.onnx.read import import_model
from popgraph.conformance import cases as conformance
from popgraph.conformance.cases import ROUNDED
from popgraph.dialects import graphcore as gc
from popgraph.dialects.check import check_ir
from popgraph.dialects.onnx.custom import OWN
from popgraph.dialects.onnx.record import record_of
from popgraph.dialects.program import GraphOp
from popgraph.operators.record import lowered_operators, supported_operators
from popgraph.passes.base import Compilation
from popgraph.passes.onnx.infer_shapes import InferShapes
from popgraph.passes.onnx.normalize import Normalize
from popgraph.passes.onnx.to_graphcore import SEED, OnnxToGraphcore
from popgraph.support.arrays import Array
from popgraph.support.errors import ErrorGroup, PassError, TypeMismatchError, UnsupportedError
from tests.sampling import WHOLE, share

GC = "ai.graphcore"


def lowered(
    model: onnx.ModelProto, made: OnnxToGraphcore | None = None
) -> tuple[ModuleOp, Compilation]:
    compilation = Compilation()
    module = import_model(model, compilation.weights)
    for step in (InferShapes(), Normalize(), made or OnnxToGraphcore()):
        step.run(compilation, module)
    return module, compilation


def graph_of(module: ModuleOp) -> GraphOp:
    (graph,) = module.body.block.ops
    assert isinstance(graph, GraphOp)
    return graph


def operations(module: ModuleOp) -> list[str]:
    return [op.name.removeprefix("graphcore.") for op in graph_of(module).block.ops][:-1]


# ONNX's node tests: every case computes the expected values or is refused as unsupported.

RANDOM = ("test_bernoulli", "test_training_dropout")
"""Cases with another random generator; their statistics are tested below."""
COARSE = {"float16": 2e-3, "bfloat16": 2e-2}
"""Tolerances of types whose roundings depend on the order of operations."""
AT_LEAST = 1000
"""Least number of cases that run in `make test-all`."""
SHARES = 8
"""A run takes every eighth case of each operator, `make test-all` all of them."""


def test_node_cases_of_onnx() -> None:
    outcomes: Counter[str] = Counter()
    wrong: list[str] = []
    for case in todays_node_cases("ONNX's node cases", SHARES):
        for inputs, outputs in case.data_sets:
            try:
                actual = run_case(case.model, inputs)
            except UnsupportedError as error:
                outcomes["unsupported"] += 1
                each = error.errors if isinstance(error, ErrorGroup) else (error,)
                assert all(one.where for one in each), f"{case.name}: {error}"
                continue
            difference = compare(case, actual, outputs)
            outcomes["wrong" if difference else "right"] += 1
            if difference:
                wrong.append(f"{case.name}: {difference}")
    print(dict(outcomes))
    assert not wrong, "\n".join(wrong)
    assert outcomes["right"] >= (AT_LEAST if WHOLE else len(all_operators()) // 2)


@cache
def node_cases() -> list[Any]:
    """
    ONNX's node cases, without expanded twins, which `normalize` produces itself.

    Sequences and optionals are left out, too: compilation replaces them by tensors earlier.
    """
    return [
        case
        for case in conformance.node_cases()
        if not case.name.startswith(RANDOM + ROUNDED)
        and "_expanded" not in case.name
        and not holds_containers(case.model)
    ]


def holds_containers(model: onnx.ModelProto) -> bool:
    """Whether sequences or optionals are among the inputs or outputs of a model."""
    infos = (*model.graph.input, *model.graph.output)
    return any(info.type.WhichOneof("value") != "tensor_type" for info in infos)


def todays_node_cases(name: str, of: int) -> Sequence[Any]:
    """Today's share of the cases, with some of each operator."""
    return share(name, node_cases(), of, operator_of)


def operator_of(case: Any) -> tuple[str, str]:
    """Domain and name of the operator of a case."""
    node = case.model.graph.node[0]
    return node.domain, node.op_type


def all_operators() -> set[tuple[str, str]]:
    return {operator_of(case) for case in node_cases()}


class Settled(NamedTuple):
    """
    A case after its structural inputs became initializers, as ONNX and as graphcore operations.
    """

    model: onnx.ModelProto
    given: dict[str, Any]
    """The remaining inputs."""
    module: ModuleOp
    compilation: Compilation


def settled(model: onnx.ModelProto, inputs: Sequence[Any]) -> Settled:
    """Makes inputs initializers, some or all, until the model can be lowered."""
    names = [info.name for info in model.graph.input]
    arrays = {name: as_array(value) for name, value in zip(names, inputs, strict=False)}
    for kept in (len(names), 1, 0):
        fixed = with_initializers(model, {name: arrays[name] for name in names[kept:]})
        try:
            module, compilation = lowered(fixed)
        except UnsupportedError as error:
            if kept == 0 or "must be constant" not in error.what:
                raise
            continue
        return Settled(fixed, {name: arrays[name] for name in names[:kept]}, module, compilation)
    raise AssertionError("the last try returns or raises")


def run_case(model: onnx.ModelProto, inputs: Sequence[Any]) -> dict[str, Array]:
    _, given, module, compilation = settled(model, inputs)
    return evaluate(module, given, compilation.weights)[0]


def as_array(value: Any) -> Any:
    if isinstance(value, TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.generic) else value


def with_initializers(model: onnx.ModelProto, arrays: Mapping[str, Any]) -> onnx.ModelProto:
    """The model with initializers in place of these inputs (where they are tensors)."""
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    tensors = {name: array for name, array in arrays.items() if isinstance(array, np.ndarray)}
    kept = [info for info in fixed.graph.input if info.name not in tensors]
    del fixed.graph.input[:]
    fixed.graph.input.extend(kept)
    for name, array in tensors.items():
        fixed.graph.initializer.append(numpy_helper.from_array(array, name))
    return fixed


def compare(case: Any, actual: Mapping[str, Array], expected: Sequence[Any]) -> str:
    """A description of the difference, or ""."""
    for info, wanted in zip(case.model.graph.output, map(as_array, expected), strict=True):
        found, wanted = actual[info.name], np.asarray(wanted)
        try:
            assert found.dtype == wanted.dtype, f"{found.dtype}, not {wanted.dtype}"
            assert found.shape == wanted.shape, f"{found.shape}, not {wanted.shape}"
            coarse = COARSE.get(found.dtype.name, 0.0)
            wide = [array.astype(np.float64) if array.dtype.kind in "fV" else array
                    for array in (found, wanted)]  # fmt: skip
            rtol, atol = max(case.rtol, coarse), max(case.atol, coarse / 10)
            np.testing.assert_allclose(*wide, rtol=rtol, atol=atol)
        except (AssertionError, ValueError, TypeError) as error:
            return f"{info.name}: {' '.join(str(error).split())[:200]}"
    return ""


def test_inner_graphs_with_special_names_in_functions() -> None:
    """Names that ONNX's text form does not allow, and that must not clash once replaced."""
    case = next(case for case in node_cases() if case.name == "test_flexattention_soft_cap")
    model = onnx.ModelProto.FromString(case.model.SerializeToString())
    inner = next(one.g for one in model.graph.node[0].attribute if one.name == "score_mod")
    names = {"cap": "1/a", "scaled": "1.a", "tanh_out": "_1_a"}
    for node in inner.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    inner.initializer[0].name = names["cap"]
    ((inputs, outputs),) = case.data_sets
    assert not compare(case, run_case(model, inputs), outputs)


# Models by hand


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Array],
    outputs: Sequence[str],
    initializers: Mapping[str, Array] | None = None,
    opset: int = 11,
) -> onnx.ModelProto:
    def info(name: str, array: Array | None = None) -> onnx.ValueInfoProto:
        if array is None:
            return helper.make_empty_tensor_value_info(name)
        number = helper.np_dtype_to_tensor_dtype(array.dtype)
        return helper.make_tensor_value_info(name, number, array.shape)

    graph = helper.make_graph(
        list(nodes),
        "g",
        [info(name, array) for name, array in inputs.items()],
        [info(name) for name in outputs],
        [numpy_helper.from_array(a, n) for n, a in (initializers or {}).items()],
    )
    domains = [helper.make_opsetid("", opset), helper.make_opsetid(GC, 1)]
    return helper.make_model(graph, opset_imports=domains, ir_version=8)


def run(
    op: str,
    inputs: Sequence[Array],
    outputs: int = 1,
    opset: int = 11,
    fixed: int = 0,
    made: OnnxToGraphcore | None = None,
    domain: str = "",
    **attributes: Any,
) -> list[Array]:
    """The outputs of one node; the last `fixed` inputs are initializers."""
    names = [f"i{index}" for index in range(len(inputs))]
    given = dict(zip(names, inputs, strict=True))
    constants = {name: given.pop(name) for name in names[len(names) - fixed :]}
    results = [f"o{index}" for index in range(outputs)]
    node = helper.make_node(op, names, results, name="n", domain=domain, **attributes)
    module, compilation = lowered(model([node], given, results, constants, opset), made)
    check_ir(module)
    found, _ = evaluate(module, given, compilation.weights)
    return [found[name] for name in results]


X = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)


def test_broadcasting_before_opset_7_uses_an_axis() -> None:
    other = np.arange(3, dtype=np.float32)
    (total,) = run("Add", [X, other], opset=6, broadcast=1, axis=1)
    np.testing.assert_array_equal(total, X + other[:, None])
    (total,) = run("Mul", [X, other], opset=6, broadcast=1, axis=-2)
    np.testing.assert_array_equal(total, X * other[:, None])
    last = np.arange(4, dtype=np.float32)
    (total,) = run("Sub", [X, last], opset=6, broadcast=1)
    np.testing.assert_array_equal(total, X - last)
    (larger,) = run("Greater", [X, last], opset=6, broadcast=1)
    np.testing.assert_array_equal(larger, last < X)


def softmax(x: Array) -> Array:
    return np.exp(x) / np.exp(x).sum(-1, keepdims=True)


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_softmax_before_opset_13_flattens_axes(axis: int) -> None:
    rows = int(np.prod(X.shape[:axis]))
    expected = softmax(X.reshape(rows, -1)).reshape(X.shape)
    (found,) = run("Softmax", [X], opset=11, axis=axis)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    (found,) = run("LogSoftmax", [X], opset=11, axis=axis)
    np.testing.assert_allclose(found, np.log(expected), rtol=1e-5)
    (found,) = run("Softmax", [X], opset=13, axis=-1)
    np.testing.assert_allclose(found, softmax(X), rtol=1e-6)


def test_attributes_that_became_inputs() -> None:
    f32, i64 = np.float32, np.int64
    for opset, extra, attributes in (
        (10, [], {"min": -0.5, "max": 0.5}),
        (11, [np.array(-0.5, f32), np.array(0.5, f32)], {}),
    ):
        (found,) = run("Clip", [X, *extra], opset=opset, fixed=len(extra), **attributes)
        np.testing.assert_array_equal(found, np.clip(X, -0.5, 0.5))
    wanted = X[:, 1:3, :-1]
    for opset, extra, attributes in (
        (9, [], {"starts": [1, 0], "ends": [3, -1], "axes": [1, 2]}),
        (10, [np.array(v, i64) for v in ([1, 0], [3, -1], [1, 2])], {}),
    ):
        (found,) = run("Slice", [X, *extra], opset=opset, fixed=len(extra), **attributes)
        np.testing.assert_array_equal(found, wanted)
    pads = [0, 1, 0, 0, 0, 2]
    expected = np.pad(X, ((0, 0), (1, 0), (0, 2)), constant_values=3)
    for opset, extra, attributes in (
        (1, [], {"paddings": pads, "value": 3.0}),
        (2, [], {"pads": pads, "value": 3.0}),
        (11, [np.array(pads, i64), np.array(3, f32)], {}),
    ):
        (found,) = run("Pad", [X, *extra], opset=opset, fixed=len(extra), **attributes)
        np.testing.assert_array_equal(found, expected)
    for opset, extra, attributes in (
        (11, [], {"axes": [-1]}),
        (13, [np.array([-1], i64)], {}),
    ):
        (found,) = run("ReduceSum", [X, *extra], opset=opset, fixed=len(extra), **attributes)
        np.testing.assert_allclose(found, X.sum(-1, keepdims=True), rtol=1e-6)
        (found,) = run("Unsqueeze", [X, *extra], opset=opset, fixed=len(extra), **attributes)
        np.testing.assert_array_equal(found, X[..., None])
        (found,) = run(
            "Squeeze", [X[..., None], *extra], opset=opset, fixed=len(extra), **attributes
        )
        np.testing.assert_array_equal(found, X)
    for opset, extra, attributes in (
        (11, [], {"split": [1, 3]}),
        (13, [np.array([1, 3], i64)], {}),
    ):
        found = run("Split", [X, *extra], 2, opset=opset, fixed=len(extra), axis=2, **attributes)
        np.testing.assert_array_equal(found[1], X[..., 1:])
    for opset, extra, attributes in ((1, [], {"shape": [4, -1]}), (5, [np.array([4, -1])], {})):
        (found,) = run("Reshape", [X, *extra], opset=opset, fixed=len(extra), **attributes)
        np.testing.assert_array_equal(found, X.reshape(4, 6))


def test_cast_by_name_in_opset_1() -> None:
    (found,) = run("Cast", [X], opset=1, to="INT32")
    np.testing.assert_array_equal(found, X.astype(np.int32))
    assert found.dtype == np.int32


@lru_cache
def batch() -> tuple[Array, ...]:
    generator = np.random.default_rng(2)
    x = generator.normal(size=(4, 3, 5)).astype(np.float32)
    scale, bias, mean = (generator.normal(size=3).astype(np.float32) for _ in range(3))
    return x, scale, bias, mean, generator.uniform(0.5, 2, 3).astype(np.float32)


def normalized(mean: Array, variance: Array, epsilon: float = 1e-5) -> Array:
    x, scale, bias, *_ = batch()
    column = (slice(None), None)
    deviation = np.sqrt(variance + epsilon)[column]
    return (x - mean[column]) / deviation * scale[column] + bias[column]


@pytest.mark.parametrize(
    ("opset", "attributes"),
    [(6, {"is_test": 1}), (7, {}), (9, {}), (14, {}), (15, {})],
)
def test_batch_normalization_for_inference(opset: int, attributes: dict[str, int]) -> None:
    (found,) = run("BatchNormalization", batch(), opset=opset, **attributes)
    *_, mean, variance = batch()
    np.testing.assert_allclose(found, normalized(mean, variance), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("opset", "outputs"), [(6, 5), (7, 5), (9, 5), (14, 3), (15, 3)])
def test_batch_normalization_for_training(opset: int, outputs: int) -> None:
    x, _, _, mean, variance = batch()
    attributes = {"training_mode": 1} if opset >= 14 else {}
    found = run(
        "BatchNormalization", batch(), outputs, opset, momentum=0.75, epsilon=0.5, **attributes
    )
    now, spread = x.mean((0, 2)), x.var((0, 2))
    np.testing.assert_allclose(found[0], normalized(now, spread, 0.5), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[1], 0.75 * mean + 0.25 * now, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found[2], 0.75 * variance + 0.25 * spread, rtol=1e-4)
    if outputs == 5:
        np.testing.assert_allclose(found[3], now, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(found[4], spread, rtol=1e-4)


def test_running_statistics_are_updated_variables() -> None:
    """Two nodes may share them: the second update continues from the first."""
    x, scale, bias, mean, variance = batch()
    names = ["s", "b", "m", "v"]
    nodes = [
        helper.make_node(
            "BatchNormalization", [data, *names], [f"{data}{i}" for i in range(5)], momentum=0.5
        )
        for data in ("x", "y")
    ]
    weights = dict(zip(names, (scale, bias, mean, variance), strict=True))
    made = OnnxToGraphcore(weights="variable", training=True)
    inputs = {"x": x, "y": 2 * x}
    module, compilation = lowered(model(nodes, inputs, ["x0", "y0"], weights, 9), made)
    check_ir(module)
    state = None
    now, expected = x.mean((0, 2)), mean
    for _ in range(3):
        _, state = evaluate(module, inputs, compilation.weights, state)
        expected = (0.5 * expected + 0.5 * now) * 0.5 + 0.5 * 2 * now
        np.testing.assert_allclose(state["m"], expected, rtol=1e-4, atol=1e-6)
        np.testing.assert_array_equal(state["s"], scale)


@pytest.mark.parametrize(
    "op", ["Softplus", "Softsign", "Elu", "Selu", "ThresholdedRelu", "HardSigmoid", "HardSwish"]
)
def test_activations_keep_scalars(op: str) -> None:
    """The function bodies of ONNX would return tensors of shape 1."""
    (found,) = run(op, [np.array(0.25, np.float32)], opset=22)
    assert found.shape == ()


def test_softplus_does_not_overflow() -> None:
    x = np.array([-1000, -1, 0, 1, 1000], np.float32)
    (found,) = run("Softplus", [x])
    np.testing.assert_allclose(found, np.logaddexp(0, x.astype(np.float64)), rtol=1e-6)


@pytest.mark.parametrize("opset", [1, 6])
def test_selu_constants_by_version(opset: int) -> None:
    alpha, gamma = (1.67326319, 1.05070102) if opset == 6 else (1.6732, 1.0507)
    x = np.array([-1e-6, -1, 0, 1, 1000], np.float32)
    (found,) = run("Selu", [x], opset=opset)
    expected = gamma * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0).astype(np.float64)))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


# Windows


def test_conv_transpose_with_output_padding() -> None:
    """Elements cut off at the low end are balanced by elements added at the high end."""
    x = np.array([[[1, 2, 3]]], np.float32)
    w = np.array([[[1, 2, 3, 4]]], np.float32)
    options = {"strides": [3], "output_padding": [2]}
    (whole,) = run("ConvTranspose", [x, w], **options)
    np.testing.assert_array_equal(whole.ravel(), [1, 2, 3, 6, 4, 6, 11, 6, 9, 12, 0, 0])
    (found,) = run("ConvTranspose", [x, w], pads=[2, 0], **options)
    np.testing.assert_array_equal(found, whole[..., 2:])


def transposed(x: Array, w: Array, stride: int, dilation: int) -> Array:
    """Every element of x adds a scaled w, before padding is cut off."""
    full = np.zeros((len(x) - 1) * stride + (len(w) - 1) * dilation + 1, x.dtype)
    for place, element in enumerate(x):
        full[place * stride :][: (len(w) - 1) * dilation + 1 : dilation] += element * w
    return full


@given(
    st.sampled_from(["SAME_UPPER", "SAME_LOWER", "NOTSET", "VALID"]),
    st.tuples(*(st.integers(1, high) for high in (4, 4, 5, 2))),
    st.booleans(),
    st.integers(-3, 3),
)
def test_fuzz_conv_transpose_pads(
    mode: str, sizes: tuple[int, int, int, int], given_shape: bool, more: int
) -> None:
    """By ONNX's equations, also for kernels narrower than their stride."""
    count, kernel, stride, dilation = sizes
    x, w = np.arange(1, count + 1, dtype=np.float32), np.arange(2, kernel + 2, dtype=np.float32)
    full = transposed(x, w, stride, dilation)
    attributes: dict[str, Any] = {"strides": [stride], "dilations": [dilation], "auto_pad": mode}
    same = mode.startswith("SAME")
    size = count * stride if same else len(full)
    if given_shape:
        size = max(1, size + more)
        attributes["output_shape"] = [size]
    total = len(full) - size
    start = total // 2 if mode == "SAME_UPPER" else total - total // 2
    if total < 0 and not same:  # nothing to cut off: the missing elements are zeros at the end
        start = 0
    around = np.pad(full, 40)
    expected = around[40 + start :][:size]
    (found,) = run("ConvTranspose", [x[None, None], w[None, None]], **attributes)
    np.testing.assert_array_equal(found[0, 0], expected)


@pytest.mark.parametrize(("mode", "old"), [("SAME_UPPER", 2), ("SAME_LOWER", 1), ("NOTSET", 1)])
def test_conv_transpose_1_pads_at_the_other_end(mode: str, old: int) -> None:
    """ConvTranspose-1 and PopART place the odd element so if `output_shape` is given."""
    x, w = np.arange(1, 4, dtype=np.float32), np.arange(2, 6, dtype=np.float32)
    full = transposed(x, w, 2, 1)
    for opset, start in [(10, old), (11, 3 - old)]:
        (found,) = run(
            "ConvTranspose",
            [x[None, None], w[None, None]],
            opset=opset,
            strides=[2],
            auto_pad=mode,
            output_shape=[5],
        )
        np.testing.assert_array_equal(found.ravel(), full[start:][:5])


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("opset", [10, 11, 17, 22])
def test_pools_have_no_windows_past_the_end(op: str, opset: int) -> None:
    """Inference before version 22 counts one window more, but later nodes see the true shape."""
    nodes = [
        helper.make_node(op, ["x"], ["p"], kernel_shape=[1], strides=[2], ceil_mode=1),
        helper.make_node("MatMul", ["p", "w"], ["y"]),
    ]
    given = {"x": np.array([[[1, 2, 3, 4]]], np.float32)}
    proto = model(nodes, given, ["y"], {"w": np.array([[1], [10]], np.float32)}, opset)
    module, compilation = lowered(proto)
    outputs, _ = evaluate(module, given, compilation.weights)
    np.testing.assert_array_equal(outputs["y"], [[[31]]])


# Dropout and randomness


def dropout_model(opset: int = 10) -> tuple[onnx.ModelProto, Array]:
    x = np.ones((50, 50), np.float32)
    nodes = [
        helper.make_node("Dropout", ["x"], ["a", "ma"], ratio=0.25),
        helper.make_node("Dropout", ["x"], ["b"], ratio=0.25),
    ]
    return model(nodes, {"x": x}, ["a", "ma", "b"], opset=opset), x


def test_dropout_is_the_identity_in_inference() -> None:
    proto, x = dropout_model()
    module, compilation = lowered(proto)
    outputs, state = evaluate(module, {"x": x}, compilation.weights)
    assert not state
    np.testing.assert_array_equal(outputs["a"], x)
    assert outputs["ma"].dtype == np.bool_ and outputs["ma"].all()


def test_dropout_in_training_draws_from_the_seed_of_the_step() -> None:
    proto, x = dropout_model()
    made = OnnxToGraphcore(training=True)
    module, compilation = lowered(proto, made)
    check_ir(module)
    first, state = evaluate(module, {"x": x}, compilation.weights)
    second, later = evaluate(module, {"x": x}, compilation.weights, state)
    again, _ = evaluate(module, {"x": x}, compilation.weights, {SEED: np.zeros(2, np.int64)})
    assert (state[SEED].tolist(), later[SEED].tolist()) == ([0, 1], [0, 2])
    np.testing.assert_array_equal(first["a"], again["a"])
    assert 0.2 < (first["a"] == 0).mean() < 0.3
    np.testing.assert_allclose(first["a"][first["ma"]], 1 / 0.75, rtol=1e-6)
    assert not first["a"][~first["ma"]].any()
    for other in (first["b"], second["a"]):  # other nodes and other steps have other masks
        assert 0.2 < ((first["a"] == 0) != (other == 0)).mean() < 0.6


def test_statistics_of_random_operators() -> None:
    nodes = [
        helper.make_node("RandomNormal", [], ["n"], shape=[100, 100], mean=3.0, scale=2.0),
        helper.make_node("RandomUniformLike", ["x"], ["u"], low=-1.0, high=3.0),
        helper.make_node("Bernoulli", ["p"], ["b"]),
    ]
    inputs = {"x": np.zeros((100, 100)), "p": np.full((100, 100), 0.3, np.float32)}
    module, compilation = lowered(model(nodes, inputs, ["n", "u", "b"], opset=15))
    outputs, _ = evaluate(module, inputs, compilation.weights)
    assert outputs["n"].dtype == np.float32 and outputs["u"].dtype == np.float64
    assert abs(outputs["n"].mean() - 3) < 0.1 and abs(outputs["n"].std() - 2) < 0.1
    assert outputs["u"].min() < -0.99 and 2.99 < outputs["u"].max() < 3
    assert abs(outputs["b"].mean() - 0.3) < 0.02


@pytest.mark.parametrize("op", ["RandomNormal", "RandomUniform"])
def test_random_nodes_with_equal_seeds_draw_the_same(op: str) -> None:
    """New numbers in every step; nodes without a seed follow the seed of the session."""
    seeds = {"a": 1.0, "b": 1.0, "c": 1.5, "d": 0.0, "e": None, "f": None}
    nodes = [
        helper.make_node(op, [], [name], shape=[64], **({} if seed is None else {"seed": seed}))
        for name, seed in seeds.items()
    ]
    module, compilation = lowered(model(nodes, {}, list(seeds)))
    check_ir(module)
    runs = [
        evaluate(module, {}, compilation.weights, {SEED: np.array(state)})[0]
        for state in ([0, 0], [7, 0], [0, 1])
    ]
    first, other_seed, next_step = runs
    for run_ in runs:
        np.testing.assert_array_equal(run_["a"], run_["b"])
    for name in "acd":
        np.testing.assert_array_equal(first[name], other_seed[name])
        assert not np.intersect1d(first[name], next_step[name]).size
    different = [first[name] for name in "acdef"] + [other_seed["e"], next_step["e"]]
    assert np.unique(np.concatenate(different)).size == 64 * len(different)
    assert 0 not in np.concatenate(different)


# Operators of PopART


def test_losses_of_popart() -> None:
    probabilities = softmax(X)
    labels = np.array([[1, 0, 3], [2, 2, 0]], np.int32)
    picked = np.take_along_axis(probabilities, labels[..., None], -1)[..., 0]
    for options, expected in (
        ({}, -np.log(picked).mean()),
        ({"reduction": "Sum"}, -np.log(picked).sum()),
        ({"reduction": "NoReduction"}, -np.log(picked)),
        ({"ignoreIndex": 2}, -np.log(picked[labels != 2]).mean()),
    ):
        (found,) = run("Nll", [probabilities, labels], domain=GC, **options)
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    logs = np.log(probabilities)
    (found,) = run("Nll", [logs, labels], domain=GC, inputIsLogProbability=1)
    np.testing.assert_allclose(found, -np.log(picked).mean(), rtol=1e-5)
    (found,) = run("L1", [X], domain=GC, **{"lambda": 0.5, "reduction": "Sum"})
    np.testing.assert_allclose(found, 0.5 * np.abs(X).sum(), rtol=1e-5)
    (found,) = run("IdentityLoss", [X], domain=GC, reduction="Mean")
    np.testing.assert_allclose(found, X.mean(), rtol=1e-4)
    (found,) = run("Scale", [X], domain=GC, scale=3.0)
    np.testing.assert_array_equal(found, 3 * X)
    (found,) = run("Detach", [X], domain=GC)
    np.testing.assert_array_equal(found, X)
    with pytest.raises(TypeMismatchError, match="unknown reduction 'most'"):
        run("L1", [X], domain=GC, reduction="most")


# Weights, outputs and errors


def test_shape_computations_are_folded() -> None:
    """Reshape(x, Concat(Slice(Shape(x)), [-1])), as exporters write it, becomes one reshape."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"], axis=0),
        helper.make_node("Unsqueeze", ["n"], ["n1"], axes=[0]),
        helper.make_node("Concat", ["n1", "rest"], ["to"], axis=0),
        helper.make_node("Reshape", ["x", "to"], ["y"], name="last"),
    ]
    constants = {"zero": np.array(0), "rest": np.array([-1])}
    module, compilation = lowered(model(nodes, {"x": X}, ["y"], constants))
    assert operations(module) == ["reshape"]
    (reshape, _) = graph_of(module).block.ops
    assert isinstance(reshape.location, NameLoc) and reshape.location.desc.data == "last"
    outputs, _ = evaluate(module, {"x": X}, compilation.weights)
    np.testing.assert_array_equal(outputs["y"], X.reshape(2, 12))


def linear() -> onnx.ModelProto:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Add", ["p", "b"], ["sum"]),
        helper.make_node("Relu", ["sum"], ["y"]),
    ]
    weights = {
        "w": np.ones((4, 5), np.float32),
        "b": np.ones(5, np.float32),
        "unused": np.ones(3, np.float32),
    }
    return model(nodes, {"x": X[0]}, ["y"], weights)


def test_weights_are_constants_or_variables() -> None:
    constant, _ = lowered(linear())
    assert operations(constant).count("pg.constant") == 2
    variable, compilation = lowered(linear(), OnnxToGraphcore(weights="variable"))
    assert [op.variable.text for op in graph_of(variable).variables()] == ["w", "b"]
    _, state = evaluate(variable, {"x": X[0]}, compilation.weights)
    assert set(state) == {"w", "b"}


def test_structural_constants_are_not_variables() -> None:
    limits = {"low": np.array(-1, np.float32), "to": np.array([6, 4])}
    nodes = [
        helper.make_node("Reshape", ["x", "to"], ["r"]),
        helper.make_node("Pad", ["r", "pads", "low"], ["y"]),
    ]
    constants = {**limits, "pads": np.array([0, 0, 1, 1])}
    proto = model(nodes, {"x": X}, ["y"], constants)
    module, compilation = lowered(proto, OnnxToGraphcore(weights="variable"))
    state = first_state(module, compilation.weights)
    assert list(state) == ["low"]  # The fill value of Pad is data, so it may be a variable.
    outputs, _ = evaluate(module, {"x": X}, compilation.weights, state)
    assert (outputs["y"][-1] == -1).all()


def test_extra_outputs_are_inner_tensors_inputs_and_weights() -> None:
    made = OnnxToGraphcore(extra_outputs=("sum", "x", "w", "y"))
    module, compilation = lowered(linear(), made)
    outputs, _ = evaluate(module, {"x": X[0]}, compilation.weights)
    assert list(outputs) == ["y", "sum", "x", "w"]
    np.testing.assert_allclose(outputs["sum"], X[0] @ np.ones((4, 5)) + 1, rtol=1e-5)
    with pytest.raises(PassError, match="no tensor 'nobody'"):
        lowered(linear(), OnnxToGraphcore(extra_outputs=("nobody",)))
    with pytest.raises(PassError, match="unknown value 'frozen' of weights"):
        lowered(linear(), OnnxToGraphcore(weights="frozen"))


def test_a_known_condition_chooses_a_branch() -> None:
    branches = {
        name: helper.make_graph(
            [helper.make_node(op, ["x"], [f"{name}_y"])],
            name,
            [],
            [helper.make_empty_tensor_value_info(f"{name}_y")],
        )
        for name, op in (("then_branch", "Exp"), ("else_branch", "Neg"))
    }
    node = helper.make_node("If", ["c"], ["y"], name="choice", **branches)
    for choice, expected in ((True, np.exp(X)), (False, -X)):
        proto = model([node], {"x": X}, ["y"], {"c": np.array(choice)})
        module, compilation = lowered(proto)
        outputs, _ = evaluate(module, {"x": X}, compilation.weights)
        np.testing.assert_allclose(outputs["y"], expected, rtol=1e-6)


def test_errors_of_lowering_name_the_node() -> None:
    with pytest.raises(UnsupportedError, match="operator NonZero-9 is not supported") as caught:
        run("NonZero", [X])
    assert caught.value.where == "node 'n' (NonZero-9)"
    with pytest.raises(UnsupportedError, match="shape of Reshape must be constant") as caught:
        run("Reshape", [X, np.array([24])])
    assert "node 'n' (Reshape-5)" in str(caught.value) and "initializer" in caught.value.hint
    with pytest.raises(UnsupportedError, match=r"ai.graphcore.Mystery-1 is not supported"):
        run("Mystery", [X], domain=GC)


def test_every_supported_operator_has_versions() -> None:
    table = supported_operators()
    assert set(table) == {key for key in lowered_operators() if key[0] != OWN}
    assert table["", "Conv"][0] == 1 and len(table["", "Conv"]) >= 3
    assert table[GC, "Nll"] == (1,)
    assert all(versions for versions in table.values())


def test_a_wrong_lowering_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that ONNX's cases can fail: a Sub with swapped operands."""
    record = record_of("", "Sub")
    monkeypatch.setattr(record, "lower", lambda node: gc.SubOp(node[1], node[0]))
    case = next(case for case in node_cases() if case.name == "test_sub")
    inputs, outputs = case.data_sets[0]
    assert compare(case, run_case(case.model, inputs), outputs)


# Attributes beyond the range of f16

UNITS = [
    ("Elu", {"alpha": 1e30}),
    ("Celu", {"alpha": 2.0}),
    ("Celu", {"alpha": 1e30}),
    ("Celu", {"alpha": 3e38}),
    ("Celu", {"alpha": 1e-30}),
    ("Selu", {"alpha": 1e30, "gamma": 1e-30}),
]


@pytest.mark.parametrize("kind", [np.float16, np.float32], ids=["f16", "f32"])
@pytest.mark.parametrize(("op", "attributes"), UNITS)
def test_activations_with_extreme_attributes(
    op: str, attributes: dict[str, float], kind: type
) -> None:
    """Results are finite wherever the exact values are, to the precision of the type."""
    x = np.array([0, -0.0, 6e-8, -6e-8, 1e-3, -1e-3, 1, -1, 100, -100, 6e4, -6e4]).astype(kind)
    given = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
    result = helper.make_empty_tensor_value_info("y")
    node = helper.make_node(op, ["x"], ["y"], **attributes)
    graph = helper.make_graph([node], "g", [given], [result])
    opset = helper.make_opsetid("", 17)
    module, compilation = lowered(helper.make_model(graph, opset_imports=[opset], ir_version=8))
    alpha, wide = attributes["alpha"], x.astype(np.float64)
    pace = alpha if op == "Celu" else 1.0
    bent = alpha * np.expm1(np.minimum(wide, 0) / pace)
    exact = attributes.get("gamma", 1.0) * np.where(wide > 0, wide, bent)
    with np.errstate(over="ignore"):
        wanted = exact.astype(kind)
    found = evaluate(module, {"x": x}, compilation.weights)[0]["y"]
    assert found.dtype == kind
    np.testing.assert_allclose(found, wanted, rtol=4 * np.finfo(kind).eps)
