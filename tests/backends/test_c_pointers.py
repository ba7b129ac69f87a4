"""Tests shared pointers in C: indices that differ by constants use one pointer, if in bounds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from xdsl.builder import ImplicitBuilder
from xdsl.dialects import arith, memref, scf
from xdsl.dialects.builtin import MemRefType, f32
from xdsl.ir import Block, SSAValue

import tests.backends.c_kernels as kernels
from popgraph.backends.c.print import print_kernel
from popgraph.dialects.tile import PrefetchOp
from popgraph.support.arrays import Array
from tests.backends.c_kernels import index

SIZE = 8


def printed_and_run(
    body: Callable[[SSAValue, SSAValue], None], size: int = SIZE
) -> tuple[str, Array]:
    """The C of a kernel from `x` to `y`, and `y` for x = 1, 2, 3, ..."""
    types = [MemRefType(f32, [SIZE]), MemRefType(f32, [SIZE])]
    function = kernels.function("places", types, lambda _, x, y: body(x, y))
    text = print_kernel(function).text
    found = kernels.executable(kernels.program([(function, ["x"], "y")]))
    return text, found.run({"x": np.arange(1, SIZE + 1, dtype=np.float32)})["y"]


def moved(x: SSAValue, source: SSAValue, y: SSAValue, target: SSAValue) -> None:
    memref.StoreOp.get(memref.LoadOp.get(x, [source]), y, [target])


def plus(base: SSAValue, number: int) -> SSAValue:
    return arith.AddiOp(base, index(number)).result


def test_indices_that_differ_by_constants_share_a_pointer() -> None:
    def body(x: SSAValue, y: SSAValue) -> None:
        def one(i: SSAValue) -> None:
            for number in range(4):
                moved(x, plus(i, number), y, plus(i, 3 - number))

        kernels.loop(SIZE, 4, one)

    text, found = printed_and_run(body)
    assert "*const a0_n0 = &a0[n0];" in text and "a0_n0[3]" in text
    assert "n0 + " not in text
    assert found.tolist() == [4, 3, 2, 1, 8, 7, 6, 5]


def test_no_shared_pointer_points_before_its_memory() -> None:
    def body(x: SSAValue, y: SSAValue) -> None:
        def one(i: SSAValue) -> None:
            turned = arith.MuliOp(i, index(-1)).result
            moved(x, plus(turned, SIZE - 1), y, i)

        kernels.loop(SIZE, 1, one)

    text, found = printed_and_run(body)
    assert "*const" not in text
    assert found.tolist() == [8, 7, 6, 5, 4, 3, 2, 1]


def test_conditional_accesses_share_no_pointer() -> None:
    def body(x: SSAValue, y: SSAValue) -> None:
        def one(i: SSAValue) -> None:
            far = arith.MuliOp(i, index(4)).result
            block = Block()
            with ImplicitBuilder(block):
                moved(x, plus(far, 1), y, i)
                scf.YieldOp()
            scf.IfOp(arith.CmpiOp(i, index(2), "slt"), [], [block])

        kernels.loop(SIZE, 1, one)

    text, found = printed_and_run(body)
    assert "*const" not in text
    assert found[:2].tolist() == [2, 6]


def test_an_index_with_other_uses_is_printed_too() -> None:
    def body(x: SSAValue, y: SSAValue) -> None:
        def one(i: SSAValue) -> None:
            place = plus(i, 1)
            PrefetchOp(x, place)
            moved(x, place, y, i)

        kernels.loop(SIZE - 1, 1, one)

    text, found = printed_and_run(body)
    assert "a0_n0[1]" in text and "n0 + 1" in text
    assert found[:-1].tolist() == [2, 3, 4, 5, 6, 7, 8]


def test_memory_allocated_after_an_index_has_no_shared_pointer() -> None:
    def body(x: SSAValue, y: SSAValue) -> None:
        def outer(i: SSAValue) -> None:
            def inner(j: SSAValue) -> None:
                local = memref.AllocaOp.get(f32, shape=[4]).memref
                moved(x, i, local, plus(j, 1))
                moved(local, plus(j, 1), y, i)

            kernels.loop(1, 1, inner)

        kernels.loop(SIZE, 1, outer)

    _, found = printed_and_run(body)
    assert found.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]


def test_division_by_a_constant_needs_no_check() -> None:
    def body(x: SSAValue, y: SSAValue) -> None:
        def one(i: SSAValue) -> None:
            moved(x, arith.DivSIOp(i, index(3)).result, y, i)

        kernels.loop(SIZE, 1, one)

    text, found = printed_and_run(body)
    assert "n0 / 3" in text and "?" not in text
    assert found.tolist() == [1, 1, 1, 2, 2, 2, 3, 3]


def test_division_by_zero_and_by_minus_one() -> None:
    def body(x: SSAValue, y: SSAValue) -> None:
        def one(i: SSAValue) -> None:
            nothing = arith.RemSIOp(arith.DivSIOp(i, index(0)).result, index(-1)).result
            back = arith.DivSIOp(arith.SubiOp(i, index(SIZE - 1)).result, index(-1)).result
            moved(x, arith.AddiOp(nothing, back).result, y, i)

        kernels.loop(SIZE, 1, one)

    _, found = printed_and_run(body)
    assert found.tolist() == [8, 7, 6, 5, 4, 3, 2, 1]
