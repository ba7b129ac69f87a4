"""Tests `assign-halos`: padding and concatenation without copies, zeroed halos."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser
from xdsl.utils.exceptions import VerifyException

import popgraph
from popgraph.compiler import load, lower
from popgraph.dialects import tile
from popgraph.dialects.tile.attributes import halo_of, physical_shape
from popgraph.passes.base import Compilation
from popgraph.passes.options import Options
from popgraph.passes.structured.analysis.loops import tensor
from popgraph.support.machine import Machine
from popgraph.testing import Constant, Network, Node, assert_same_meaning, build_network
from popgraph.testing.templates.frame import vector
from tests.passes.sharing import sharing_all

Convolution = tuple[onnx.NodeProto, onnx.TensorProto]
RANDOM = np.random.default_rng(0)


def convolution(name: str, source: str, channels: tuple[int, int], kernel: int) -> Convolution:
    shape = (channels[1], channels[0], kernel, kernel)
    weight = RANDOM.standard_normal(shape).astype(np.float32)
    pads = [kernel // 2] * 4
    node = helper.make_node("Conv", [source, f"w_{name}"], [name], pads=pads)
    return node, numpy_helper.from_array(weight, f"w_{name}")


def model(
    nodes: list[onnx.NodeProto],
    weights: list[onnx.TensorProto],
    shape: Sequence[int] = (2, 3, 7, 6),
) -> bytes:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    opset = helper.make_opsetid("", 17)
    made: bytes = helper.make_model(graph, opset_imports=[opset]).SerializeToString()
    return made


def inception() -> bytes:
    """Branches with halos of their own that a window reads, in one concatenation."""
    made = [
        convolution("stem", "x", (3, 16), 3),
        convolution("one", "r_stem", (16, 24), 1),
        convolution("three", "r_stem", (16, 8), 3),
        convolution("end", "c", (48, 16), 5),
        convolution("last", "r_end", (16, 3), 3),
    ]
    convolutions = {node.output[0]: node for node, _ in made}
    relu = [helper.make_node("Relu", [name], [f"r_{name}"]) for name in ("stem", "end")]
    pool = helper.make_node(
        "MaxPool", ["r_stem"], ["pooled"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1]
    )
    concat = helper.make_node("Concat", ["one", "three", "pooled"], ["c"], axis=1)
    nodes = [
        convolutions["stem"],
        relu[0],
        convolutions["one"],
        convolutions["three"],
        pool,
        concat,
        convolutions["end"],
        relu[1],
        convolutions["last"],
        helper.make_node("Identity", ["last"], ["y"]),
    ]
    return model(nodes, [weight for _, weight in made])


def dense() -> bytes:
    """Every concatenation is a piece of the next one."""
    nodes, weights = [], []
    node, weight = convolution("c0", "x", (3, 16), 3)
    nodes.append(node)
    weights.append(weight)
    for step in range(3):
        node, weight = convolution(f"n{step}", f"c{step}", (16 + 8 * step, 8), 3)
        concat = helper.make_node("Concat", [f"c{step}", f"n{step}"], [f"c{step + 1}"], axis=1)
        nodes += [node, concat]
        weights.append(weight)
    node, weight = convolution("y", "c3", (40, 4), 1)
    return model([*nodes, node], [*weights, weight])


def copies(module: ModuleOp) -> Iterator[tile.AssembleOp]:
    """Padding and concatenations that are still copies before loops are emitted."""
    for op in module.walk():
        if isinstance(op, tile.AssembleOp):
            yield op


@pytest.mark.parametrize("made", [inception(), dense()], ids=["inception", "dense"])
@pytest.mark.parametrize("threads", [1, 2])
def test_halos_keep_values(made: bytes, threads: int) -> None:
    """Compiled, with work partitioned among threads, against the reference."""
    target = sharing_all(256, 32)
    shared = Options(machine=target.machine, tuning=target.tuning)
    x = RANDOM.standard_normal((2, 3, 7, 6)).astype(np.float32)
    expected = popgraph.compile(made, backend="reference")(x=x)["y"]
    run = popgraph.compile(made, threads=threads, options=shared)
    for _ in range(2):  # In the second run, memory holds old values.
        found = run(x=x)["y"]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("made", [inception(), dense()], ids=["inception", "dense"])
def test_padding_and_concatenation_are_not_copied(made: bytes) -> None:
    """Only the padding of the caller's array is copied; pieces are parts of their whole."""
    module, compilation = load(made)
    lower(module, compilation, until="assign-halos")
    padded = [op for op in copies(module) if len(op.pieces) == 1]
    joined = [op for op in copies(module) if len(op.pieces) > 1]
    assert len(padded) == 1 and joined
    for op in joined:
        halos = [halo_of(piece.type) for piece in op.pieces]
        assert all(halo is not None and halo.part == 3 for halo in halos)


