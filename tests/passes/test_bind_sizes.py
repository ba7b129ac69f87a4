"""Tests programs whose loops end at run-time sizes against programs of exactly these sizes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser

from popgraph.backends.reference.executable import run
from popgraph.backends.registry import backend_named
from popgraph.compiler.loading import load
from popgraph.compiler.lowering import lower
from popgraph.compiler.requests import for_this_machine
from popgraph.compiler.sizes import specialise
from popgraph.dialects.onnx.containers import input_types
from popgraph.dialects.onnx.types import dims
from popgraph.dialects.program.sizes import set_sizes, sizes_of
from popgraph.dialects.registry import IRContext
from popgraph.passes.base import Compilation
from popgraph.passes.options import Options
from popgraph.support.arrays import Array
from popgraph.support.errors import UnsizedError
from popgraph.support.sizes import Size, SizedAxis

BOUND = 37
SIZES = (1, 2, 3, 16, 19, BOUND - 1, BOUND)
"""One, a few, a vector, odd ones, and the bound."""

BLOCK = """
graph block(x: f32[N, 6, 16]) -> y {
    weight w: f32[16, 48] = glorot_uniform
    weight v: f32[16, 16] = glorot_uniform
    weight scale: f32[16] = ones
    weight shift: f32[16] = zeros
    normal = LayerNormalization(x, scale, shift)
    (q, k, value) = Split(normal @ w, axis=-1, num_outputs=3)
    heads = Reshape(q, [0, 6, 2, 8])
    keys = Reshape(k, [0, 6, 2, 8])
    values = Reshape(value, [0, 6, 2, 8])
    scores = Transpose(heads, perm=[0, 2, 1, 3]) @ Transpose(keys, perm=[0, 2, 3, 1])
    mixed = Softmax(scores * 0.25) @ Transpose(values, perm=[0, 2, 1, 3])
    y = x + Reshape(Transpose(mixed, perm=[0, 2, 1, 3]), [0, 6, 16]) @ v
}
"""
MODELS = {
    "mlp": """
graph mlp(x: f32[N, 20]) -> y {
    weight w: f32[20, 64] = glorot_uniform
    weight b: f32[64] = uniform(-1, 1)
    weight v: f32[64, 10] = glorot_uniform
    y = Softmax(Relu(x @ w + b) @ v)
}
""",
    "convolutions": """
graph convolutions(x: f32[N, 3, 12, 12]) -> y {
    weight w: f32[16, 3, 5, 5] = he_normal
    weight b: f32[16] = uniform(-1, 1)
    weight depth: f32[16, 1, 3, 3] = he_normal
    weight point: f32[24, 16, 1, 1] = he_normal
    weight last: f32[24, 5] = glorot_uniform
    h = MaxPool(Relu(Conv(x, w, b, pads=[2, 2, 2, 2])), kernel_shape=[2, 2], strides=[2, 2])
    g = Relu(Conv(Conv(h, depth, pads=[1, 1, 1, 1], group=16), point))
    y = Flatten(GlobalAveragePool(g)) @ last
}
""",
    "block": BLOCK,
    "transposes": """
graph transposes(x: f32[N, 8, 24]) -> y {
    y = Transpose(x, perm=[0, 2, 1]) * 2.0
}
""",
    "pieces": """
graph pieces(x: f32[N, 5], y: f32[N, 3]) -> z {
    z = Concat(x, y, ReduceMax(x, [1]), axis=1)
}
""",
    "returned": """
graph returned(x: f32[N, 6]) -> (same, flat, y, again) {
    same = Identity(x)
    flat = Reshape(x, [-1, 2])
    y = Relu(x)
    again = Reshape(y, [0, 2, 3])
}
""",
    "products": """
graph products(x: f32[N, 5, 12], y: f32[N, 12, 7], z: f32[N, 9, 9]) -> (a, b, c) {
    weight w: f32[7, 9] = glorot_uniform
    a = x @ y
    b = w @ z + x[0, 0, 0]
    c = ReduceSum(Transpose(z, perm=[0, 2, 1]), [1])
}
""",
    "recurrent": """
graph recurrent(x: f32[N, 3, 12], h: f32[N, 1, 20], c: f32[N, 1, 20]) -> (y, last, cell) {
    weight w: f32[1, 80, 12] = glorot_uniform
    weight r: f32[1, 80, 20] = glorot_uniform
    weight b: f32[1, 160] = uniform(-1, 1)
    (y, last, cell) = LSTM(x, w, r, b, _, h, c, hidden_size=20, layout=1)
}
""",
    "columns": """
graph columns(x: f32[N, 40]) -> y {
    y = (x - ReduceMax(x, [0])) * ReduceMin(x, [0])
}
""",
    "row": """
graph row(x: f32[N]) -> y {
    y = x - ReduceMax(x, [0])
}
""",
    "places": """
