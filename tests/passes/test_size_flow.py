"""Tests programs that reduce along run-time sizes against programs of exactly these sizes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

from popgraph.backends.reference.executable import run
from popgraph.backends.registry import backend_named
from popgraph.compiler.loading import load
from popgraph.compiler.lowering import lower
from popgraph.compiler.requests import for_this_machine
from popgraph.compiler.sizes import specialise
from popgraph.dialects.onnx.containers import input_types
from popgraph.dialects.onnx.types import dims
from popgraph.dialects.program.sizes import set_sizes
from popgraph.passes.base import Compilation
from popgraph.passes.options import Options
from popgraph.support.arrays import Array
from popgraph.support.sizes import Size, SizedAxis

BOUNDS = {"N": 5, "L": 37}
CALLS = (
    {"N": 1, "L": 1},
    {"N": 2, "L": 2},
    {"N": 3, "L": 3},
    {"N": 4, "L": 8},
    {"N": 5, "L": 16},
    {"N": 1, "L": 31},
    {"N": 4, "L": 36},
    {"N": 5, "L": 37},
)
"""Ones, vectors, primes, one below the bounds, and the bounds."""

ENCODER = """
graph encoder(x: f32[{batch}, L, 16], mask: f32[{batch}, 1, 1, L]) -> y {{
    weight w: f32[16, 48] = glorot_uniform
    weight v: f32[16, 16] = glorot_uniform
    weight up: f32[16, 64] = glorot_uniform
    weight down: f32[64, 16] = glorot_uniform
    weight scale: f32[16] = ones
    weight shift: f32[16] = zeros
    normal = LayerNormalization(x, scale, shift)
    (q, k, value) = Split(normal @ w, axis=-1, num_outputs=3)
    heads = Reshape(q, [0, 0, 2, 8])
    keys = Reshape(k, [0, 0, 2, 8])
    values = Reshape(value, [0, 0, 2, 8])
    scores = Transpose(heads, perm=[0, 2, 1, 3]) @ Transpose(keys, perm=[0, 2, 3, 1])
    mixed = Softmax(scores * 0.25 + mask) @ Transpose(values, perm=[0, 2, 1, 3])
    h = x + Reshape(Transpose(mixed, perm=[0, 2, 1, 3]), [0, 0, 16]) @ v
    y = h + Relu(h @ up) @ down
}}
"""
MODELS = {
    "sums": """
graph sums(x: f32[L, 24], z: f32[3, L]) -> (total, most, along, square, every) {
    total = ReduceSum(x, [0])
    most = ReduceMax(x, [0])
    along = ReduceMin(z, [1])
    square = ReduceSumSquare(z, [1])
    every = ReduceSum(x * x)
}
""",
    "softmax": """
graph softmax(x: f32[3, L]) -> (y, z) {
    y = Softmax(x)
    z = LogSoftmax(x * 2.0)
}
""",
    "gradients": """
graph gradients(x: f32[L, 20], dy: f32[L, 24]) -> (dw, db, dx) {
    weight w: f32[20, 24] = glorot_uniform
    dw = Transpose(x) @ dy
    db = ReduceSum(dy, [0])
    dx = Relu(dy @ Transpose(w))
}
""",
    "lanes": """
graph lanes(x: f32[20, L], y: f32[L, 20]) -> (a, b, c) {
    weight w: f32[10, 20] = glorot_uniform
    a = w @ x
    b = Relu(w @ Transpose(y) * 2.0)
    c = y @ x
}
""",
    "encoder": ENCODER.format(batch=2),
    "encoders": ENCODER.format(batch="N"),
    "places": """
graph places(x: f32[L], z: f32[L]) -> y {
    y = ScatterElements([0.0, 0.0, 0.0], Cast(Min(Abs(x), 2.0), to=7), z, reduction="add")
}
""",
    "steps": """
graph steps(x: f32[L, N, 12], z: f32[L, 12]) -> (y, last, outs) {
    weight w: f32[1, 80, 12] = glorot_uniform
    weight r: f32[1, 80, 20] = glorot_uniform
    weight v: f32[12, 12] = glorot_uniform
    (y, last, _) = LSTM(x, w, r, hidden_size=20)
    start = ReduceMax(z, [0], keepdims=0)
    (h, outs) = loop row in z with h = start {
        h = Tanh(h @ v + row)
        outs = h * 2.0
    }
}
""",
    "itself": """
graph itself(x: f32[L, 24]) -> y {
    y = Softmax(x @ Transpose(x))
}
""",
    "both": """
