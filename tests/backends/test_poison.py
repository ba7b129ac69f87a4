"""Tests poison mode: reads of unwritten memory give NaN."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from xdsl.builder import ImplicitBuilder
from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, MemRefType, ModuleOp, f32, i64
from xdsl.ir import SSAValue

import popgraph
import tests.backends.c_kernels as kernels
from popgraph.backends.c.memory.zero_copy import LARGE
from popgraph.dialects.tile import BufferOp, CallOp, ProgramOp
from popgraph.support import dtypes
from popgraph.support.poison import SWITCH, fill_with_poison
from tests.backends.c_kernels import executable

PADDED = """
opset 13

graph padded(x: f32[1, 3, 12, 12]) -> (y) {
    weight w: f32[4, 3, 3, 3] = normal(std=0.3, seed=1)
    weight v: f32[4, 4, 3, 3] = normal(std=0.3, seed=2)
    y = Conv(Relu(Conv(x, w)), v, pads=[1, 1, 1, 1])
}
"""
"""The second convolution reads a halo that the first one clears."""


WITHOUT = {"f4e2m1", "f6e2m3", "f6e3m2", "f8e4m3fnuz", "f8e5m2fnuz"}
"""Float types without NaN, or with NaN in place of negative zero."""


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "1")


def reading_unwritten(size: int) -> ModuleOp:
    """
    Reads uninitialized scratch memory, doubles it into all of y but its last element, then clears
    it.
    """
    memory = MemRefType(f32, [size])

    def doubled(_: SSAValue, source: SSAValue, target: SSAValue) -> None:
        def one(i: SSAValue) -> None:
            value = memref.LoadOp.get(source, [i])
            memref.StoreOp.get(arith.AddfOp(value, value), target, [i])

        kernels.loop(size - 1, 1, one)

    def cleared(_: SSAValue, target: SSAValue) -> None:
        made = arith.ConstantOp(FloatAttr(0.0, f32))
        kernels.loop(size, 1, lambda i: memref.StoreOp.get(made, target, [i]))

    functions = [
        kernels.function("doubled", [memory] * 2, doubled),
        kernels.function("cleared", [memory], cleared),
    ]
    program = ProgramOp("main", size * 8, 0, 0)
    with ImplicitBuilder(program.body.block):
        scratch = BufferOp("arena", memory).memory
        y = BufferOp("output", memory, label="y").memory
        CallOp("doubled", [scratch, y], IntegerAttr(1, i64))
        CallOp("cleared", [scratch], IntegerAttr(1, i64))
    return ModuleOp([*functions, program])


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("size", [5, LARGE])
def test_arena_and_outputs_are_poisoned_before_every_run(size: int) -> None:
    made = executable(reading_unwritten(size))
    for _ in range(3):
        assert np.isnan(made.run({})["y"]).all()


@pytest.mark.usefixtures("poisoned")
def test_a_halo_that_is_not_cleared_gives_nan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "padded.pgraph"
    path.write_text(PADDED)
    x = np.ones((1, 3, 12, 12), np.float32)
    right = popgraph.compile(path)(x=x)["y"]
    assert np.isfinite(right).all()
    monkeypatch.setattr(
        "popgraph.passes.structured.to_loops.emit.zero_padding.clear_box", lambda *_: None
    )
    wrong = popgraph.compile(path)(x=x)["y"]
    assert np.isnan(wrong).any()


def test_poison_is_nan_in_every_float_type_with_nan() -> None:
    for dtype in dtypes.BY_NAME.values():
        memory = np.zeros(1, dtype.numpy)
        fill_with_poison(memory)
        if dtype.is_float and dtype.name not in WITHOUT:
            assert np.isnan(memory.astype(np.float64)), dtype.name


def test_memory_is_not_poisoned_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without poison, the second run reads the zeros that the first one left."""
    monkeypatch.setenv(SWITCH, "0")
    made = executable(reading_unwritten(5))
    made.run({})
    assert made.run({})["y"][:-1].tolist() == [0.0] * 4
