"""Tests when sums of narrow products use packed words, by machine and size."""

from __future__ import annotations

import numpy as np
import pytest
from ml_dtypes import bfloat16
from onnx import ModelProto, TensorProto, helper, numpy_helper

import popgraph
from popgraph.compiler import load, lower
from popgraph.dialects.graphcore import DotConvOp, DotMatMulOp, GatherOp, MatMulInPairsOp
from popgraph.dialects.tile import PackOp, ReduceOp, ViewOp, is_contraction
from popgraph.passes.options import Options
from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.support.machine import PRESETS
from tests.one_node import close, model, of_both


def words_of(channels: int, machine: str) -> list[str]:
    """The packed word types of a convolution of this number of channels."""
    inputs = {
        "x": np.zeros((1, channels, 6, 6), np.uint8),
        "w": np.zeros((4, channels, 3, 3), np.int8),
    }
    module, compilation = load(model("ConvInteger", inputs))
    lower(module, compilation, Options(machine=PRESETS[machine]), level="graphcore")
    return [op.words.data for op in module.walk() if isinstance(op, DotConvOp)]


@pytest.mark.parametrize(
    ("channels", "machine", "words"),
    [
        (3, "zen4", ["u8i8"]),
        (2, "zen4", []),
        (3, "zen3", []),
        (9, "zen3", ["i16"]),
    ],
)
def test_padding_of_packed_words_pays_with_a_dot_instruction(
    channels: int, machine: str, words: list[str]
) -> None:
    assert words_of(channels, machine) == words


@pytest.mark.parametrize(("columns", "words"), [(3, 0), (4, 1)])
@pytest.mark.parametrize("machine", ["zen4", "zen3"])
def test_bytes_of_few_columns_are_not_packed(columns: int, words: int, machine: str) -> None:
    """Vector lanes hold adjacent results, so few columns would leave lanes empty."""
    random = np.random.default_rng(0)
    a = random.integers(0, 256, (64, 96)).astype(np.uint8)
    b = random.integers(-128, 128, (96, columns)).astype(np.int8)
    proto = model("MatMulInteger", {"a": a, "b": b})
    options = Options(machine=PRESETS[machine])
    module, compilation = load(proto)
    lower(module, compilation, options, level="graphcore")
    assert sum(isinstance(op, DotMatMulOp) for op in module.walk()) == words
    (found,) = popgraph.compile(proto, options=options)({"a": a, "b": b}).values()
    np.testing.assert_array_equal(found, a.astype(np.int32) @ b)


WEIGHTS = [
    (np.ones(96), 4),
    (np.full(96, 32), 4),
    (np.full(96, -32), 4),
    (np.full(96, 33), 3),
    (np.full(96, -42), 3),
    (np.full(96, 43), 2),
    (np.tile([63, 1, -1, -63], 24), 4),
    (np.tile([127, 1, -127, -1], 24), 2),
    (np.concatenate([[127, 1], np.zeros(94)]), 4),
    (np.concatenate([[127, 2], np.zeros(94)]), 0),
    (np.concatenate([[-127, -1], np.zeros(94)]), 4),
    (np.concatenate([[-127, -2], np.zeros(94)]), 0),
    (np.full(96, 64), 2),
    (np.tile([127, 2, -1, -1], 24), 0),
    (np.full(96, 127), 0),
    (np.full(96, -128), 0),
]
"""
(rows of weights, words that are summed in 16 bits): at most 257 for the sizes of all weights of a
half of a block, and never if the products of two neighbours exceed 16 bits.
"""


def test_weights_decide_how_many_words_are_summed_in_16_bits() -> None:
    """No sum is wrong, even of the largest bytes."""
    a = np.random.default_rng(0).integers(0, 256, (7, 96)).astype(np.uint8)
    a[0], a[1], a[2, ::2], a[3, 1::2] = 0, 255, 255, 255
    held = [np.repeat(row[:, None], 8, axis=1).astype(np.int8) for row, _ in WEIGHTS]
    names = [f"b{number}" for number in range(len(held))]
    nodes = [helper.make_node("MatMulInteger", ["a", b], [f"y_{b}"]) for b in names]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("a", TensorProto.UINT8, a.shape)],
        [helper.make_tensor_value_info(f"y_{b}", TensorProto.INT32, None) for b in names],
        [numpy_helper.from_array(array, b) for b, array in zip(names, held, strict=True)],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    options = Options(machine=PRESETS["zen3"])
    module, compilation = load(proto)
    lower(module, compilation, options, level="graphcore")
    found = [
        op.block.value.data if isinstance(op, MatMulInPairsOp) else 0
        for op in module.walk()
        if isinstance(op, MatMulInPairsOp | DotMatMulOp)
    ]
    assert found == [block for _, block in WEIGHTS]
    for array, y in zip(
        held, popgraph.compile(proto, options=options)({"a": a}).values(), strict=True
    ):
        np.testing.assert_array_equal(y, a.astype(np.int32) @ array)


