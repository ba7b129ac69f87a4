"""Tests poison mode: reads of unwritten memory show as NaN."""

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
"""The second convolution reads the halo that the first one clears."""


WITHOUT = {"f4e2m1", "f6e2m3", "f6e3m2", "f8e4m3fnuz", "f8e5m2fnuz"}
"""Types that have no NaN, or have it in place of a negative zero."""


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "1")


def forgetful(size: int) -> ModuleOp:
    """All of y but its last element is twice what nobody wrote, which becomes zero then."""
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
    made = executable(forgetful(size))
    for _ in range(3):
        assert np.isnan(made.run({})["y"]).all()


@pytest.mark.usefixtures("poisoned")
def test_a_halo_that_nobody_clears_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_poison_is_nan_in_every_float_type_that_has_one() -> None:
    for dtype in dtypes.BY_NAME.values():
        memory = np.zeros(1, dtype.numpy)
        fill_with_poison(memory)
        if dtype.is_float and dtype.name not in WITHOUT:
            assert np.isnan(memory.astype(np.float64)), dtype.name


def test_without_the_mode_nothing_is_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same kernels then, on the same memory from run to run."""
    monkeypatch.setenv(SWITCH, "0")
    made = executable(forgetful(5))
    made.run({})
    assert made.run({})["y"][:-1].tolist() == [0.0] * 4
