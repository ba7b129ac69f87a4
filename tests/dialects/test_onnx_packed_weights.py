"""Tests weights of 2 to 8 bits, and the int8 arithmetic that may replace floats with them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx import ModelProto, helper, numpy_helper

import popgraph
from popgraph import Options
from popgraph.compiler import load, lower
from popgraph.measure.alternatives import before_scheduling, contraction_candidates_of
from popgraph.passes.graphcore.round_activations import RoundActivations
from popgraph.passes.optimizer_spec import SGD, Scalar
from popgraph.passes.options import Training
from popgraph.support.arrays import Array
from popgraph.support.errors import PassError, TypeMismatchError
from popgraph.support.machine import MACHINES
from popgraph.support.tuning import Tuning
from popgraph.support.warnings import PopgraphWarning
from tests.dialects.contrib_sample import ORT, draw, draw_ints

BLOCKS, BLOCK, COLUMNS = 2, 32, 9
INT8 = Options(activations="int8")
DOMAIN, TRAINING = "com.microsoft", "ai.onnx.preview.training"


def product(bits: int, rows: int, held: dict[str, Array], level: int) -> ModelProto:
    """A MatMulNBits node whose weights are initializers."""
    node = helper.make_node(
        "MatMulNBits",
        ["x", *held],
        ["y"],
        domain=DOMAIN,
        K=BLOCKS * BLOCK,
        N=COLUMNS,
        bits=bits,
        block_size=BLOCK,
        accuracy_level=level,
    )
    x, y = (
        helper.make_tensor_value_info(name, 1, [rows, size])
        for name, size in (("x", BLOCKS * BLOCK), ("y", COLUMNS))
    )
    stored = [numpy_helper.from_array(array, name) for name, array in held.items()]
    graph = helper.make_graph([node], "product", [x], [y], stored)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def expected_product(x: Array, held: dict[str, Array], bits: int) -> Array:
    """The expected product: activations quantized to int8 with a scale per block."""
    parts = x.reshape(len(x), BLOCKS, BLOCK)
    scale = np.abs(parts).max(axis=-1, keepdims=True) / np.float32(127)
    whole = np.rint(parts / np.where(scale, scale, 1)) * scale
    result: Array = np.einsum("mbk,nbk->mn", whole, table(held, bits))
    return result


def table(held: dict[str, Array], bits: int) -> Array:
    """The dequantized weights, by column and block."""
    codes = unpacked(held["codes"], bits).reshape(COLUMNS, BLOCKS, BLOCK)
    middle = 1 << (bits - 1)
    zeros = unpacked(held["zeros"], bits)[..., None] if "zeros" in held else middle
    weights: Array = (codes - zeros) * held["steps"][..., None]
    return weights


def unpacked(array: Array, bits: int) -> Array:
    """Unpacks bytes into codes along the last axis, lowest bits first."""
    found = [array.astype(np.int32) >> at & (1 << bits) - 1 for at in range(0, 8, bits)]
    return np.stack(found, -1).reshape(*array.shape[:-1], -1)


@pytest.mark.parametrize(
    ("bits", "rows", "zeros"), [(4, 1, False), (4, 3, True), (8, 3, False), (8, 1, True)]
)
def test_an_accuracy_level_quantizes_activations_to_int8(bits: int, rows: int, zeros: bool) -> None:
    """Each block of a row has its own scale, also a block of zeros."""
    x = draw(rows, BLOCKS * BLOCK)
    x[0, :BLOCK] = 0
    codes = draw_ints(256, COLUMNS, BLOCKS, BLOCK * bits // 8, dtype=np.uint8)
    held = {"codes": codes, "steps": draw(COLUMNS, BLOCKS)}
    if zeros:
        held["zeros"] = draw_ints(256, COLUMNS, BLOCKS * bits // 8, dtype=np.uint8)
    in_bytes, in_floats = (product(bits, rows, held, level) for level in (4, 0))
    found, exact = (popgraph.compile(model)(x=x)["y"] for model in (in_bytes, in_floats))
    np.testing.assert_allclose(found, expected_product(x, held, bits), rtol=1e-4, atol=1e-4)
    if bits == 4:  # With 8 bits, some processors add two products in 16 bits, and saturate.
        (expected,) = ORT.InferenceSession(in_bytes.SerializeToString()).run(None, {"x": x})
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert 1e-5 < np.abs(found - exact).max() < 0.02 * np.abs(exact).max()


@pytest.mark.parametrize(("half", "zeros"), [(False, True), (True, False)])
def test_an_option_rounds_without_an_accuracy_level(half: bool, zeros: bool) -> None:
    """The same bits as with the level, also of half precision and of small weights."""
    x, codes = draw(3, BLOCKS * BLOCK), draw_ints(256, COLUMNS, BLOCKS, BLOCK // 2, dtype=np.uint8)
    held = {"codes": codes, "steps": draw(COLUMNS, BLOCKS)}
    if zeros:
        held["zeros"] = draw_ints(256, COLUMNS, BLOCKS // 2, dtype=np.uint8)
    models = [product(4, 3, held, level) for level in (4, 0)]
    if half:
        x = x.astype(np.float16)
        for model in models:
            steps = numpy_helper.from_array(held["steps"].astype(np.float16), "steps")
            model.graph.initializer[1].CopyFrom(steps)
            for value in (*model.graph.input, *model.graph.output):
                value.type.tensor_type.elem_type = 10
    by_level, rounded, exact = (
        popgraph.compile(model, options=options, backend="reference")(x=x)["y"]
        for model, options in ((models[0], Options()), (models[1], INT8), (models[1], Options()))
    )
    np.testing.assert_array_equal(rounded, by_level)
    assert np.any(rounded != exact)


DEQUANTIZED = """
opset 21

