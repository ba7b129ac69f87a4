"""Tests that programs for many sizes read and write no further than the arrays of a call go."""

from __future__ import annotations

import ctypes
import mmap
import sys
from typing import Any

import numpy as np
import pytest

from popgraph.backends.c.memory import zero_copy
from popgraph.backends.c.memory.pages import address
from popgraph.backends.c.run import executable
from popgraph.backends.registry import backend_named
from popgraph.compiler.lowering import lower
from popgraph.compiler.requests import for_this_machine
from popgraph.dialects.program.sizes import sizes_of
from popgraph.passes.options import Options
from popgraph.support.arrays import Array
from popgraph.support.shapes import Shape
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
    """The array in memory that ends where a page begins that must not be read."""
    size = -(-array.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, size + mmap.PAGESIZE)
    begin = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    assert not libc.mprotect(ctypes.c_void_p(begin + size), mmap.PAGESIZE, 0)
    made = np.frombuffer(memory, array.dtype, array.size, size - array.nbytes)
    made = made.reshape(array.shape)
    made[...] = array
    return made


def guarded_output(shape: Shape, dtype: np.dtype[Any], _: int) -> tuple[Array, int]:
    """New memory of this kind, for an output."""
    made = guarded(np.empty(shape, dtype))
    return made, address(made)


@pytest.fixture(autouse=True)
def in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs have no memory of their own for inputs and outputs, however small these are."""
    monkeypatch.setattr(executable, "LARGE", 0)
    monkeypatch.setattr(zero_copy, "fresh_array", guarded_output)


GUARDED = pytest.mark.skipif(sys.platform == "win32", reason="memory cannot be protected this way")


@GUARDED
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", MODELS)
def test_nothing_behind_an_array_is_touched(name: str, threads: int) -> None:
    """A program that reads or writes on ends this process."""
    text = MODELS[name]
    module, compilation = bound(text, for_this_machine(Options(), threads), "program")
    program = backend_named("c").build(module, compilation.weights, threads=threads)
    for size in (1, 2, 7, BOUND - 1):
        inputs = {name: array[:size] for name, array in inputs_of(text, size).items()}
        found = program.run({name: guarded(array) for name, array in inputs.items()})
        for output, expected in exact(text, size, inputs).items():
            np.testing.assert_allclose(found[output], expected, 1e-4, 1e-5)


@GUARDED
@pytest.mark.parametrize("name", INNER)
def test_kernels_and_bodies_touch_nothing_behind_an_array(name: str) -> None:
    text = INNER[name]
    module, compilation = bound(text, for_this_machine(Options()), "structured", FEW)
    (size_of,) = sizes_of(module)
    lower(module, compilation, for_this_machine(Options()))
    program = backend_named("c").build(module, compilation.weights)
    for size in range(1, FEW):
        inputs, _ = inner_inputs(text, size, FEW)
        found = program.run({name: guarded(array) for name, array in inputs.items()})
        compare_front(text, size_of.outputs[0], size, found)