graph both(x: f32[N, L, 8], y: f32[N, L, 12]) -> (a, b, c) {
    a = Transpose(x, perm=[0, 2, 1]) @ y
    b = ReduceSum(x, [0, 1])
    c = Transpose(x, perm=[1, 0, 2]) + 1.0
}
""",
}


def sized_dims(text: str) -> dict[str, list[tuple[int, str]]]:
    """The axes of each input that are run-time sizes."""
    module, _ = load(text)
    return {
        name: [(axis, dim) for axis, dim in enumerate(dims(type_) or ()) if isinstance(dim, str)]
        for name, type_ in input_types(module).items()
    }


def names_in(text: str) -> list[str]:
    """Names of the sizes of a model."""
    return sorted({dim for found in sized_dims(text).values() for _, dim in found})


def bound(text: str, options: Options, level: str) -> tuple[ModuleOp, Compilation]:
    """Lowers a model whose named dimensions are run-time sizes."""
    module, compilation = load(text)
    axes = sized_dims(text)
    bounds = {name: BOUNDS[name] for name in names_in(text)}
    specialise(module, compilation, bounds)
    places = {
        name: tuple(SizedAxis(one, at) for one in axes for at, dim in axes[one] if dim == name)
        for name in bounds
    }
    set_sizes(module, [Size(name, most, places[name]) for name, most in bounds.items()])
    return lower(module, compilation, options, level=level), compilation


def inputs_of(text: str, call: Mapping[str, int]) -> dict[str, Array]:
    """Random numbers up to the sizes, then NaN, which must not be read."""
    module, compilation = load(text)
    specialise(module, compilation, {name: BOUNDS[name] for name in names_in(text)})
    found = {}
    for name, type_ in input_types(module).items():
        shape = tuple(dim for dim in dims(type_) or () if isinstance(dim, int))
        made = np.full(shape, np.nan, np.float32)
        front = front_of(text, name, call)
        made[front] = np.random.default_rng(0).standard_normal(made[front].shape)
        found[name] = made
    return found


def front_of(text: str, name: str, call: Mapping[str, int]) -> tuple[slice, ...]:
    """The slice of an input that a call passes."""
    axes = dict(sized_dims(text)[name])
    return tuple(
        slice(0, call[axes[axis]]) if axis in axes else slice(None)
        for axis in range(max(axes, default=-1) + 1)
    )


def exact(text: str, call: Mapping[str, int], inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of the model of exactly these sizes."""
    module, compilation = load(text)
    specialise(module, compilation, {name: call[name] for name in names_in(text)})
    lower(module, compilation, level="graphcore")
    return run(module, inputs, compilation.weights, None)[0]


def leading_slices(
    text: str, call: Mapping[str, int], inputs: Mapping[str, Array]
) -> dict[str, Array]:
    """The inputs of a call."""
    return {
        name: np.ascontiguousarray(array[front_of(text, name, call)])
        for name, array in inputs.items()
    }


@pytest.mark.parametrize("level", ["structured", "loops"])
@pytest.mark.parametrize("name", MODELS)
def test_reductions_end_at_sizes_in_the_reference(name: str, level: str) -> None:
    text = MODELS[name]
    module, compilation = bound(text, Options(), level)
    call = CALLS[2]
    inputs = inputs_of(text, call)
    numbers = {one: np.array(call[one]) for one in names_in(text)}
    found, _ = run(module, inputs | numbers, compilation.weights, None)
    for output, expected in exact(text, call, leading_slices(text, call, inputs)).items():
        part = found[output][tuple(slice(0, size) for size in expected.shape)]
        np.testing.assert_allclose(part, expected, 1e-4, 1e-5)


@pytest.mark.parametrize("target", ["native", "avx2"])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", MODELS)
def test_reductions_end_at_sizes_in_c(
    name: str, threads: int, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POPGRAPH_POISON", "1")
    monkeypatch.setenv("POPGRAPH_TARGET", target)
    text = MODELS[name]
    options = for_this_machine(Options(), threads)
    module, compilation = bound(text, options, "program")
    program = backend_named("c").build(module, compilation.weights, threads=threads)
    for call in CALLS:
        given = leading_slices(text, call, inputs_of(text, call))
        found = program.run(given)
        for output, expected in exact(text, call, given).items():
            if output.startswith("check of "):  # checks are not outputs: the program has run them
                continue
            assert found[output].shape == expected.shape
            np.testing.assert_allclose(found[output], expected, 1e-4, 1e-5, err_msg=str(call))