graph places(x: f32[N, 40]) -> places {
    (_, places) = TopK(x, [5])
}
""",
}
INNER = {
    "winograd": """
graph winograd(x: f32[N, 32, 10, 10]) -> y {
    weight w: f32[64, 32, 3, 3] = he_normal
    weight b: f32[64] = uniform(-1, 1)
    weight v: f32[64, 64, 3, 3] = he_normal
    h = Relu(Conv(x, w, b, pads=[1, 1, 1, 1]))
    y = Relu(Conv(h, v, pads=[1, 1, 1, 1]) + h)
}
""",
    "transformed": """
graph transformed(x: f32[N, 128, 7, 7]) -> y {
    weight w: f32[128, 128, 3, 3] = he_normal
    y = Relu(Conv(x, w, pads=[1, 1, 1, 1]))
}
""",
    "chain": """
graph chain(x: f32[N, 8, 8, 8]) -> y {
    weight w: f32[192, 8, 1, 1] = he_normal
    weight b: f32[192] = uniform(-1, 1)
    weight d: f32[192, 1, 3, 3] = he_normal
    weight v: f32[8, 192, 1, 1] = he_normal
    h = Relu(Conv(x, w, b))
    y = Conv(Relu(Conv(h, d, pads=[1, 1, 1, 1], group=192)), v)
}
""",
    "repeats": """
graph repeats(x: f32[N, 12], often: i64) -> y {
    weight w: f32[12, 12] = glorot_uniform
    weight v: f32[12, 5] = glorot_uniform
    h = loop i in 0..often with h = x {
        h = Tanh(h @ w) + x
    }
    y = h @ v
}
""",
    "branches": """
graph branches(x: f32[N, 12], often: i64) -> y {
    weight w: f32[12, 12] = glorot_uniform
    h = if often > 1 {
        h = Tanh(x @ w)
    } else {
        h = x * 2.0
    }
    y = Softmax(h)
}
""",
    "second": """
graph second(x: f32[6, N, 12]) -> y {
    weight w: f32[12, 20] = glorot_uniform
    weight b: f32[20] = uniform(-1, 1)
    y = Relu(x @ w + b)
}
""",
    "recurrent": """
graph recurrent(x: f32[3, N, 12], h: f32[2, N, 20]) -> y {
    weight w: f32[2, 60, 12] = glorot_uniform
    weight r: f32[2, 60, 20] = glorot_uniform
    weight b: f32[2, 120] = uniform(-1, 1)
    (y, _) = GRU(x, w, r, b, _, h, hidden_size=20, direction="bidirectional")
}
""",
    "scanned": """
graph scanned(x: f32[6, N, 12]) -> outs {
    weight w: f32[12, 12] = glorot_uniform
    start = x[0] * 0.0
    (h, outs) = loop row in x with h = start {
        h = Tanh(h @ w + row)
        outs = h
    }
}
""",
}
"""Models whose sizes bound loops inside of fused kernels, other loops, and bodies."""

REACHED = {
    "winograd": "tile.fused",
    "transformed": "tile.transform_tiles",
    "chain": "tile.fused",
    "repeats": "pg.call_loop",
    "branches": "pg.call_cond",
    "second": "tile.reduce",
    "recurrent": "pg.call_loop",
    "scanned": "pg.call_loop",
}
"""The operation that each model of INNER must contain."""

FEW = 5
"""With this small bound, channels of all images fit in local memory."""
UNSIZED = {
    "graph turned(x: f32[N, 4]) -> y {\n y = x[::-1]\n}": (
        "reads and writes different parts of a size"
    ),
    "graph first(x: f32[N, 32, 30], w: f32[8, 32]) -> y {\n y = w @ x[0]\n}": (
        "multiplies by the first index of a size only"
    ),
    "graph longer(x: f32[N, 4]) -> y {\n y = Concat(x, x, axis=0)\n}": "along a size",
}


def bound(
    text: str, options: Options, level: str, most: int = BOUND
) -> tuple[ModuleOp, Compilation]:
    """Lowers a model whose dimension N is a run-time size."""
    module, compilation = load(text)
    places = [
        SizedAxis(name, axis)
        for name, type_ in input_types(module).items()
        for axis, dim in enumerate(dims(type_) or ())
        if dim == "N"
    ]
    specialise(module, compilation, {"N": most})
    set_sizes(module, [Size("N", most, tuple(places))])
    return lower(module, compilation, options, level=level), compilation


def exact(text: str, size: int, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of the model of exactly this size, for the leading slice of the inputs."""
    module, compilation = load(text)
    specialise(module, compilation, {"N": size})
    lower(module, compilation, level="graphcore")
    given = {name: array[:size] for name, array in inputs.items()}
    return run(module, given, compilation.weights, None)[0]


def front(array: Array, axis: int, size: int) -> Array:
    """The slice of an array up to a size along an axis."""
    return array[(slice(None),) * axis + (slice(size),)]


