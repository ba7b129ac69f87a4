"""Tests maps that compute functions of several vectors side by side."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects import func

import popgraph
from popgraph import Options
from popgraph.backends.c.print import print_kernel
from popgraph.backends.c.print.unit import SCHEDULED
from popgraph.compiler import load, lower
from popgraph.dialects.tile.scalars import is_approximated
from popgraph.support.machine import TARGETS
from popgraph.support.tuning import Tuning

FUNCTIONS = """graph net(x: f32[N, 3]) -> (y, z) {
    y = Gelu(x)
    z = Log(Exp(x)) + Tanh(x)
}
"""
ROWS = np.random.default_rng(0).normal(0, 3, (20011, 3)).astype(np.float32)


@pytest.mark.parametrize("rows", [5, 43, 64, len(ROWS)])
def test_results_do_not_depend_on_vectors_side_by_side(rows: int) -> None:
    """With a remainder of vectors and one of elements; chunks of many rows begin between steps."""
    text, alone = FUNCTIONS.replace("N", str(rows)), Options(tuning=Tuning(most_chains=1))
    given = {"x": ROWS[:rows]}
    wanted = popgraph.compile(text, options=alone)(given)
    for threads in (1, 3):
        found = popgraph.compile(text, threads=threads)(given)
        assert {name: array.tobytes() for name, array in found.items()} == {
            name: array.tobytes() for name, array in wanted.items()
        }


def test_sizes_of_calls_may_end_between_two_steps() -> None:
    bounded = popgraph.compile(FUNCTIONS, bounds={"N": 200})
    whole = bounded({"x": ROWS[:200]})
    for rows in (1, 21, 43, 199):
        found = bounded({"x": ROWS[:rows]})
        for name in ("y", "z"):
            assert found[name].tobytes() == whole[name][:rows].tobytes()


@pytest.mark.parametrize(
    ("text", "chains"),
    [
        ("graph g(x: f32[640]) -> (y) { y = Tanh(x) }", 4),
        ("graph g(x: f32[640]) -> (y) { y = Exp(Tanh(x)) }", 4),
        ("graph g(x: f32[48]) -> (y) { y = Tanh(x) }", 3),
        ("graph g(x: f32[16]) -> (y) { y = Tanh(x) }", 1),
        ("graph g(x: f32[640]) -> (y) { y = Relu(x) * x }", 0),
    ],
)
def test_long_chains_are_scheduled(text: str, chains: int) -> None:
    kernel = lowered(text)
    found = [op for op in kernel.walk() if is_approximated(op)]
    assert len(found) == chains
    assert print_kernel(kernel).text.startswith(SCHEDULED) == (chains > 1)


def test_sums_in_registers_are_not_scheduled() -> None:
    """GCC would spill the sums of a product: it takes twice as long with 16 registers."""
    kernel = lowered("graph g(x: f32[64, 64], w: f32[64, 64]) -> (y) { y = Tanh(x @ w) }")
    assert sum(map(is_approximated, kernel.walk())) > 1
    assert not print_kernel(kernel).text.startswith(SCHEDULED)


def lowered(text: str) -> func.FuncOp:
    """The last kernel of a network, for AVX-512."""
    module, compilation = load(text)
    lower(module, compilation, Options(machine=TARGETS["avx512"]))
    return [op for op in module.ops if isinstance(op, func.FuncOp)][-1]