def product_of_bytes(rows: int, weights: Array) -> ModelProto:
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["a", "b", "zero"], ["y"])],
        "g",
        [
            helper.make_tensor_value_info("a", TensorProto.UINT8, [rows, len(weights)]),
            helper.make_tensor_value_info("zero", TensorProto.UINT8, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.INT32, None)],
        [numpy_helper.from_array(weights, "b")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def trained_weights(columns: int, clash: int) -> Array:
    """Weights as training leaves them, and neighbours that saturate in some columns."""
    generator = np.random.default_rng(2)
    weights = np.clip(np.rint(generator.laplace(0, 5, (70, columns))), -127, 127)
    for at in range(clash):
        weights[8 * at : 8 * at + 2, at] = 127 if at % 2 else -127
    return weights.astype(np.int8)


@pytest.mark.parametrize(
    ("rows", "columns", "clash", "block", "moves", "offsets"),
    [
        (3, 260, 0, 3, False, False),
        (1, 260, 5, 2, True, False),
        (3, 260, 5, 3, True, True),
        (3, 200, 5, 0, False, False),
        (1, 260, 0, 0, False, False),
    ],
)
def test_terms_are_exchanged_until_sums_fit_16_bits(
    rows: int, columns: int, clash: int, block: int, moves: bool, offsets: bool
) -> None:
    """Sums are exact, with zero points, too; a single row has no offsets."""
    weights = trained_weights(columns, clash)
    proto, options = product_of_bytes(rows, weights), Options(machine=PRESETS["zen3"])
    module, compilation = load(proto)
    lower(module, compilation, options, level="graphcore")
    pairs = [op for op in module.walk() if isinstance(op, MatMulInPairsOp)]
    assert [(op.block.value.data, op.offset is not None) for op in pairs] == (
        [(block, offsets)] if block else []
    )
    assert any(isinstance(op, GatherOp) for op in module.walk()) == moves
    a = np.random.default_rng(3).integers(0, 256, (rows, 70)).astype(np.uint8)
    a[0, :] = 255
    zero = np.array(77, np.uint8)
    found = popgraph.compile(proto, options=options)(a=a, zero=zero)["y"]
    np.testing.assert_array_equal(found, (a.astype(np.int32) - zero) @ weights)


@pytest.mark.parametrize(
    ("rows", "least", "words"), [(1, -127, "i8i8_127"), (1, -128, "i16"), (3, -127, "i16")]
)
def test_a_single_row_reads_weights_in_bytes(rows: int, least: int, words: str) -> None:
    """Words of 16 bits are as fast, but twice as large; -128 times -128 would saturate."""
    generator = np.random.default_rng(2)
    weights = generator.integers(-127, 128, (70, 24)).astype(np.int8)
    weights[:, 0], weights[:, 1], weights[0, 2] = 127, -127, least
    proto, options = product_of_bytes(rows, weights), Options(machine=PRESETS["zen3"])
    module, compilation = load(proto)
    lower(module, compilation, options, level="graphcore")
    assert [op.words.data for op in module.walk() if isinstance(op, DotMatMulOp)] == [words]
    multiply = popgraph.compile(proto, options=options)
    zero = np.array(77, np.uint8)
    for a in (
        np.zeros((rows, 70)),
        np.full((rows, 70), 255),
        generator.integers(0, 256, (rows, 70)),
    ):
        found = multiply(a=a.astype(np.uint8), zero=zero)["y"]
        np.testing.assert_array_equal(found, (a.astype(np.int32) - zero) @ weights)


NET = """
graph net(x: bf16[5, 33], q: bf16[40, 64], k: bf16[24, 64]) -> (y, scores) {
    weight w: bf16[33, 21] = glorot_uniform(seed=3)
    y = Relu(x) @ w
    scores = Relu(q) @ Transpose(Relu(k))
}
"""


def contractions(machine: str, text: str = NET) -> list[ReduceOp]:
    module, compilation = load(text)
    lower(module, compilation, Options(machine=PRESETS[machine]), level="structured")
    return [op for op in module.walk() if is_contraction(op)]


def test_bf16_pairs_need_a_dot_instruction() -> None:
    """
    Sums are f32 on both machines; with an odd number of terms, the last pair is padded with zero.
    """
    machines = ("zen4", "ice_lake_server")
    words = [[op.words and op.words.data for op in contractions(one)] for one in machines]
    assert words == [["bf16"] * 2, [None] * 2]
    random = np.random.default_rng(0)
    shapes = {"x": (5, 33), "q": (40, 64), "k": (24, 64)}
    given = {name: random.normal(size=shape).astype(bfloat16) for name, shape in shapes.items()}
    found = [
        popgraph.compile(NET, options=Options(machine=PRESETS[one]))(given) for one in machines
    ]
    for name in ("y", "scores"):
        close(*(each[name] for each in found))
    q, k = (np.maximum(given[name].astype(np.float32), 0) for name in "qk")
    close(found[0]["scores"], (q @ k.T).astype(bfloat16))


def test_adjacent_bf16_pairs_are_not_packed() -> None:
    """Also for a transposed factor: packing moves no data."""
    (scores,) = (op for op in contractions("zen4") if op.sizes == (40, 24, 32))
    owners = [value.owner for value in (scores.lhs, scores.rhs)]
    owners = [one.source.owner if isinstance(one, PackOp) else one for one in owners]
    assert {type(one) for one in owners} == {ViewOp}


@pytest.mark.parametrize(
    ("size", "strides", "winograd", "words"),
    [(12, 1, True, 0), (12, 1, False, 1), (12, 2, True, 1), (11, 1, True, 1)],
)
def test_images_that_winograd_transforms_are_not_packed(
    size: int, strides: int, winograd: bool, words: int
) -> None:
    """A 3x3 convolution of bf16 with a stride of 1, from 128 positions on."""
    text = f"""
    graph net(x: bf16[1, 16, {size}, {size}], w: bf16[16, 16, 3, 3]) -> y {{
        y = Conv(x, w, pads=[1, 1, 1, 1], strides=[{strides}, {strides}])
    }}
    """
    module, compilation = load(text)
    options = Options(machine=PRESETS["zen4"], winograd=winograd)
    lower(module, compilation, options, level="graphcore")
    assert sum(isinstance(op, DotConvOp) for op in module.walk()) == words


@pytest.mark.parametrize(("rows", "words"), [(2, 0), (20, 2)])
def test_factors_with_little_reuse_are_not_packed(rows: int, words: int) -> None:
    """One token against a key-value cache: packing would cost more than it saves."""
    text = f"""
    graph decode(q: bf16[{rows}, 64], k: bf16[80, 64], v: bf16[80, 64]) -> y {{
        y = Softmax(q @ Transpose(k)) @ v
    }}
    """
    assert sum(op.words is not None for op in contractions("zen4", text)) == words


@pytest.mark.parametrize("machine", ["zen4", "zen3", "neoverse_n1"])
@pytest.mark.parametrize(
    ("kind", "low", "high", "zero"),
    [("u8", 10, 100, 200), ("u8", 10, 100, 0), ("i8", 10, 20, -5), ("i8", -20, -10, 5)],
)
def test_the_range_of_packed_words_includes_the_padding(
    machine: str, kind: str, low: int, high: int, zero: int
) -> None:
    """The padding value counts for the range of a factor, even when far from its elements."""
    random = np.random.default_rng(0)
    x = random.integers(0, 120, (1, 8, 6, 6)).astype(dtypes.BY_NAME[kind].numpy)
    w = random.integers(-9, 9, (4, 8, 3, 3), np.int8)
    x_zero = np.array(zero, x.dtype)
    clipped = np.clip(x, low, high)
    inputs = {"x": clipped, "w": w, "x_zero": x_zero}
    proto = model("ConvInteger", inputs, pads=[1, 1, 1, 1], constants=["w", "x_zero"])
    proto.graph.node[0].input[0] = "clipped"
    for name, bound in (("low", low), ("high", high)):
        proto.graph.initializer.append(numpy_helper.from_array(np.array(bound, x.dtype), name))
    proto.graph.node.insert(0, helper.make_node("Min", ["raised", "high"], ["clipped"]))
    proto.graph.node.insert(0, helper.make_node("Max", ["x", "low"], ["raised"]))
    wide = np.pad(clipped.astype(np.int64) - zero, ((0, 0), (0, 0), (1, 1), (1, 1)))
    places = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), (2, 3))
    wanted = np.einsum("nchwij,ocij->nohw", places, w.astype(np.int64))
    options = Options(machine=PRESETS[machine])
    found = popgraph.compile(proto, backend="reference", options=options)(x=x)["y"]
    assert np.array_equal(found, wanted)


def test_a_convolution_of_three_channels_in_words() -> None:
    """The fourth byte of each word is free; padding is the zero point of the image."""
    random = np.random.default_rng(7)
    image = random.integers(0, 256, (2, 3, 9, 7), np.uint8)
    weights = random.integers(-128, 128, (5, 3, 7, 7), np.int8)
    inputs = {"x": image, "w": weights, "x_zero": np.array(131, np.uint8)}
    proto = model("ConvInteger", inputs, pads=[3, 3, 3, 3], strides=[2, 2], constants=["w"])
    wide = np.pad(image.astype(np.int64) - 131, ((0, 0), (0, 0), (3, 3), (3, 3)))
    places = np.lib.stride_tricks.sliding_window_view(wide, (7, 7), (2, 3))[:, :, ::2, ::2]
    wanted = np.einsum("nchwij,ocij->nohw", places, weights.astype(np.int64))
    assert np.array_equal(of_both(proto, inputs)["y"], wanted)