def inner_inputs(text: str, size: int, most: int) -> tuple[dict[str, Array], dict[str, Array]]:
    """Inputs of a size, exact, and padded with NaN up to the bound."""
    module, _ = load(text)
    exactly, padded = dict[str, Array](), dict[str, Array]()
    for name, type_ in input_types(module).items():
        shape = dims(type_) or ()
        if "N" not in shape:
            exactly[name] = padded[name] = np.array(2)
            continue
        full = np.full([most if dim == "N" else int(dim or 0) for dim in shape], np.nan, np.float32)
        part = front(full, shape.index("N"), size)
        part[...] = np.random.default_rng(0).standard_normal(part.shape)
        exactly[name], padded[name] = np.ascontiguousarray(part), full
    return exactly, padded


def garbage_behind(size: int, shape: tuple[int, ...]) -> Array:
    """Random numbers up to a size, then NaN, which must not be read."""
    made = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    made[size:] = np.nan
    return made


def inputs_of(text: str, size: int) -> dict[str, Array]:
    module, compilation = load(text)
    specialise(module, compilation, {"N": BOUND})
    return {
        name: garbage_behind(size, tuple(int(dim or 0) for dim in dims(type_) or ()))
        for name, type_ in input_types(module).items()
    }


@pytest.mark.parametrize("level", ["structured", "loops", "program"])
@pytest.mark.parametrize("name", MODELS)
def test_loops_end_at_sizes_in_the_reference(name: str, level: str) -> None:
    text = MODELS[name]
    module, compilation = bound(text, Options(), level)
    (size_of,) = sizes_of(module)
    for size in (2, BOUND - 1) if level == "structured" else (3,):
        inputs = inputs_of(text, size)
        found, _ = run(module, inputs | {"N": np.array(size)}, compilation.weights, None)
        for output, expected in exact(text, size, inputs).items():
            assert [place.tensor for place in size_of.outputs] == [*found]
            np.testing.assert_allclose(found[output][: len(expected)], expected, 1e-4, 1e-5)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", MODELS)
def test_loops_end_at_sizes_in_c(name: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POPGRAPH_POISON", "1")
    text = MODELS[name]
    options = for_this_machine(Options(), threads)
    module, compilation = bound(text, options, "program")
    program = backend_named("c").build(module, compilation.weights, threads=threads)
    for size in SIZES:
        inputs = inputs_of(text, size)
        found = program.run({name: array[:size] for name, array in inputs.items()})
        for output, expected in exact(text, size, inputs).items():
            np.testing.assert_allclose(found[output], expected, 1e-4, 1e-5)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", INNER)
def test_loops_end_at_sizes_inside_of_kernels_and_bodies(
    name: str, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POPGRAPH_POISON", "1")
    text, options = INNER[name], for_this_machine(Options(), threads)
    module, compilation = bound(text, options, "structured", FEW)
    (size_of,) = sizes_of(module)
    (output,) = size_of.outputs
    if threads == 1:
        assert REACHED[name] in str(module)
        _, padded = inner_inputs(text, 2, FEW)
        found, _ = run(module, padded | {"N": np.array(2)}, compilation.weights, None)
        compare_front(text, output, 2, found)
    lower(module, compilation, options)
    program = backend_named("c").build(module, compilation.weights, threads=threads)
    for size in range(1, FEW + 1):
        exactly, _ = inner_inputs(text, size, FEW)
        compare_front(text, output, size, program.run(exactly))


def compare_front(text: str, output: SizedAxis, size: int, found: Mapping[str, Array]) -> None:
    """Compares the outputs up to a size with the program of exactly this size."""
    module, compilation = load(text)
    specialise(module, compilation, {"N": size})
    lower(module, compilation, level="graphcore")
    exactly, _ = inner_inputs(text, size, FEW)
    expected, _ = run(module, exactly, compilation.weights, None)
    mine = front(found[output.tensor], output.axis, size)
    np.testing.assert_allclose(mine, expected[output.tensor], 1e-3, 1e-4)


@pytest.mark.parametrize("text", UNSIZED)
def test_models_that_depend_on_a_size_are_refused(text: str) -> None:
    with pytest.raises(UnsizedError, match=UNSIZED[text]):
        bound(text, Options(), "structured")


def test_programs_without_sizes_are_unchanged() -> None:
    module, compilation = load(MODELS["mlp"])
    specialise(module, compilation, {"N": BOUND})
    lower(module, compilation, level="structured")
    assert "running" not in str(module)


@pytest.mark.parametrize("name", ["N", 'a "quoted" name', "100%", "Größe", "back\\slash", "<>, ()"])
def test_sizes_of_any_name_are_read_back(name: str) -> None:
    module = ModuleOp([])
    size = Size(name, 64, (SizedAxis(name, 1, 3),), (SizedAxis("y", 0), SizedAxis(name, 2, 5)))
    set_sizes(module, [size])
    assert sizes_of(Parser(IRContext(), str(module)).parse_module()) == (size,)
