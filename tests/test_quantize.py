"""Tests `popgraph.quantize`: results in three runtimes, accuracy, calibration and mistakes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from rich.console import Console
from typer.testing import CliRunner

import popgraph
from popgraph.cli import app
from popgraph.compiler import load
from popgraph.quantization.grids import Grid
from popgraph.quantization.histograms import Histogram, range_by
from popgraph.quantization.preparation import prepared
from popgraph.quantization.sites import Selection, label, sites_of
from popgraph.quantization.weights import in_blocks
from popgraph.support.arrays import Array

NET = """
opset ai.onnx 21

graph net(x: f32[N, 1, 8, 8]) -> (y: f32[N, 10]) {
    weight w1: f32[8, 1, 3, 3] = he_normal
    weight b1: f32[8] = normal(0, 0.1)
    weight w2: f32[8, 8, 3, 3] = he_normal
    weight w3: f32[10, 256] = normal(0, 0.06)
    weight b3: f32[10] = normal(0, 0.1)
    a = Relu(Conv(x, w1, b1, pads=[1, 1, 1, 1]))
    b = Relu(Conv(a, w2, pads=[1, 1, 1, 1]) + a)
    p = MaxPool(b, kernel_shape=[2, 2], strides=[2, 2])
    c = Concat(p, Conv(p, w2, pads=[1, 1, 1, 1]), axis=1)
    y = Gemm(Flatten(c), w3, b3, transB=1)
}
"""
"""Convolutions, a residual sum, a pool and a concatenation before a classifier."""

MLP = """
opset ai.onnx 21

