"""Tests that programs for many sizes read nothing past the arrays of a call."""

from __future__ import annotations

import ctypes
import mmap
import sys

import numpy as np
import pytest

import popgraph
from popgraph.backends.c.run import executable
from popgraph.backends.registry import backend_named
from popgraph.compiler.lowering import lower
from popgraph.compiler.requests import for_this_machine
from popgraph.dialects.program.sizes import sizes_of
from popgraph.passes.options import Options
from popgraph.support.arrays import Array
from tests.passes.test_bind_sizes import (
    BOUND,
    FEW,
    INNER,
    MODELS,
    bound,
    compare_front,
    exact,
    inner_inputs,
    inputs_of,
)


def guarded(array: Array) -> Array:
    """The array in memory that ends at an inaccessible page."""
    size = -(-array.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, size + mmap.PAGESIZE)
    begin = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    assert not libc.mprotect(ctypes.c_void_p(begin + size), mmap.PAGESIZE, 0)
    made = np.frombuffer(memory, array.dtype, array.size, size - array.nbytes)
    made = made.reshape(array.shape)
    made[...] = array
    return made


@pytest.mark.skipif(sys.platform == "win32", reason="memory cannot be protected this way")
@pytest.mark.parametrize("name", MODELS)
def test_nothing_past_an_input_is_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An access past the end kills the process."""
    monkeypatch.setattr(executable, "LARGE", 0)
    text = MODELS[name]
    module, compilation = bound(text, for_this_machine(Options()), "program")
    program = backend_named("c").build(module, compilation.weights)
    for size in (1, 2, 7, BOUND - 1):
        inputs = {name: array[:size] for name, array in inputs_of(text, size).items()}
        found = program.run({name: guarded(array) for name, array in inputs.items()})
        for output, expected in exact(text, size, inputs).items():
            np.testing.assert_allclose(found[output], expected, 1e-4, 1e-5)


PASSED_ON = {
    "a loop": "y = loop i in 0..often with y = x {\n  y = Tanh(y) * 2.0\n }\n",
    "a branch": "y = if often > 1 {\n  y = Tanh(x)\n } else {\n  y = x\n }\n",
    "rows": (
        "start = ReduceMax(x, [0], keepdims=0)\n (h, y) = loop row in x with h = start {\n"
        "  h = Tanh(h + row)\n  y = h * 2.0\n }\n"
    ),
    "an iteration": "y = loop i in 0..often with y = Tanh(x) {\n  y = x\n }\n",
}


@pytest.mark.skipif(sys.platform == "win32", reason="memory cannot be protected this way")
@pytest.mark.parametrize("what", PASSED_ON)
def test_inputs_passed_through_bodies_are_copied_whole(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executable, "LARGE", 0)
    text = f"graph passes(x: f32[N, 12], often: i64) -> y {{\n {PASSED_ON[what]}}}\n"
    program = popgraph.compile(text, bounds={"N": 4096})
    for often in (0, 1):
        x = guarded(np.ones((3, 12), np.float32))
        found = program(x=x, often=np.array(often))["y"]
        expected = popgraph.compile(text, backend="reference")(x=x, often=np.array(often))["y"]
        np.testing.assert_allclose(found, expected, 1e-6)
    assert [dict(one.bounds) for one in program.programs] == [{"N": 4096}]


@pytest.mark.skipif(sys.platform == "win32", reason="memory cannot be protected this way")
@pytest.mark.parametrize("name", INNER)
def test_kernels_and_bodies_read_nothing_past_an_input(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executable, "LARGE", 0)
    text, options = INNER[name], for_this_machine(Options())
    module, compilation = bound(text, options, "structured", FEW)
    (size_of,) = sizes_of(module)
    lower(module, compilation, options)
    program = backend_named("c").build(module, compilation.weights)
    for size in range(1, FEW):
        inputs, _ = inner_inputs(text, size, FEW)
        found = program.run({name: guarded(array) for name, array in inputs.items()})
        compare_front(text, size_of.outputs[0], size, found)
