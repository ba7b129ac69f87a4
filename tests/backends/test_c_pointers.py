"""What stands a number behind an index is reached from one pointer, if that is inside of memory."""

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
    """The C of a kernel from `x` to `y`, and what it makes of 1, 2, 3 ..."""
    types = [MemRefType(f32, [SIZE]), MemRefType(f32, [SIZE])]
    function = kernels.function("places", types, lambda _, x, y: body(x, y))
    text = print_kernel(function).text
    found = kernels.executable(kernels.program([(function, ["x"], "y")]))
    return text, found.run({"x": np.arange(1, SIZE + 1, dtype=np.float32)})["y"]


def moved(x: SSAValue, source: SSAValue, y: SSAValue, target: SSAValue) -> None:
    memref.StoreOp.get(memref.LoadOp.get(x, [source]), y, [target])


def behind(base: SSAValue, number: int) -> SSAValue:
    return arith.AddiOp(base, index(number)).result


def test_what_differs_by_numbers_is_reached_from_one_pointer() -> None:
    def body(x: SSAValue, y: SSAValue) -> None:
        def one(i: SSAValue) -> None:
            for number in range(4):
                moved(x, behind(i, number), y, behind(i, 3 - number))

        kernels.loop(SIZE, 4, one)

    text, found = printed_and_run(body)
    assert "*const a0_n0 = &a0[n0];" in text and "a0_n0[3]" in text
    assert "n0 + " not in text
    assert found.tolist() == [4, 3, 2, 1, 8, 7, 6, 5]


def test_no_pointer_stands_before_the_memory() -> None:
    def body(x: SSAValue, y: SSAValue) -> None:
        def one(i: SSAValue) -> None:
            turned = arith.MuliOp(i, index(-1)).result
            moved(x, behind(turned, SIZE - 1), y, i)

        kernels.loop(SIZE, 1, one)

    text, found = printed_and_run(body)
    assert "*const" not in text
    assert found.tolist() == [8, 7, 6, 5, 4, 3, 2, 1]


def test_no_pointer_is_made_for_what_a_condition_may_leave_out() -> None:
    def body(x: SSAValue, y: SSAValue) -> None:
        def one(i: SSAValue) -> None:
            far = arith.MuliOp(i, index(4)).result
            block = Block()
            with ImplicitBuilder(block):
                moved(x, behind(far, 1), y, i)
                scf.YieldOp()
            scf.IfOp(arith.CmpiOp(i, index(2), "slt"), [], [block])

        kernels.loop(SIZE, 1, one)

    text, found = printed_and_run(body)
    assert "*const" not in text
    assert found[:2].tolist() == [2, 6]


def test_a_sum_that_stands_elsewhere_too_is_printed_as_well() -> None:
    def body(x: SSAValue, y: SSAValue) -> None:
        def one(i: SSAValue) -> None:
            place = behind(i, 1)
            PrefetchOp(x, place)
            moved(x, place, y, i)

        kernels.loop(SIZE - 1, 1, one)

    text, found = printed_and_run(body)
    assert "a0_n0[1]" in text and "n0 + 1" in text
    assert found[:-1].tolist() == [2, 3, 4, 5, 6, 7, 8]


def test_memory_that_comes_later_than_an_index_is_indexed() -> None:
    def body(x: SSAValue, y: SSAValue) -> None:
        def outer(i: SSAValue) -> None:
            def inner(j: SSAValue) -> None:
                local = memref.AllocaOp.get(f32, shape=[4]).memref
                moved(x, i, local, behind(j, 1))
                moved(local, behind(j, 1), y, i)

            kernels.loop(1, 1, inner)

        kernels.loop(SIZE, 1, outer)

    _, found = printed_and_run(body)
    assert found.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]


def test_what_a_number_divides_is_divided_without_a_question() -> None:
    def body(x: SSAValue, y: SSAValue) -> None:
        def one(i: SSAValue) -> None:
            moved(x, arith.DivSIOp(i, index(3)).result, y, i)

        kernels.loop(SIZE, 1, one)

    text, found = printed_and_run(body)
    assert "n0 / 3" in text and "?" not in text
    assert found.tolist() == [1, 1, 1, 2, 2, 2, 3, 3]


def test_zero_divides_to_zero_and_minus_one_changes_the_sign() -> None:
    def body(x: SSAValue, y: SSAValue) -> None:
        def one(i: SSAValue) -> None:
            nothing = arith.RemSIOp(arith.DivSIOp(i, index(0)).result, index(-1)).result
            back = arith.DivSIOp(arith.SubiOp(i, index(SIZE - 1)).result, index(-1)).result
            moved(x, arith.AddiOp(nothing, back).result, y, i)

        kernels.loop(SIZE, 1, one)

    _, found = printed_and_run(body)
    assert found.tolist() == [8, 7, 6, 5, 4, 3, 2, 1]