graph net(x: f32[R, 64]) -> y {{
    const codes = {type}({codes})
    const zeros = {type}({zeros})
    weight steps: f32{steps} = {scales}
    w = DequantizeLinear(codes, steps, zeros, {options})
    y = x @ w
}}
"""


@pytest.mark.parametrize(("bits", "backend"), [(4, "c"), (8, "reference")])
def test_activations_of_dequantized_weights_are_rounded(bits: int, backend: str) -> None:
    """Weights in blocks with zero points, or a scale for each column."""
    codes, x = draw_ints(1 << bits, 64, COLUMNS), draw(3, 64)
    block = 32 if bits == 4 else 64
    scales = np.abs(draw(64 // block, COLUMNS))
    zeros = np.full(scales.shape, 7 if bits == 4 else 131)
    text = DEQUANTIZED.format(
        type=f"u{bits}",
        codes=codes.tolist(),
        zeros=zeros.tolist() if bits == 4 else zeros[0].tolist(),
        steps=list(scales.shape) if bits == 4 else [COLUMNS],
        scales=scales.tolist() if bits == 4 else scales[0].tolist(),
        options="axis=0, block_size=32" if bits == 4 else "axis=1",
    )
    runner = popgraph.compile(text, options=INT8, backend=backend)
    weights = (codes - zeros.repeat(block, 0)) * scales.repeat(block, 0)
    expected = np.zeros((3, COLUMNS))
    for start in range(0, 64, block):
        part = x[:, start : start + block]
        step = np.abs(part).max(axis=1, keepdims=True) / np.float32(127)
        expected += np.rint(part / step) * step @ weights[start : start + block]
    found = runner(x=x)["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert np.abs(found - x @ weights).max() > 1e-3


def test_layers_with_rounded_activations_do_not_depend_on_the_machine() -> None:
    found = {
        RoundActivations.of(replace(INT8, machine=machine, determinism=one))
        for machine in MACHINES.values()
        for one in ("machine", "portable")
    }
    assert len(found) == 1 and None not in found


def test_a_model_without_weights_of_few_bits_warns() -> None:
    text = "graph net(x: f32[2, 4]) -> y {\n    weight w: f32[4, 3] = ones\n    y = x @ w\n}"
    with pytest.warns(PopgraphWarning, match="no activation is rounded to int8"):
        popgraph.compile(text, options=INT8, backend="reference")


def test_wrong_activations_are_refused() -> None:
    with pytest.raises(PassError, match="unknown type 'int4' of activations") as caught:
        Options(activations="int4")
    assert caught.value.where == "Options.activations" and "'float', 'int8'" in str(caught.value)
    training = Training("loss", SGD(learning_rate=Scalar(0.1)))
    with pytest.raises(PassError, match="a training step cannot round activations"):
        replace(INT8, training=training)


@pytest.mark.parametrize(("name", "words"), [("avx2", "i8u7"), ("zen4", "i8u8")])
def test_packed_words_of_any_machine_multiply_int8(name: str, words: str) -> None:
    """Products with 4-bit weights fit where the machine adds two of them in 16 bits."""
    x, codes = draw(3, BLOCKS * BLOCK), np.full((COLUMNS, BLOCKS, BLOCK // 2), 255, np.uint8)
    x[0] = 1
    held = {"codes": codes, "steps": draw(COLUMNS, BLOCKS)}
    options = Options(machine=MACHINES[name])
    model = product(4, 3, held, 4)
    found = popgraph.compile(model, options=options)(x=x)["y"]
    np.testing.assert_allclose(found, expected_product(x, held, 4), rtol=1e-4, atol=1e-4)
    assert f'dot "{words}"' in str(lower(*load(model), options, level="structured"))


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("zeros", [False, True])
def test_four_bit_weights_are_vector_table_lookups(rows: int, zeros: bool) -> None:
    """
    With 16-lane vectors, packed weights index a table of values; zero points are subtracted from
    sums.
    """
    x = draw(rows, BLOCKS * BLOCK)
    codes = draw_ints(256, COLUMNS, BLOCKS, BLOCK // 2, dtype=np.uint8)
    held = {"codes": codes, "steps": draw(COLUMNS, BLOCKS)}
    if zeros:
        held["zeros"] = draw_ints(256, COLUMNS, BLOCKS // 2, dtype=np.uint8)
    options = Options(
        machine=MACHINES["avx512"], tuning=Tuning(streamed_l2=0, small_literal_bytes=0)
    )
    model = product(4, rows, held, 0)
    found = popgraph.compile(model, options=options)(x=x)["y"]
    np.testing.assert_allclose(found, x @ table(held, 4).reshape(COLUMNS, -1).T, 1e-4, 1e-4)
    program = str(lower(*load(model), options, level="structured"))
    assert "tile.pick" in program


def test_weights_of_another_size_are_refused() -> None:
    codes = draw_ints(256, COLUMNS, BLOCKS, BLOCK // 2, dtype=np.uint8)
    held = {"codes": codes[:, :1], "steps": draw(COLUMNS, BLOCKS)}
    hint = f"give 288 elements for N = {COLUMNS}, K = 64, block_size = {BLOCK}"
    with pytest.raises(TypeMismatchError, match="does not take B of 144 elements") as caught:
        popgraph.compile(product(4, 1, held, 0))
    assert hint in str(caught.value)


def test_schedules_of_block_sums_can_be_chosen() -> None:
    """Schedule texts name the loops over blocks and packed parts; plain loops are a choice, too."""
    x, codes = draw(3, BLOCKS * BLOCK), draw_ints(256, COLUMNS, BLOCKS, BLOCK // 2, dtype=np.uint8)
    held = {"codes": codes, "steps": draw(COLUMNS, BLOCKS)}
    options, model = Options(machine=MACHINES["zen4"]), product(4, 3, held, 4)
    module, compilation = load(model)
    listed = contraction_candidates_of(before_scheduling(module, compilation, options), options)
    (found,) = (each for each in listed if "; block " in each.text)
    specs = dict.fromkeys(str(spec) for spec, _ in found.specs)
    assert "plain" in specs
    outermost = next(spec for spec in specs if "kc" in spec and "k_outer" not in spec)
    refused = f"{found.text} -> {outermost.replace('>', ', k_outer 1>')}"
    with pytest.raises(PassError, match="sums of blocks join totals in registers"):
        popgraph.compile(model, options=replace(options, schedules=(refused,)))
    for spec in list(specs)[:3]:
        chosen = replace(options, schedules=(f"{found.text} -> {spec}",))
        result = popgraph.compile(model, options=chosen)(x=x)["y"]
        np.testing.assert_allclose(result, expected_product(x, held, 4), rtol=1e-4, atol=1e-4)


def test_training_uses_floats_instead_of_int8() -> None:
    """Training goes through floats, because rounding has no gradient."""
    held = {
        "codes": draw_ints(256, COLUMNS, BLOCKS, BLOCK // 2, dtype=np.uint8),
        "steps": draw(COLUMNS, BLOCKS),
    }
    x, labels, start = draw(12, 4), draw(12, COLUMNS), draw(4, BLOCKS * BLOCK)
    losses = []
    for level in (0, 4):
        model = product(4, 12, held, level)
        model.graph.node.insert(0, helper.make_node("MatMul", ["given", "weights"], ["x"]))
        model.graph.input[0].CopyFrom(helper.make_tensor_value_info("given", 1, [12, 4]))
        model.graph.initializer.append(numpy_helper.from_array(start, "weights"))
        trainer = popgraph.train(model, (x, labels), "mse", "SGD(0.001)", epochs=3, batch=12)
        losses.append([row["loss"] for row in trainer.history.epochs])
    assert losses[0][0] > losses[0][-1]
    np.testing.assert_array_equal(*losses)


def test_a_gradient_node_uses_floats_instead_of_int8() -> None:
    held = {
        "codes": draw_ints(256, COLUMNS, BLOCKS, BLOCK // 2, dtype=np.uint8),
        "steps": draw(COLUMNS, BLOCKS),
    }
    model = product(4, 2, held, 4)
    model.graph.node.append(helper.make_node("ReduceSum", ["y"], ["sum"], keepdims=0))
    gradient = helper.make_node("Gradient", ["x"], ["slope"], domain=TRAINING, xs=["x"], y="sum")
    model.graph.node.append(gradient)
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("slope", 1, [2, BLOCKS * BLOCK]))
    model.opset_import.append(helper.make_opsetid(TRAINING, 1))
    found = popgraph.compile(model)(x=draw(2, BLOCKS * BLOCK))["slope"]
    expected = np.broadcast_to(table(held, 4).reshape(COLUMNS, -1).sum(axis=0), found.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
