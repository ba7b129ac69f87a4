"""Tests that generated code has no out-of-bounds access and no undefined behaviour."""

from __future__ import annotations

import pytest

from tests.sanitize import SAMPLED, SAMPLES, obstacle, run, run_tests

pytestmark = pytest.mark.skipif(bool(obstacle()), reason=obstacle())

PLANTED = """
import numpy as np
from xdsl.dialects import memref
from xdsl.dialects.builtin import IntegerType, MemRefType
import tests.backends.c_kernels as kernels
from popgraph.backends.c.print import rows

def body(_chunk, source, target):
    def one(i):
        value = memref.LoadOp.get(source, [i]).res
        value = kernels.make("arith.addi", [value, value], i64)
        memref.StoreOp.get(value, target, [i])

    kernels.loop({turns}, 1, one)

i64 = IntegerType(64)
rows.INT["arith.addi"] = rows.Row({row!r})
made = kernels.function("planted", [MemRefType(i64, [4000])] * 2, body)
program = kernels.executable(kernels.program([(made, ["x"], "y")]))
program.run({{"x": np.full(4000, -1 << 63, np.int64)}})
"""
WRAPPING = "(i64)((u64){a} + (u64){b})"


@pytest.mark.parametrize("kind", SAMPLES)
def test_a_sample_of_all_operations(kind: str) -> None:
    """`make sanitize` runs all operations, and whole programs."""
    report = run_tests([*SAMPLED, SAMPLES[kind]])
    assert not report.findings
    assert report.good, report.output
    assert report.programs > 2


@pytest.mark.parametrize(
    ("turns", "row", "found"),
    [
        (4000, WRAPPING, ""),
        (4000, "{a} + {b}", "signed integer overflow"),
        (4100, WRAPPING, "heap-buffer-overflow"),
    ],
    ids=["nothing", "overflow", "beyond"],
)
def test_planted_errors_are_found(turns: int, row: str, found: str) -> None:
    report = run(["-c", PLANTED.format(turns=turns, row=row)])
    assert bool(report.findings) == bool(found), report.output
    assert all(found in finding for finding in report.findings)
