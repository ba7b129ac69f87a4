"""Tests memory that threads provide while passes run."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import pytest

import popgraph
from popgraph.backends.c.memory import pages
from popgraph.backends.c.memory.pages import LARGE_PAGE, Reserve, reserved, reserving, together
from popgraph.support.arrays import Array, SharedArrays

EXPECTED = 5 * LARGE_PAGE + 100


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reserves of many steps, in a process that poisons no memory."""
    monkeypatch.setenv("POPGRAPH_POISON", "0")
    monkeypatch.setattr(pages, "RESERVE_STEP", 1 << 12)


@pytest.mark.parametrize("size", [1, LARGE_PAGE, EXPECTED, 2 * EXPECTED])
def test_a_reserve_provides_more_or_less_than_expected(size: int) -> None:
    found = together({"a": size - 1, "b": 1}, Reserve(EXPECTED))
    assert [len(array) for array in found.values()] == [size - 1, 1]
    for array in found.values():
        array.fill(7)
    assert found["b"].ctypes.data % pages.ALIGNMENT == 0
    assert (found["a"] == 7).all() and found["b"][0] == 7


def test_too_small_a_reserve_is_not_used() -> None:
    (found,) = together({"a": 2 * EXPECTED + 1}, Reserve(EXPECTED)).values()
    found.fill(7)
    assert len(found) == 2 * EXPECTED + 1


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc here")
def test_the_system_gets_unused_pages_back() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE

    before, size = resident(), 8 * LARGE_PAGE
    reserve = Reserve(size)
    used = reserve.take(1)
    assert used is not None and resident() - before < size // 2


def test_the_first_program_of_a_model_gets_a_reserve(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = SharedArrays()
    with reserving(shared, 1000):
        assert reserved(shared) is None, "too few bytes"
    with reserving(shared, EXPECTED), reserving(shared, EXPECTED):
        assert reserved(shared) is not None and reserved(shared) is None
    with pytest.raises(ValueError, match="not lowered"), reserving(shared, EXPECTED):
        raise ValueError("not lowered")
    assert reserved(shared) is None, "it is freed"
    array = shared.share("packed", np.zeros(3))
    with reserving(shared, EXPECTED):
        assert reserved(shared) is None, f"the model has a program with {array}"
    monkeypatch.delattr(mmap, "MADV_HUGEPAGE")
    with reserving(SharedArrays(), EXPECTED):
        pass


def test_weights_are_packed_into_the_reserve(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, take = list[int](), Reserve.take

    def counted(reserve: Reserve, size: int) -> Array | None:
        sizes.append(size)
        return take(reserve, size)

    monkeypatch.setattr(Reserve, "take", counted)
    text = """
    graph net(x: f32[4, 64]) -> (y) {
        weight w: f32[64, 200] = he_normal(seed=1)
        y = x @ w
    }
    """
    x = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
    found, wanted = (popgraph.compile(text, backend=name)(x=x)["y"] for name in ("c", "reference"))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    assert len(sizes) == 1 and sizes[0] >= 64 * 200 * 4