def test_halos_of_a_view() -> None:
    """Grouped channels are a view of the padded tensor, whose halo is cleared once."""
    shapes = {"w": (4, 3, 1, 1), "v": (6, 2, 3, 3)}
    weights = [
        numpy_helper.from_array(RANDOM.standard_normal(shape).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["middle"]),
        helper.make_node("Conv", ["middle", "v"], ["y"], group=2, pads=[1] * 4),
    ]
    made = model(nodes, weights)
    x = RANDOM.standard_normal((2, 3, 7, 6)).astype(np.float32)
    expected = popgraph.compile(made, backend="reference")(x=x)["y"]
    options = Options(disabled=frozenset({"fuse-elementwise"}))
    found = popgraph.compile(made, options=options)(x=x)["y"]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_halos_of_one_pixel() -> None:
    """The average of one channel is a view of one element, which has no room for a halo."""
    layers = [("stem", "x", (3, 1)), ("one", "pooled", (1, 16)), ("y", "one", (16, 16))]
    made = [convolution(*layer, 3) for layer in layers]
    nodes = [node for node, _ in made]
    nodes.insert(1, helper.make_node("GlobalAveragePool", ["stem"], ["pooled"]))
    network = model(nodes, [weight for _, weight in made])
    x = RANDOM.standard_normal((2, 3, 7, 6)).astype(np.float32)
    expected = popgraph.compile(network, backend="reference")(x=x)["y"]
    run = popgraph.compile(network)
    for _ in range(2):  # In the second run, memory holds old values.
        np.testing.assert_allclose(run(x=x)["y"], expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("width", [3, 5], ids=["same", "wider"])
@pytest.mark.parametrize("threads", [1, 2])
def test_halos_of_empty_tensors(width: int, threads: int) -> None:
    """Padding around an empty tensor is all that is read, also through a view."""
    numbers = {
        "zero": np.array([0]),
        "axis": np.array([1]),
        "shape": np.array([2, 0, width]),
        "pads": np.array([0, 1, 0, 0, 1, 0]),
        "weight": RANDOM.standard_normal((width, 16)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Slice", ["x", "zero", "zero", "axis"], ["none"]),
        helper.make_node("Neg", ["none"], ["negative"]),
        helper.make_node("Reshape", ["negative", "shape"], ["viewed"], allowzero=1),
        helper.make_node("Pad", ["viewed", "pads"], ["padded"]),
        helper.make_node("MatMul", ["padded", "weight"], ["y"]),
    ]
    weights = [numpy_helper.from_array(value, name) for name, value in numbers.items()]
    module, compilation = load(model(nodes, weights, (2, 1, 3)))
    original = module.clone()
    lower(module, compilation, Options(threads=threads))
    assert_same_meaning(original, module, compilation.weights)


def separable(channels: int, *, concat: bool = False) -> bytes:
    """A 1x1 convolution and a depthwise one with a residual, or concatenated with its input."""
    first, weight = convolution("first", "x", (3, channels), 1)
    nodes = [first, helper.make_node("Relu", ["first"], ["middle"])]
    window = RANDOM.standard_normal((channels, 1, 3, 3)).astype(np.float32)
    options = {"group": channels, "pads": [1] * 4}
    nodes.append(helper.make_node("Conv", ["middle", "window"], ["z"], **options))
    if concat:
        nodes.append(helper.make_node("Concat", ["z", "middle"], ["y"], axis=1))
    else:
        nodes.append(helper.make_node("Add", ["z", "middle"], ["y"]))
    return model(nodes, [weight, numpy_helper.from_array(window, "window")])


@pytest.mark.parametrize(
    ("network", "machine", "wide"),
    [
        (separable(512), Machine(), 512 + 16),
        (separable(512), Machine().with_vectors(32, 16), 512 + 16),
        (separable(496), Machine(), 496),
        (separable(64), Machine(), 64),
        (separable(64), replace(Machine(), l1_ways_free=0), 64 + 16),
        (separable(512, concat=True), Machine(), 512),
        (separable(512), replace(Machine(), vector_bytes=4), 512),
    ],
)
def test_pixels_are_spread_over_l1(network: bytes, machine: Machine, wide: int) -> None:
    """Pixels of 512 channels begin in two sets of L1, those of 496 channels in all of them."""
    module, compilation = load(network)
    before = module.clone()
    lower(module, compilation, Options(machine=machine), until="assign-halos")
    window = depthwise(module)
    *_, pitch = physical_shape(tensor(window.lhs))
    assert pitch == wide
    assert not [op for op in copies(module) if op.output is window.lhs]
    assert_same_meaning(before, module, compilation.weights, tolerance=1e-5)


def test_filters_are_spread_like_pixels() -> None:
    """Values stay the same in planned memory, too."""
    made, options = separable(64), Options(machine=replace(Machine(), l1_ways_free=0))
    module, compilation = load(made)
    lower(module, compilation, options, until="assign-halos")
    window = depthwise(module)
    pitches = [physical_shape(tensor(value))[-1] for value in (window.lhs, window.rhs)]
    assert pitches == [80, 80]
    module, compilation = load(made)
    before = module.clone()
    lower(module, compilation, options)
    assert_same_meaning(before, module, compilation.weights, tolerance=1e-5)


def depthwise(module: ModuleOp) -> tile.ReduceOp:
    """The contraction with a window of 3x3 in a single channel."""
    (found,) = (
        op
        for op in module.walk()
        if tile.is_contraction(op) and op.sizes[op.parallel_rank :] == (1, 3, 3)
    )
    return found


IMAGE = (1, 3, 5, 6)
WINDOW = (("kernel_shape", (3, 3)), ("pads", (1, 1, 1, 1)))


def weights_of(*shape: int) -> Constant:
    return Constant(shape, "f64", seed=1)


def reader(name: str, source: int) -> Node:
    """An operation that reads past the edges of an image of three channels."""
    match name:
        case "Conv":
            return Node("Conv", (source, weights_of(4, 3, 3, 3)), (("pads", (1, 1, 1, 1)),))
        case "depthwise":
            flags = (("pads", (1, 1, 1, 1)), ("group", 3))
            return Node("Conv", (source, weights_of(3, 1, 3, 3)), flags)
        case "AveragePool":
            return Node(name, (source,), (*WINDOW, ("count_include_pad", 1)))
        case "MaxPool":
            return Node(name, (source,), WINDOW)
    return Node("Pad", (source, vector(0, 0, 1, 2, 0, 0, 2, 1), Constant((), "f64", fill=0.0)))


@pytest.mark.parametrize("name", ["Conv", "depthwise", "AveragePool", "MaxPool", "Pad"])
@pytest.mark.parametrize("axis", [2, 3])
def test_concatenations_along_an_image_are_read_past_their_ends(name: str, axis: int) -> None:
    nodes = [
        Node("Exp", (0,)),
        Node("Relu", (0,)),
        Node("Concat", (1, 2), (("axis", axis),)),
        reader(name, 3),
        Node("Tanh", (4,)),
    ]
    assert_compiles_to_the_same(Network((IMAGE,), tuple(nodes), "f64", (5,)))


@pytest.mark.parametrize("first", [0, 1], ids=["window-first", "image-first"])
@pytest.mark.parametrize("axis", [2, 3])
@pytest.mark.parametrize("name", ["depthwise", "AveragePool", "MaxPool"])
def test_a_piece_of_a_concatenation_is_read_past_its_ends(name: str, axis: int, first: int) -> None:
    pieces = (2, 1) if first == 0 else (1, 2)
    nodes = [
        Node("Relu", (0,)),
        reader(name, 1),
        Node("Concat", pieces, (("axis", axis),)),
        Node("Tanh", (3,)),
    ]
    assert_compiles_to_the_same(Network((IMAGE,), tuple(nodes), "f64", (4,)))


@pytest.mark.parametrize("name", ["Neg", "Sin", "Identity", "Relu", "Tanh"])
@pytest.mark.parametrize("first", ["MaxPool", "AveragePool", "Conv"])
def test_max_pools_after_functions_with_negative_values(name: str, first: str) -> None:
    """A zero halo equals a halo of -inf only until an operation changes the sign."""
    nodes = [
        Node("Relu", (0,)),
        reader(first, 1),
        Node(name, (2,)),
        Node("MaxPool", (3,), WINDOW),
        Node("Tanh", (4,)),
    ]
    assert_compiles_to_the_same(Network((IMAGE,), tuple(nodes), "f64", (5,)))


def assert_compiles_to_the_same(network: Network) -> None:
    """Compares the compiled program, in uninitialized memory, with the reference."""
    compilation = Compilation()
    module = build_network(network, compilation.weights)
    original = module.clone()
    lower(module, compilation)
    assert_same_meaning(original, module, compilation.weights, tolerance=1e-9)


def test_reads_past_a_halo_do_not_verify() -> None:
    """The verifier knows the halo of a tensor, and that a part has none of its own."""
    text = """
        builtin.module {{
          pg.graph @main inputs [#pg.bytes<"x">] {{
          ^bb0(%0: tensor<4x3xf64, #tile.layout<affine_map<(d0, d1) -> (d0, d1 + 1)>, \
#pg.ints[4, 5]{part}>>):
            %1 = tile.map ins(%0 : tensor<4x3xf64, #tile.layout<affine_map<(d0, d1) -> \
(d0, d1 + 1)>, #pg.ints[4, 5]{part}>>) domain [4, 5] maps \
[affine_map<(d0, d1) -> (d0, d1 - 1)>] {{
            ^bb0(%2: f64):
              tile.yield %2 : f64
            }} -> tensor<4x5xf64>
            pg.return [#pg.bytes<"y">], %1 : tensor<4x5xf64>
          }}
        }}"""
    Parser(Compilation(), text.format(part="")).parse_module().verify()
    with pytest.raises(VerifyException, match="exceeds"):
        Parser(Compilation(), text.format(part=", part 1")).parse_module().verify()