graph mlp(x: f32[N, 48]) -> (y: f32[N, 7]) {
    weight w1: f32[48, 40] = glorot_uniform
    weight b1: f32[40] = normal(0, 0.1)
    weight w2: f32[7, 40] = glorot_uniform
    weight b2: f32[7] = normal(0, 0.1)
    h = Relu(x @ w1 + b1)
    y = Gemm(h, w2, b2, transB=1)
}
"""


def samples(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


IMAGES, ROWS = samples(12, 1, 8, 8), samples(12, 48)


def quantized(model: Any, data: Any = None, **named: Any) -> Any:
    """`popgraph.quantize` without a C compiler."""
    return popgraph.quantize(model, data, backend="reference", **named)


def in_onnxruntime(model: onnx.ModelProto, x: Array) -> Array:
    """The first output, without the fusions that round activations of 16 bits to 8."""
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.log_severity_level = 3
    providers = ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=providers)
    return np.asarray(session.run(None, {"x": x})[0])


def in_popgraph(model: Any, x: Array, backend: str = "reference") -> Array:
    (found,) = popgraph.compile(model, backend=backend)(x=x).values()
    return found


def operators(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


# --- the same results everywhere -----------------------------------------------------------------

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "static": (NET, {}),
    "static, int8": (NET, {"activation_type": "int8", "activation_symmetric": True}),
    "static, one scale": (MLP, {"per_channel": False, "reduce_range": True}),
    "static, zero points": (MLP, {"weight_type": "uint8", "weight_symmetric": False}),
    "static, 16 bits": (MLP, {"activation_type": "uint16"}),
    "dynamic": (MLP, {"mode": "dynamic"}),
    "dynamic, convolutions": (NET, {"mode": "dynamic"}),
    "dynamic, zero points": (
        MLP,
        {"mode": "dynamic", "weight_type": "uint8", "weight_symmetric": False},
    ),
    "4 bits": (MLP, {"mode": "weight_only"}),
    "4 bits, zero points": (MLP, {"mode": "weight_only", "weight_symmetric": False}),
    "4 bits, standard": (MLP, {"mode": "weight_only", "quant_format": "QDQ"}),
    "4 bits, standard, zero points": (
        MLP,
        {"mode": "weight_only", "quant_format": "QDQ", "weight_symmetric": False},
    ),
    "8 bits in blocks": (MLP, {"mode": "weight_only", "bits": 8, "block_size": 16}),
}


@pytest.mark.budget(60)
@pytest.mark.parametrize("variant", VARIANTS)
def test_runtimes_agree(variant: str) -> None:
    """Integer sums are exact: results differ by the rounding of floats, rarely by one step."""
    text, named = VARIANTS[variant]
    x = IMAGES if text is NET else ROWS
    made = quantized(text, x, **named)
    onnx.checker.check_model(made.model, full_check=True)
    found, plain = in_popgraph(made.model, x), in_popgraph(text, x)
    step = 2e-3 * float(np.abs(plain).max())
    assert np.abs(found - in_onnxruntime(made.model, x)).max() <= step
    # Rounding itself costs more than any difference between runtimes.
    error = float(np.abs(found - plain).max())
    assert 1e-5 < error < (0.3 if "4 bits" in variant else 0.05) * float(np.abs(plain).max())
    assert made.report.outputs["y"].largest == pytest.approx(error, rel=1e-5)


@pytest.mark.budget(60)
@pytest.mark.parametrize("variant", ["static", "dynamic", "4 bits", "4 bits, standard"])
def test_compiled_programs_compute_the_same(variant: str) -> None:
    """Each mode in C."""
    text, named = VARIANTS[variant]
    x = IMAGES if text is NET else ROWS
    model = quantized(text, x, measure_errors=False, **named).model
    found, expected = (in_popgraph(model, x, backend) for backend in ("c", "reference"))
    np.testing.assert_allclose(found, expected, atol=2e-3 * float(np.abs(expected).max()))


ROWS_OF_TOKENS = """
opset 21
graph tokens(x: f32[4, 6, 8]) -> (y: f32[4, 6, 8]) {
    weight w: f32[8, 8] = glorot_uniform
    weight v: f32[8, 8] = glorot_uniform
    weight b: f32[8] = normal(0, 0.1)
    weight g: f32[8] = ones
    q = b + x @ w
    y = LayerNormalization(Softmax(q @ Transpose(q, perm=[0, 2, 1])) @ x @ v + b, g)
}
"""


@pytest.mark.parametrize(
    ("text", "data", "expected"),
    [
        (NET, IMAGES, {"QLinearConv": 3, "QGemm": 1}),
        (ROWS_OF_TOKENS, samples(4, 6, 8), {"QGemm": 2, "MatMulIntegerToFloat": 1}),
    ],
)
def test_every_layer_has_an_integer_kernel_in_onnxruntime(
    text: str, data: Array, expected: dict[str, int], tmp_path: Path
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.log_severity_level = 3
    model = quantized(text, data, measure_errors=False).model
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    (found,) = session.run(None, {"x": data})
    np.testing.assert_allclose(found, in_popgraph(model, data), atol=1e-5)
    kernels = operators(onnx.load(tmp_path / "optimized.onnx"))
    assert {"Conv", "FusedConv", "Gemm", "MatMul"}.isdisjoint(kernels)
    assert {name: kernels.count(name) for name in expected} == expected


# --- accuracy ------------------------------------------------------------------------------------


WIDE = """
opset 21
graph wide(x: f32[N, 64]) -> (y: f32[N, 10]) {
    weight w1: f32[64, 300] = normal(0, 0.15)
    weight b1: f32[300] = normal(0, 0.3)
    weight w2: f32[10, 300] = zeros
    weight b2: f32[10] = zeros
    h = Relu(x @ w1 + b1)
    y = Gemm(h, w2, b2, transB=1)
}
"""


@cache
def digits() -> tuple[onnx.ModelProto, Array, Array]:
    """A trained classifier of 8x8 digits, with images and labels that it was not trained on."""
    datasets = pytest.importorskip("sklearn.datasets")
    images, labels = datasets.load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32)
    options = popgraph.Options(extra_outputs=("h",))
    features = popgraph.compile(WIDE, backend="reference", options=options)(x=images)["h"]
    ones = np.hstack([features, np.ones((len(images), 1))]).astype(np.float64)
    known, targets = ones[:1200], np.eye(10)[labels[:1200]] * 2 - 1
    # Ridge regression of the last layer.
    solved = np.linalg.solve(known.T @ known + 10 * np.eye(known.shape[1]), known.T @ targets)
    trained = with_weights(WIDE, w2=solved[:-1].T, b2=solved[-1])
    return trained, images[1200:], labels[1200:]


def with_weights(text: str, **arrays: Array) -> onnx.ModelProto:
    """The ONNX model of a text, with other values of some weights."""
    from popgraph.builder.onnx.write import export_model

    module, compilation = load(text)
    model = export_model(module, compilation.weights)
    for tensor in model.graph.initializer:
        if tensor.name in arrays:
            array = arrays[tensor.name].astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return model


@pytest.mark.parametrize(
    "named",
    [
        {},
        {"calibrate_method": "percentile", "percentile": 99.9},
        {"calibrate_method": "mse"},
        {"calibrate_method": "entropy"},
        {"mode": "dynamic"},
        {"mode": "weight_only"},
    ],
    ids=str,
)
def test_accuracy_drops_by_less_than_a_percent(named: dict[str, Any]) -> None:
    model, images, labels = digits()
    plain = float((in_popgraph(model, images).argmax(1) == labels).mean())
    assert plain > 0.9, "the network is trained"
    made = quantized(model, images[:64], measure_errors=False, **named)
    found = float((in_popgraph(made.model, images).argmax(1) == labels).mean())
    assert found > plain - 0.01


# --- selection -----------------------------------------------------------------------------------


def sites(text: str, **named: Any) -> list[tuple[str, int, str, int | None]]:
    module, compilation = load(text)
    wanted = Selection.of(*(named.get(one) for one in ("operators", "nodes", "exclude")))
    found = sites_of(module, compilation.weights, wanted)
    return [(site.node.op_type, site.operand, site.kind, site.axis) for site in found]


def test_operands_of_layers_and_of_operators_between_them_are_quantized() -> None:
    assert sites(NET) == [
        ("Conv", 0, "activation", None),
        ("Conv", 1, "weight", 0),
        ("Conv", 2, "bias", 0),
        ("Conv", 0, "activation", None),
        ("Conv", 1, "weight", 0),
        ("Add", 0, "activation", None),
        ("Add", 1, "activation", None),
        ("MaxPool", 0, "activation", None),
        ("Conv", 0, "activation", None),
        ("Conv", 1, "weight", 0),
        ("Concat", 0, "activation", None),
        ("Concat", 1, "activation", None),
        ("Flatten", 0, "activation", None),
        ("Gemm", 0, "activation", None),
        ("Gemm", 1, "weight", 0),
        ("Gemm", 2, "bias", 0),
    ]


def test_sums_whose_results_stay_floats_are_not_quantized() -> None:
    residual = """
    graph net(x: f32[2, 8]) -> (y: f32[2, 8]) {
        weight w: f32[8, 8] = glorot_uniform
        weight g: f32[8] = ones
        y = LayerNormalization(x @ w + x, g)
    }
    """
    assert sites(residual) == [("MatMul", 0, "activation", None), ("MatMul", 1, "weight", 1)]


@pytest.mark.parametrize(
    ("call", "axis"),
    [
        ("MatMul(x, w)", 1),
        ("Gemm(x, w)", 1),
        ("Gemm(x, w, transB=1)", 0),
        ("MatMul(w, x)", 0),
    ],
)
def test_a_weight_has_a_scale_per_element_of_the_axis_that_is_not_summed(
    call: str, axis: int
) -> None:
    text = f"graph n(x: f32[6, 6]) -> y {{ weight w: f32[6, 6] = normal\n y = {call} }}"
    assert [one[3] for one in sites(text) if one[2] == "weight"] == [axis]


def test_channels_of_grouped_transposed_convolutions_share_a_scale() -> None:
    text = """
    graph n(x: f32[1, 4, 5, 5]) -> y {
        weight w: f32[4, 3, 3, 3] = normal
        y = ConvTranspose(x, w, group=GROUP)
    }
    """
    for group, axis in (("1", 1), ("2", None)):
        found = sites(text.replace("GROUP", group))
        assert [one[3] for one in found if one[2] == "weight"] == [axis]


def test_moved_values_share_a_scale() -> None:
    module, store = prepared(NET, 13)
    found = sites_of(module, store)
    groups = {label(one.node): found.scale_of(one.value) for one in found if one.operand == 0}
    pooled = [groups[name] for name in groups if name.startswith(("p", "c", "v_4"))]
    concatenated = [one for one in found if one.node.op_type == "Concat"]
    assert len({found.scale_of(one.value) for one in concatenated}) == 1
    assert len(set(pooled)) == 1
    model = quantized(NET, IMAGES, measure_errors=False).model
    scales = {one.name: numpy_helper.to_array(one) for one in model.graph.initializer}
    of = {node.input[0]: scales[node.input[1]] for node in model.graph.node
          if node.op_type == "QuantizeLinear"}  # fmt: skip
    assert of["p"] == of["c"] == of["b"]
    assert of["x"] != of["a"]


SMOOTH = """
opset 21
graph net(x: f32[N, 1, 8, 8]) -> (y: f32[N, 4, 8, 8]) {
    weight w: f32[4, 1, 3, 3] = he_normal
    weight v: f32[4, 4, 3, 3] = he_normal
    weight b: f32[4] = normal
    c = Conv(x, w, pads=[1, 1, 1, 1])
    y = Conv(c * Sigmoid(c), v, b, pads=[1, 1, 1, 1])
}
"""


@pytest.mark.parametrize("rounds", [True, False])
def test_results_of_convolutions_are_rounded_for_onnxruntime(rounds: bool) -> None:
    made = quantized(SMOOTH, IMAGES, quantize_conv_outputs=rounds)
    nodes = made.model.graph.node
    readers = [
        [one.op_type for one in nodes if node.output[0] in one.input]
        for node in nodes
        if node.op_type == "Conv"
    ]
    expected = [["QuantizeLinear"]] * 2 if rounds else [["Sigmoid", "Mul"], []]
    assert readers == expected
    assert [one.name for one in made.model.graph.output] == ["y"]
    assert [layer.name for layer in made.report.layers] == ["c", "y"]
    np.testing.assert_allclose(
        in_popgraph(made.model, IMAGES), in_onnxruntime(made.model, IMAGES), atol=0.06
    )


def test_nodes_and_operators_are_selected_by_name() -> None:
    every = len(quantized(NET, IMAGES, measure_errors=False).report.layers)
    named = {
        "nodes_to_exclude": ["y"],
        "op_types_to_quantize": ["Conv"],
        "nodes_to_quantize": "y",
    }
    counts = {
        key: quantized(NET, IMAGES, measure_errors=False, **{key: value}).report
        for key, value in named.items()
    }
    assert every == 4
    assert {key: len(one.layers) for key, one in counts.items()} == {
        "nodes_to_exclude": 3,
        "op_types_to_quantize": 3,
        "nodes_to_quantize": 1,
    }
    assert counts["nodes_to_exclude"].skipped == ["y"]


def test_batch_normalization_is_folded_into_the_layer_before_it() -> None:
    text = """
    graph net(x: f32[N, 1, 8, 8]) -> (y: f32[N, 3, 6, 6]) {
        weight w: f32[3, 1, 3, 3] = normal
        weight b: f32[3] = normal
        weight g: f32[3] = normal(1, 0.2)
        weight s: f32[3] = normal
        weight m: f32[3] = normal
        weight v: f32[3] = ones
        y = BatchNormalization(Conv(x, w, b), g, s, m, v)
    }
    """
    module, store = prepared(text, 13)
    from popgraph.builder.onnx.write import export_model

    folded = export_model(module, store)
    assert operators(folded) == ["Conv"]
    np.testing.assert_allclose(
        in_popgraph(folded, IMAGES), in_popgraph(text, IMAGES), rtol=1e-4, atol=1e-5
    )
    kept = text.replace("-> (y: f32[N, 3, 6, 6])", "-> (y: f32[N, 3, 6, 6], c: f32[N, 3, 6, 6])")
    kept = kept.replace("y = Batch", "c = Conv(x, w, b)\n y = Batch").replace(
        "Normalization(Conv(x, w, b)", "Normalization(c"
    )
    assert operators(export_model(*prepared(kept, 13))) == ["Conv", "BatchNormalization"]


def test_old_models_get_a_newer_operator_set() -> None:
    weight = numpy_helper.from_array(samples(4, 3), "w")
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])],
        "old",
        [onnx.helper.make_tensor_value_info("x", 1, [2, 4])],
        [onnx.helper.make_tensor_value_info("y", 1, [2, 3])],
        [weight],
    )
    old = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 9)], ir_version=4
    )
    x = samples(2, 4)
    for named, version in (({}, 13), ({"mode": "weight_only", "quant_format": "QDQ"}, 21)):
        made = quantized(old, x, **named).model
        assert [one.version for one in made.opset_import if not one.domain] == [version]
        onnx.checker.check_model(made, full_check=True)
        assert np.abs(in_onnxruntime(made, x) - in_popgraph(old, x)).max() < 0.3


def test_constants_of_nodes_and_moved_weights_are_quantized() -> None:
    text = """
    opset 21
    graph net(x: f32[N, 48]) -> (y: f32[N, 6]) {
        weight w: f32[12, 48] = glorot_uniform
        weight one: f32[1] = [0.5]
        const c = f32([[1, 2, 3, 4, 5, 6], [1, 1, -1, 1, 1, 1], [0, 1, 0, 2, 0, 3],
                       [1, 0, 0, 0, 0, 9], [5, 4, 3, 2, 1, 0], [1, 3, 5, 7, 2, 4]])
        (a, b) = Split(w, num_outputs=2, axis=0)
        y = Gemm(x @ Transpose(b), c, one)
    }
    """
    made = quantized(text, ROWS)
    assert {"Transpose", "Split"}.isdisjoint(operators(made.model))
    assert [layer.weight for layer in made.report.layers] == ["i8", "i8"]
    assert (made.report.layers[1].sqnr or 0) > 35


# --- calibration ---------------------------------------------------------------------------------


class Reader:
    """A calibration reader in the manner of onnxruntime."""

    def __init__(self, batches: list[dict[str, Array]]) -> None:
        self.left = list(batches)

    def get_next(self) -> dict[str, Array] | None:
        return self.left.pop(0) if self.left else None


def test_data_have_many_forms() -> None:
    parts = np.split(ROWS, 3)
    forms: dict[str, Callable[[], Any]] = {
        "array": lambda: ROWS,
        "mapping": lambda: {"x": ROWS},
        "arrays": lambda: parts,
        "mappings": lambda: ({"x": one} for one in parts),
        "with labels": lambda: [(one, np.zeros(4)) for one in parts],
        "with labels in a list": lambda: [[one, np.zeros(4)] for one in parts],
        "reader": lambda: Reader([{"x": one} for one in parts]),
        "lists": lambda: [one.tolist() for one in parts],
    }
    made = {
        name: quantized(MLP, form(), measure_errors=False).model.SerializeToString()
        for name, form in forms.items()
    }
    assert len(set(made.values())) == 1


def test_arrays_are_split_into_batches_of_the_model() -> None:
    text = MLP.replace("[N,", "[5,")
    made = quantized(text, ROWS, measure_errors=False)
    assert made.report.batches == 3
    every = np.concatenate([ROWS, ROWS[:3]])
    again = quantized(text, np.split(every, 3), measure_errors=False)
    assert made.model == again.model


GRID = Grid.of("u8", symmetric=False)


def histogram(*batches: Array) -> Histogram:
    made = Histogram()
    for one in batches:
        made.add(one)
    return made


def test_a_growing_histogram_loses_no_value() -> None:
    small, large = samples(1000), 9 * samples(1000, seed=1)
    grown, once = histogram(small, large), histogram(np.concatenate([small, large]))
    assert grown.counts.sum() == once.counts.sum() == 2000
    assert grown.extremes == once.extremes
    below = (grown.centers < 0).astype(int) @ grown.counts
    assert below == (small < 0).sum() + (large < 0).sum()


def test_methods_choose_ranges() -> None:
    values = np.append(samples(200_000), np.float32(60))
    found = {
        method: range_by(method, histogram(values), GRID, 99.9)
        for method in ("minmax", "percentile", "mse", "entropy")
    }
    assert found["minmax"] == (values.min(), 60.0)
    low, high = np.percentile(values, [0.05, 99.95])
    assert found["percentile"] == pytest.approx((low, high), abs=0.03)
    assert found["entropy"][1] < 30  # An outlier does not cost all others their digits.
    assert found["entropy"][0] < -3

    def error(ends: tuple[float, float]) -> float:
        scale, zero = GRID.fitted(np.array(ends[0]), np.array(ends[1]))
        back = GRID.restored(GRID.rounded(values, scale, zero), scale, zero)
        return float(((back - values) ** 2).mean())

    others = [(values.min(), high) for high in np.linspace(5, 60, 56)]
    assert error(found["mse"]) < 0.8 * error(found["minmax"])
    assert error(found["mse"]) < 1.02 * min(map(error, others))
    symmetric = Grid.of("i8", symmetric=True)
    ends = range_by("percentile", histogram(values), symmetric, 99.9)
    assert max(-ends[0], ends[1]) == pytest.approx(np.percentile(np.abs(values), 99.9), abs=0.03)


def test_constant_activations_and_weights_get_a_scale() -> None:
    text = """
    opset 21
    graph net(x: f32[N, 4]) -> (y: f32[N, 3]) {
        weight w: f32[4, 3] = zeros
        weight b: f32[3] = [1, 1e30, -2]
        y = Gemm(Relu(x), w, b)
    }
    """
    for x in (np.zeros((2, 4), np.float32), -np.ones((2, 4), np.float32)):
        made = quantized(text, x)
        expected = np.array([[1, 1e30, -2]] * 2, np.float32)
        np.testing.assert_allclose(in_popgraph(made.model, x), expected, rtol=1e-6)
        assert np.isfinite(in_onnxruntime(made.model, x)).all()


# --- weights in blocks ---------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["i4", "u4", "i8"])
@pytest.mark.parametrize(("length", "size"), [(64, 32), (50, 16), (7, 16)])
def test_blocks_have_scales_of_their_own(dtype: str, length: int, size: int) -> None:
    array = samples(3, length) * 10.0 ** np.arange(length)[None, :].clip(0, 4)
    made = in_blocks(array, 1, size, Grid.of(dtype, symmetric=dtype[0] == "i"))
    assert made.scale.shape == (3, -(-length // size))
    assert made.whole.min() >= made.grid.low
    assert made.whole.max() <= made.grid.high
    wide = np.repeat(np.abs(made.scale), size, axis=1)[:, :length]
    # The largest number of a signed block may lie a step outside.
    assert (np.abs(made.restored - array) <= wide * (1.01 if dtype[0] == "i" else 0.51)).all()


def test_a_shared_weight_is_stored_once() -> None:
    text = """
    graph net(x: f32[N, 16]) -> (y: f32[N, 16]) {
        weight w: f32[16, 16] = glorot_uniform
        y = Relu(x @ w) @ w
    }
    """
    for named in ({}, {"mode": "dynamic"}, {"mode": "weight_only"}):
        made = quantized(text, samples(4, 16), **named).model
        narrow = [one for one in made.graph.initializer if one.data_type in (2, 3, 21, 22)]
        assert sum(np.prod(one.dims) >= 128 for one in narrow) == 1


# --- the report ----------------------------------------------------------------------------------


def test_the_report_lists_errors_and_gains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("popgraph.quantization.quantize.SECONDS", 0.1)
    made = quantized(NET, IMAGES, measure_time=True)
    report = made.report
    assert [layer.operator for layer in report.layers] == ["Conv", "Conv", "Conv", "Gemm"]
    assert all(30 < (layer.sqnr or 0) < 60 for layer in report.layers)
    assert all(40 < (layer.weight_sqnr or 0) < 60 for layer in report.layers)
    before, after = report.weight_bytes
    assert 3.3 < before / after < 4
    assert report.model_bytes[1] == made.model.ByteSize()
    assert report.seconds is not None
    assert min(report.seconds) > 0
    assert report.worst(1)[0].sqnr == min(layer.sqnr or 0 for layer in report.layers)
    text = str(made)
    assert "quantized weights" in text and "time of a run" in text and "4 layers" in text
    console = Console(file=StringIO(), width=120)
    console.print(made)
    assert isinstance(console.file, StringIO)
    assert "result SQNR" in console.file.getvalue()


def test_a_report_without_data_has_the_errors_of_weights() -> None:
    report = quantized(MLP, mode="weight_only").report
    assert [layer.sqnr for layer in report.layers] == [None, None]
    assert all(15 < (layer.weight_sqnr or 0) < 30 for layer in report.layers)
    before, after = report.weight_bytes
    assert before / after > 5


def test_names_of_onnxruntime_are_understood() -> None:
    quantization = pytest.importorskip("onnxruntime.quantization")
    made = quantized(
        MLP,
        ROWS,
        activation_type=quantization.QuantType.QInt8,
        weight_type=quantization.QuantType.QInt8,
        calibrate_method=quantization.CalibrationMethod.MinMax,
        measure_errors=False,
    )
    same = quantized(MLP, ROWS, activation_type="int8", measure_errors=False)
    assert made.model == same.model


def test_a_quantized_model_is_saved(tmp_path: Path) -> None:
    made = quantized(MLP, mode="weight_only", quant_format="QDQ")
    made.save(tmp_path / "a.onnx")
    made.save(tmp_path / "a.pgraph")
    assert onnx.load(tmp_path / "a.onnx") == made.model
    np.testing.assert_array_equal(
        in_popgraph(tmp_path / "a.onnx", ROWS), in_popgraph(tmp_path / "a.pgraph", ROWS)
    )


# --- mistakes ------------------------------------------------------------------------------------


def broken() -> Array:
    found = ROWS.copy()
    found[3, 5] = np.nan
    return found


def nothing() -> Iterator[Array]:
    yield from ()


HALF = MLP.replace("f32", "f16")
OVERFLOW = MLP.replace("x @ w1 + b1", "Exp(x * 1000) @ w1 + b1")

MISTAKES: dict[str, tuple[Any, Any, dict[str, Any], str]] = {
    "no data": (MLP, None, {}, "no calibration data"),
    "empty": (MLP, [], {}, "the calibration data are empty"),
    "empty array": (MLP, ROWS[:0], {}, "the calibration data are empty"),
    "empty iterator": (MLP, nothing(), {}, "the calibration data are empty"),
    "read reader": (MLP, Reader([]), {}, "rewind()"),
    "NaN": (MLP, broken(), {}, "input 'x' of batch 0 contains NaN"),
    "overflow": (OVERFLOW, ROWS, {}, "is infinity in batch 0"),
    "wrong name": (MLP, {"X": ROWS}, {}, "the model has no input 'X'"),
    "wrong shape": (MLP, [ROWS[:, :3]], {}, "input 'x'"),
    "a file": (MLP, "x.npy", {}, "numpy.load"),
    "a number": (MLP, 3, {}, "int is not calibration data"),
    "unknown node": (MLP, ROWS, {"nodes_to_exclude": "yy"}, "the model has no node 'yy'"),
    "unknown operator": (MLP, ROWS, {"op_types_to_quantize": ["MatMull"]}, "'MatMul'"),
    "everything excluded": (MLP, ROWS, {"nodes_to_exclude": "*"}, "no layer of the model"),
    "half precision": (HALF, ROWS, {}, "no layer of the model"),
    "no matrix": (NET, None, {"mode": "weight_only", "nodes_to_exclude": "y"}, "MatMul or Gemm"),
    "mode": (MLP, ROWS, {"mode": "statik"}, "did you mean 'static'?"),
    "method": (MLP, ROWS, {"calibrate_method": "max"}, "calibration method"),
    "type": (MLP, ROWS, {"weight_type": "int4"}, "choose from int8, uint8"),
    "bits": (MLP, None, {"mode": "weight_only", "bits": 3}, "4 or 8"),
    "block": (MLP, None, {"mode": "weight_only", "block_size": 20}, "a power of two"),
    "form": (MLP, ROWS, {"quant_format": "QOperator"}, "static quantization has no form with"),
    "percentile": (MLP, ROWS, {"percentile": 0.0}, "percentile is 0.0"),
    "argument": (MLP, ROWS, {"calibration_method": "mse"}, "calibrate_method"),
    "time without data": (
        MLP,
        None,
        {"mode": "dynamic", "measure_time": True},
        "pass calibration data",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_explained(mistake: str) -> None:
    model, data, named, message = MISTAKES[mistake]
    with pytest.raises(popgraph.PopgraphError) as raised:
        quantized(model, data, **named)
    assert message in str(raised.value)


@pytest.mark.parametrize("mode", ["static", "dynamic", "weight_only"])
def test_a_quantized_model_is_not_quantized_again(mode: str) -> None:
    made = quantized(MLP, ROWS, mode=mode, measure_errors=False).model
    with pytest.raises(popgraph.PopgraphError, match="already quantized"):
        quantized(made, ROWS)


def test_the_command_writes_a_model_and_prints_its_report(tmp_path: Path) -> None:
    (tmp_path / "net.pgraph").write_text(MLP)
    np.save(tmp_path / "x.npy", ROWS)
    start = ["quantize", str(tmp_path / "net.pgraph"), "-o", str(tmp_path / "o.onnx")]
    start += ["--backend", "reference"]
    for more, expected in (
        (["-d", str(tmp_path / "x.npy")], "2 layers quantized (static)"),
        (["-d", f"x={tmp_path / 'x.npy'}", "--exclude", "y"], "1 layer in floats: y"),
        (["--mode", "weight_only", "--format", "QDQ"], "2 layers quantized (weight_only)"),
    ):
        found = CliRunner().invoke(app, [*start, *more])
        assert found.exit_code == 0, found.output
        assert expected in found.output
        assert onnx.load(tmp_path / "o.onnx").graph.node
    found = CliRunner().invoke(app, start)
    assert found.exit_code == 1
    assert "--mode dynamic" in found.output
