"""Programs whose loops end at sizes of the call, compared with programs of just these sizes."""

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
from popgraph.dialects.onnx.graphs import input_types
from popgraph.dialects.onnx.types import dims
from popgraph.dialects.program.sizes import set_sizes, sizes_of
from popgraph.dialects.registry import IRContext
from popgraph.passes.base import Compilation
from popgraph.passes.options import Options
from popgraph.support.arrays import Array
from popgraph.support.errors import UnsizedError
from popgraph.support.sizes import Place, Size

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
}
UNSIZED = {
    "graph sums(x: f32[N, 4]) -> y {\n y = ReduceSum(x, [0])\n}": "adds up along a size",
    "graph turned(x: f32[N, 4]) -> y {\n y = x[::-1]\n}": "reads another part of a size",
    "graph longer(x: f32[N, 4]) -> y {\n y = Concat(x, x, axis=0)\n}": "along a size",
}


def bound(text: str, options: Options, level: str) -> tuple[ModuleOp, Compilation]:
    """A model whose dimension N is a size of the call, down to a level."""
    module, compilation = load(text)
    places = [
        Place(name, axis)
        for name, type_ in input_types(module).items()
        for axis, dim in enumerate(dims(type_) or ())
        if dim == "N"
    ]
    specialise(module, compilation, {"N": BOUND})
    set_sizes(module, [Size("N", BOUND, tuple(places))])
    return lower(module, compilation, options, level=level), compilation


def exact(text: str, size: int, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """What the model of just this size computes, from the front of the inputs."""
    module, compilation = load(text)
    specialise(module, compilation, {"N": size})
    lower(module, compilation, level="graphcore")
    given = {name: array[:size] for name, array in inputs.items()}
    return run(module, given, compilation.weights, None)[0]


def garbage_behind(size: int, shape: tuple[int, ...]) -> Array:
    """Numbers up to a size, and behind it what must not be read."""
    made = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    made[size:] = np.nan
    return made


def inputs_of(text: str, size: int) -> dict[str, Array]:
    module, compilation = load(text)
    specialise(module, compilation, {"N": BOUND})
    return {
        name: garbage_behind(size, tuple(int(dim) for dim in dims(type_) or ()))
        for name, type_ in input_types(module).items()
    }


@pytest.mark.parametrize("level", ["structured", "loops", "program"])
@pytest.mark.parametrize("name", MODELS)
def test_reference_runs_to_sizes(name: str, level: str) -> None:
    text = MODELS[name]
    module, compilation = bound(text, Options(), level)
    (size_of,) = sizes_of(module)
    for size in (2, BOUND - 1) if level == "structured" else (3,):
        inputs = inputs_of(text, size)
        found, _ = run(module, inputs | {"N": np.array(size)}, compilation.weights, None)
        for output, expected in exact(text, size, inputs).items():
            assert [place.tensor for place in size_of.outputs] == [*found]
            np.testing.assert_allclose(found[output][:size], expected, 1e-4, 1e-5)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", MODELS)
def test_c_runs_to_sizes(name: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.parametrize("text", UNSIZED)
def test_sizes_of_the_program_are_refused(text: str) -> None:
    with pytest.raises(UnsizedError, match=UNSIZED[text]):
        bound(text, Options(), "structured")


def test_programs_without_sizes_stay_as_they_are() -> None:
    module, compilation = load(MODELS["mlp"])
    specialise(module, compilation, {"N": BOUND})
    lower(module, compilation, level="structured")
    assert "running" not in str(module)


@pytest.mark.parametrize("name", ["N", 'a "quoted" name', "100%", "Größe", "back\\slash", "<>, ()"])
def test_sizes_of_any_name_are_read_back(name: str) -> None:
    module = ModuleOp([])
    size = Size(name, 64, (Place(name, 1, 3),), (Place("y", 0), Place(name, 2, 5)))
    set_sizes(module, [size])
    assert sizes_of(Parser(IRContext(), str(module)).parse_module()) == (size,)
