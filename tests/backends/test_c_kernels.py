"""Tests the C of loops, branches, local memory and vectors."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.builder import ImplicitBuilder
from xdsl.dialects import arith, memref, scf, vector
from xdsl.dialects.builtin import (
    AnyFloat,
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    FloatAttr,
    IntegerType,
    MemRefType,
    VectorType,
    f32,
    f64,
    i16,
    i64,
)
from xdsl.dialects.builtin import i1 as boolean
from xdsl.ir import Attribute, Block, SSAValue

import tests.backends.c_kernels as kernels
from popgraph.backends.c.build import toolchain
from popgraph.backends.c.print import print_kernel
from popgraph.backends.c.print.statements import STACK_BYTES
from popgraph.dialects import element_types
from popgraph.dialects.tile import PrefetchOp
from popgraph.passes.program.copies import copy_function
from popgraph.support import dtypes
from popgraph.support.errors import UnsupportedError
from tests.backends.c_kernels import INDEX, index


def run(types: list[Attribute], body: object, inputs: dict[str, np.ndarray]) -> np.ndarray:
    """Runs one kernel whose last memory is the output."""
    op = kernels.function("kernel", types, body)  # type: ignore[arg-type]
    module = kernels.program([(op, list(inputs), "y")])
    module.verify()
    return kernels.executable(module).run(inputs)["y"]


def test_carried_values_are_assigned_together() -> None:
    """Fibonacci: (a, b) -> (b, a + b) is wrong if b is overwritten before it is read."""
    i64 = IntegerType(64)

    def body(_: SSAValue, y: SSAValue) -> None:
        step = Block(arg_types=[INDEX, i64, i64])
        with ImplicitBuilder(step):
            i, a, b = step.args
            memref.StoreOp.get(a, y, [i])
            scf.YieldOp(b, arith.AddiOp(a, b))
        start = [arith.ConstantOp.from_int_and_width(number, i64) for number in (0, 1)]
        loop = scf.ForOp(index(0), index(10), index(1), start, step)
        memref.StoreOp.get(loop.results[1], y, [index(10)])

    found = run([MemRefType(i64, [11])], body, {})
    assert found.tolist() == [0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 89]


def test_three_carried_values_rotate() -> None:
    def body(_: SSAValue, y: SSAValue) -> None:
        step = Block(arg_types=[INDEX, f32, f32, f32])
        with ImplicitBuilder(step):
            _, a, b, c = step.args
            scf.YieldOp(c, a, b)
        start = [arith.ConstantOp(FloatAttr(number, f32)) for number in (1.0, 2.0, 3.0)]
        loop = scf.ForOp(index(0), index(4), index(1), start, step)
        for place, result in enumerate(loop.results):
            memref.StoreOp.get(result, y, [index(place)])

    assert run([MemRefType(f32, [3])], body, {}).tolist() == [3.0, 1.0, 2.0]


@pytest.mark.parametrize("width", [8, 16])
def test_loop_counters_do_not_clash_with_type_names(width: int) -> None:
    """Counters of deeply nested loops would reach `i8` and `i16`, the names of integer types."""
    kind = IntegerType(width)

    def body(_: SSAValue, x: SSAValue, y: SSAValue) -> None:
        def loop(depth: int) -> None:
            step = Block(arg_types=[INDEX])
            with ImplicitBuilder(step):
                if depth:
                    loop(depth - 1)
                else:
                    value = memref.LoadOp.get(x, step.args).res
                    memref.StoreOp.get(arith.AddiOp(value, value), y, step.args)
                scf.YieldOp()
            scf.ForOp(index(0), index(1), index(1), [], step)

        loop(17)

    memory = MemRefType(kind, [1])
    x = np.array([5], f"i{width // 8}")
    assert run([memory, memory], body, {"x": x}).tolist() == [10]


def test_a_loop_without_iterations_gives_its_initial_values() -> None:
    def body(_: SSAValue, y: SSAValue) -> None:
        step = Block(arg_types=[INDEX, f32])
        with ImplicitBuilder(step):
            scf.YieldOp(arith.AddfOp(step.args[1], step.args[1]))
        start = arith.ConstantOp(FloatAttr(5.0, f32))
        loop = scf.ForOp(index(3), index(3), index(1), [start], step)
        memref.StoreOp.get(loop.results[0], y, [index(0)])

    assert run([MemRefType(f32, [1])], body, {}).tolist() == [5.0]


def test_branches_with_results_and_with_stores() -> None:
    def body(_: SSAValue, x: SSAValue, y: SSAValue) -> None:
        def one(i: SSAValue) -> None:
            element = memref.LoadOp.get(x, [i])
            zero = arith.ConstantOp(FloatAttr(0.0, f32))
            yes, no, effect = Block(), Block(), Block()
            with ImplicitBuilder(yes):
                scf.YieldOp(arith.AddfOp(element, element))
            with ImplicitBuilder(no):
                scf.YieldOp(arith.NegfOp(element))
            positive = arith.CmpfOp(element, zero, "ogt")
            chosen = scf.IfOp(positive, [f32], [yes], [no])
            memref.StoreOp.get(chosen.results[0], y, [i])
            with ImplicitBuilder(effect):
                memref.StoreOp.get(zero, y, [i])
                scf.YieldOp()
            big = arith.CmpfOp(element, arith.ConstantOp(FloatAttr(9.0, f32)), "ogt")
            scf.IfOp(big, [], [effect])

        kernels.loop(4, 1, one)

    x = np.array([-1.0, 2.0, np.nan, 10.0], np.float32)
    found = run([MemRefType(f32, [4])] * 2, body, {"x": x})
    np.testing.assert_array_equal(found, np.array([1.0, 4.0, np.nan, 0.0], np.float32))


def test_local_memory() -> None:
    def body(_: SSAValue, x: SSAValue, y: SSAValue) -> None:
        local = memref.AllocaOp.get(f32, shape=[2, 3])
        for number in range(6):
            place = [index(number // 3), index(number % 3)]
            memref.StoreOp.get(memref.LoadOp.get(x, [index(number)]), local, place)
        for number in range(6):
            place = [index(number % 2), index(number // 2)]
            memref.StoreOp.get(memref.LoadOp.get(local, place), y, [index(number)])

    x = np.arange(6, dtype=np.float32)
    found = run([MemRefType(f32, [6])] * 2, body, {"x": x})
    np.testing.assert_array_equal(found, x.reshape(2, 3).T.ravel())


def test_local_memory_must_fit_the_stack() -> None:
    def body(_: SSAValue, y: SSAValue) -> None:
        for _number in range(3):
            memref.AllocaOp.get(f32, shape=[STACK_BYTES // 8])

    op = kernels.function("greedy", [MemRefType(f32, [1])], body)
    with pytest.raises(UnsupportedError, match="does not fit a thread's stack") as caught:
        print_kernel(op)
    assert caught.value.where == "kernel greedy"


@pytest.mark.parametrize("count", [3, 0, 12])
def test_vectors_have_a_power_of_two_lanes(count: int) -> None:
    def body(_: SSAValue, x: SSAValue) -> None:
        vector.LoadOp(x, [index(0)], VectorType(f32, [count]))

    op = kernels.function("odd", [MemRefType(f32, [16])], body)
    with pytest.raises(UnsupportedError, match="C has no type for vector"):
        print_kernel(op)


CONSTANTS = [0.0, -0.0, 0.1, -2.5, 1e-45, 3.4028234663852886e38, float("inf"), -float("inf")]


@pytest.mark.parametrize("type_", [f32, f64], ids=str)
def test_float_constants_are_exact(type_: Attribute) -> None:
    dtype = kernels.numpy_type(type_)
    values = np.array([*CONSTANTS, np.nan], np.float32).astype(dtype)

    def body(_: SSAValue, y: SSAValue) -> None:
        for place, number in enumerate(values.tolist()):
            constant = arith.ConstantOp(FloatAttr(number, type_))  # type: ignore[arg-type]
            memref.StoreOp.get(constant, y, [index(place)])

    found = run([MemRefType(type_, [values.size])], body, {})
    np.testing.assert_array_equal(found, values)
    np.testing.assert_array_equal(np.signbit(found[:-1]), np.signbit(values[:-1]))


@pytest.mark.parametrize("width", [8, 16, 32, 64])
def test_integer_constants_are_exact(width: int) -> None:
    type_ = IntegerType(width)
    values = [0, 1, -1, (1 << width - 1) - 1, -(1 << width - 1)]

    def body(_: SSAValue, y: SSAValue) -> None:
        for place, number in enumerate(values):
            constant = arith.ConstantOp.from_int_and_width(number, type_)
            memref.StoreOp.get(constant, y, [index(place)])

    assert run([MemRefType(type_, [5])], body, {}).tolist() == values


def test_vector_constants_broadcast_extract_and_insert() -> None:
    lanes = VectorType(f32, [4])

    def body(_: SSAValue, x: SSAValue, y: SSAValue) -> None:
        ramp = arith.ConstantOp(DenseIntOrFPElementsAttr.from_list(lanes, [1.5, 2.5, 3.5, 4.5]))
        scalar = memref.LoadOp.get(x, [index(1)])
        spread = vector.BroadcastOp(scalar, lanes)
        total = arith.AddfOp(ramp, spread)
        second = vector.ExtractOp(total.result, [1], f32)
        changed = vector.InsertOp(second.result, total.result, [index(3)])
        vector.StoreOp(changed, y, [index(1)])
        memref.StoreOp.get(second, y, [index(0)])

    x = np.array([7.0, -0.0], np.float32)
    found = run([MemRefType(f32, [2]), MemRefType(f32, [5])], body, {"x": x})
    assert found.tolist() == [2.5, 1.5, 2.5, 3.5, 2.5]


@pytest.mark.parametrize("kind", [f32, f64, i16, i64], ids=str)
@pytest.mark.parametrize("picks", [[1, 7, 4, 0], [6, 3]], ids=["as many", "fewer"])
def test_a_shuffle_picks_lanes_of_two_vectors(
    kind: AnyFloat | IntegerType, picks: list[int]
) -> None:
    lanes, result = VectorType(kind, [4]), VectorType(kind, [len(picks)])

    def body(_: SSAValue, x: SSAValue, y: SSAValue) -> None:
        first, second = (vector.LoadOp(x, [index(place)], lanes) for place in (0, 2))
        mask = DenseArrayBase.from_list(i64, picks)
        picked = vector.ShuffleOp(first.result, second.result, mask, result_type=result)
        vector.StoreOp(picked, y, [index(0)])

    x = np.arange(6, dtype=element_types.from_ir(kind).numpy)
    found = run([MemRefType(kind, [6]), MemRefType(kind, [len(picks)])], body, {"x": x})
    assert found.tolist() == [at if at < 4 else at - 2 for at in picks]


def test_a_gcc_without_has_builtin_compiles_shuffles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiler = next(toolchain.candidates())
    if "__clang__" in toolchain.probe(compiler).macros:
        pytest.skip("every clang can say which builtins it has")
    monkeypatch.setenv("CC", f"{compiler.name} -U__has_builtin")
    test_a_shuffle_picks_lanes_of_two_vectors(f32, [1, 7, 4, 0])


def test_a_prefetch_beyond_the_end_has_no_effect() -> None:
    def body(_: SSAValue, x: SSAValue, y: SSAValue) -> None:
        for place in (0, 2, 10**9):
            PrefetchOp(x, index(place))
            PrefetchOp(y, index(place), written=True)
        memref.StoreOp.get(memref.LoadOp.get(x, [index(1)]), y, [index(0)])

    x = np.array([1, 2], np.float32)
    assert run([MemRefType(f32, [2]), MemRefType(f32, [1])], body, {"x": x}).tolist() == [2]


def test_broadcasting_keeps_the_sign_of_zero() -> None:
    lanes = VectorType(f32, [16])

    def body(_: SSAValue, x: SSAValue, y: SSAValue) -> None:
        vector.StoreOp(vector.BroadcastOp(memref.LoadOp.get(x, [index(0)]), lanes), y, [index(0)])

    found = run(
        [MemRefType(f32, [1]), MemRefType(f32, [16])], body, {"x": np.array([-0.0], np.float32)}
    )
    assert np.signbit(found).all()


def test_any_nonzero_byte_is_true() -> None:
    def body(_: SSAValue, x: SSAValue, y: SSAValue) -> None:
        kernels.loop(3, 1, lambda i: memref.StoreOp.get(memref.LoadOp.get(x, [i]), y, [i]))

    x = np.array([0, 1, 255], np.uint8).view(np.bool_)
    found = run([MemRefType(boolean, [3])] * 2, body, {"x": x})
    assert found.view(np.uint8).tolist() == [0, 1, 1]


def test_memory_of_several_dimensions_is_row_major() -> None:
    def body(_: SSAValue, x: SSAValue, y: SSAValue) -> None:
        kernels.loop(
            4,
            1,
            lambda i: memref.StoreOp.get(memref.LoadOp.get(x, [index(1), i, index(2)]), y, [i]),
        )

    x = np.arange(24, dtype=np.float32).reshape(2, 4, 3)
    found = run([MemRefType(f32, [2, 4, 3]), MemRefType(f32, [4])], body, {"x": x})
    np.testing.assert_array_equal(found, x[1, :, 2])


ROWS, VECTORS, LANES, DEPTH = 14, 2, 16, 64


def test_micro_kernel_with_28_accumulators() -> None:
    """A GEMM micro-kernel in registers: the shape of the figures in PERF.md."""
    lanes = VectorType(f32, [LANES])

    def body(_: SSAValue, a: SSAValue, b: SSAValue, y: SSAValue) -> None:
        zero = vector.BroadcastOp(arith.ConstantOp(FloatAttr(0.0, f32)), lanes)
        step = Block(arg_types=[INDEX, *[lanes] * (ROWS * VECTORS)])
        with ImplicitBuilder(step):
            k, *sums = step.args
            row = arith.MuliOp(k, index(VECTORS * LANES))
            column = arith.MuliOp(k, index(ROWS))
            weights = [
                vector.LoadOp(b, [arith.AddiOp(row, index(j * LANES))], lanes)
                for j in range(VECTORS)
            ]
            following = []
            for p in range(ROWS):
                scalar = memref.LoadOp.get(a, [arith.AddiOp(column, index(p))])
                spread = vector.BroadcastOp(scalar, lanes)
                for j in range(VECTORS):
                    following.append(vector.FMAOp(spread, weights[j], sums[p * VECTORS + j]))
            scf.YieldOp(*following)
        loop = scf.ForOp(index(0), index(DEPTH), index(1), [zero] * (ROWS * VECTORS), step)
        for place, result in enumerate(loop.results):
            vector.StoreOp(result, y, [index(place * LANES)])

    generator = np.random.default_rng(0)
    a = generator.standard_normal(DEPTH * ROWS).astype(np.float32)
    b = generator.standard_normal(DEPTH * VECTORS * LANES).astype(np.float32)
    types = [MemRefType(f32, [n]) for n in (a.size, b.size, ROWS * VECTORS * LANES)]
    found = run(types, body, {"a": a, "b": b}).reshape(ROWS, -1)
    wanted = a.reshape(DEPTH, ROWS).astype(np.float64).T @ b.reshape(DEPTH, -1).astype(np.float64)
    assert np.abs(found - wanted).max() < 1e-5 * np.abs(wanted).max()


def test_operands_of_several_products_are_kept_in_a_register() -> None:
    """Operands of a single FMA stay in memory, as an operand of the instruction."""
    lanes = VectorType(f32, [4])

    def sums_of_products(_: SSAValue, x: SSAValue, y: SSAValue) -> None:
        shared, once = (vector.LoadOp(x, [index(place)], lanes).result for place in (0, 4))
        first = vector.FMAOp(shared, once, shared)
        vector.StoreOp(vector.FMAOp(shared, first, first), y, [index(0)])

    function = kernels.function("sums", [MemRefType(f32, [8])] * 2, sums_of_products)
    text = print_kernel(function).text
    assert text.count("= POPGRAPH_KEPT(") == 1
    assert "v0 = POPGRAPH_KEPT(f32x4, *" in text


@pytest.mark.parametrize("name", [row.name for row in dtypes.DTYPES])
def test_every_element_type_can_be_moved(name: str) -> None:
    """Types without arithmetic in C, too; with the copy kernel of plan-memory."""
    row = dtypes.BY_NAME[name]
    memory = MemRefType(element_types.to_ir(row), [16])
    module = kernels.program([(copy_function("copy", memory), ["x"], "y")])
    raw = np.arange(16 * row.numpy.itemsize, dtype=np.uint8) % 2
    x = raw.view(row.numpy)
    found = kernels.executable(module).run({"x": x})["y"]
    assert found.dtype == row.numpy
    assert found.view(np.uint8).tolist() == raw.tolist()
