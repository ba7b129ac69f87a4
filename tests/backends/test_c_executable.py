"""Tests compiled programs: memory, variables, chunks, threads, errors of inputs."""

from __future__ import annotations

import os
import signal
import sys
import threading

import numpy as np
import pytest
from xdsl.builder import ImplicitBuilder
from xdsl.dialects import arith, math, memref
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, MemRefType, ModuleOp, f32, i64
from xdsl.ir import SSAValue

import tests.backends.c_kernels as kernels
from popgraph.backends.c.build_program import build
from popgraph.backends.c.memory.pages import ALIGNMENT, LARGE_PAGE, address, fresh_array, scratch
from popgraph.backends.c.memory.zero_copy import LARGE
from popgraph.backends.c.run.executable import CExecutable
from popgraph.dialects.program import DataAttr, WeightStore
from popgraph.dialects.tile import BufferOp, CallOp, ProgramOp
from popgraph.support import dtypes
from popgraph.support.errors import BackendError, RunError
from popgraph.support.forked import Child, can_fork
from popgraph.support.locks import Lock
from tests.backends.c_kernels import index

CHUNKS = 16
SIZE = 64


def chunked_exp() -> ModuleOp:
    """y[chunk * SIZE + i] = exp(x[...]), in CHUNKS chunks."""

    def body(chunk: SSAValue, x: SSAValue, y: SSAValue) -> None:
        base = arith.MuliOp(chunk, index(SIZE))

        def one(i: SSAValue) -> None:
            place = arith.AddiOp(base, i)
            memref.StoreOp.get(math.ExpOp(memref.LoadOp.get(x, [place])), y, [place])

        kernels.loop(SIZE, 1, one)

    op = kernels.function("exp", [MemRefType(f32, [CHUNKS * SIZE])] * 2, body)
    return kernels.program([(op, ["x"], "y")], chunks=CHUNKS)


def counter() -> ModuleOp:
    """Each run computes total += x and y = total + x; total is a variable."""
    memory = MemRefType(f32, [2])

    def add(_: SSAValue, a: SSAValue, b: SSAValue, y: SSAValue) -> None:
        kernels.loop(
            2,
            1,
            lambda i: memref.StoreOp.get(
                arith.AddfOp(memref.LoadOp.get(a, [i]), memref.LoadOp.get(b, [i])), y, [i]
            ),
        )

    op = kernels.function("add", [memory] * 3, add)
    program = ProgramOp("main", 0, 0, 0)
    first = DataAttr.of(np.array([10.0, 20.0], np.float32))
    with ImplicitBuilder(program.body.block):
        x = BufferOp("input", memory, label="x").memory
        y = BufferOp("output", memory, label="y").memory
        total = BufferOp("variable", memory, label="total", literal=first).memory
        CallOp("add", [total, x, total], IntegerAttr(1, i64))
        CallOp("add", [total, x, y], IntegerAttr(1, i64))
    return ModuleOp([op, program])


X = np.linspace(-3, 3, CHUNKS * SIZE).astype(np.float32)


def test_the_signature_of_an_executable() -> None:
    made = build(counter(), WeightStore())
    assert {name: (d.name, s) for name, (d, s) in made.inputs.items()} == {"x": ("f32", (2,))}
    assert {name: (d.name, s) for name, (d, s) in made.outputs.items()} == {"y": ("f32", (2,))}
    assert list(made.variables) == ["total"]


def test_variables_persist_and_can_be_read_and_written() -> None:
    made = build(counter(), WeightStore())
    x = np.array([1.0, 2.0], np.float32)
    assert made.read("total").tolist() == [10.0, 20.0]
    assert made.run({"x": x})["y"].tolist() == [12.0, 24.0]
    assert made.run({"x": x})["y"].tolist() == [13.0, 26.0]
    made.write("total", np.zeros(2, np.float32))
    assert made.run({"x": x})["y"].tolist() == [2.0, 4.0]
    assert made.read("total").tolist() == [1.0, 2.0]


def test_two_executables_of_one_program_do_not_share_memory() -> None:
    first, second = (build(counter(), WeightStore()) for _ in range(2))
    first.run({"x": np.ones(2, np.float32)})
    assert second.read("total").tolist() == [10.0, 20.0]


def test_outputs_belong_to_the_caller() -> None:
    made = build(counter(), WeightStore())
    x = np.zeros(2, np.float32)
    first = made.run({"x": x})["y"]
    first[:] = 99
    assert made.run({"x": x})["y"].tolist() == [10.0, 20.0]
    assert made.read("total") is not made.read("total")


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "input 'x' is missing"),
        ({"x": np.zeros(3, np.float32)}, "input 'x' must have the shape 2, not 3"),
        ({"x": np.zeros(2, complex)}, "input 'x' holds complex128, the model requires float32"),
        ({"x": np.zeros(2, "M8[s]")}, "input 'x' holds datetime64[s], the model requires float32"),
        ({"x": ["a", "b"]}, "input 'x' holds <U1, the model requires float32"),
        ({"z": np.zeros(2, np.float32)}, "the model has no input 'z'"),
        ({"x": np.zeros(2, np.float32), "z": np.zeros(2)}, "the model has no input 'z'"),
        ({"x": [1, 2**24 + 1]}, "input 'x' holds 16777217, which float32 cannot represent"),
    ],
)
def test_wrong_inputs_are_refused_and_change_nothing(inputs: dict, message: str) -> None:  # type: ignore[type-arg]
    made = build(counter(), WeightStore())
    with pytest.raises(RunError) as caught:
        made.run(inputs)
    assert caught.value.what == message
    assert made.read("total").tolist() == [10.0, 20.0]
    made.run({"x": np.zeros(2, np.float32)})  # The refused call has released the lock.


def test_strided_inputs_are_read_in_index_order() -> None:
    made = build(counter(), WeightStore())
    x = np.arange(8, dtype=np.float32)[1::4]
    assert made.run({"x": x})["y"].tolist() == [12.0, 30.0]


def large() -> ModuleOp:
    """y = exp(x) of arrays so large that the executable does not copy them."""
    size = LARGE // 4

    def compute(values: list[SSAValue]) -> SSAValue:
        return math.ExpOp(values[0]).result

    made = kernels.elementwise("exp", [f32], f32, size, compute, 16)
    return kernels.program([(made, ["x"], "y")])


def test_large_arrays_are_not_copied() -> None:
    executable = kernels.executable(large())
    size = LARGE // 4
    plain = np.linspace(-3, 3, size, dtype=np.float32)
    reversed_, odd = plain[::-1], np.empty(4 * size + 1, np.uint8)[1:].view(np.float32)
    odd[...] = plain
    frozen = plain.copy()
    frozen.flags.writeable = False
    results = []
    for x in (plain, reversed_, odd, frozen, plain[::-1], frozen):
        before = x.copy()
        results.append((before, executable.run({"x": x})["y"]))
        assert np.array_equal(x, before)
    for x, y in results:
        np.testing.assert_allclose(y, np.exp(x), rtol=1e-6)
        assert y.flags.writeable and y.ctypes.data % 64 == 0
    places = {y.ctypes.data for _, y in results}
    assert len(places) == len(results)
    del plain, frozen
    assert np.isfinite(executable.run({"x": np.zeros(size, np.float32)})["y"]).all()


@pytest.mark.parametrize("kind", ["f32", "bf16", "u4", "bool", "c128"])
def test_addresses_and_new_arrays_of_any_type(kind: str) -> None:
    """Types outside of NumPy have no buffer interface, so their address is found another way."""
    dtype = dtypes.BY_NAME[kind].numpy
    array, where = fresh_array((3, 2), dtype, 6 * dtype.itemsize)
    assert array.dtype == dtype and array.shape == (3, 2)
    assert where == array.ctypes.data and where % ALIGNMENT == 0
    frozen = array.copy()
    frozen.flags.writeable = False
    for one in (array, array.T, array[:0], frozen):
        assert address(one) == one.ctypes.data


def test_wrong_variables_are_refused() -> None:
    made = build(counter(), WeightStore())
    with pytest.raises(RunError, match="the model has no variable 'w'"):
        made.read("w")
    with pytest.raises(RunError, match="variable 'total' is float32 of shape 2"):
        made.write("total", np.zeros(3, np.float32))


def test_a_missing_program_is_named() -> None:
    with pytest.raises(BackendError, match=r"no tile\.program 'other'"):
        build(counter(), WeightStore(), name="other")
    with pytest.raises(BackendError, match="0 threads"):
        build(counter(), WeightStore(), threads=0)


@pytest.mark.parametrize("threads", [2, 3, 8])
def test_results_do_not_depend_on_the_thread_count(threads: int) -> None:
    module = chunked_exp()
    wanted = build(module, WeightStore()).run({"x": X})["y"]
    np.testing.assert_allclose(wanted, np.exp(X), rtol=1e-6)
    made = build(module, WeightStore(), threads=threads)
    for _ in range(300):
        np.testing.assert_array_equal(made.run({"x": X})["y"], wanted)


def test_more_chunks_than_fit_in_16_bits() -> None:
    count = 70_000

    def body(chunk: SSAValue, y: SSAValue) -> None:
        memref.StoreOp.get(arith.ConstantOp(FloatAttr(1.0, f32)), y, [chunk])

    op = kernels.function("one", [MemRefType(f32, [count])], body)
    module = kernels.program([(op, [], "y")], chunks=count)
    for threads in (1, 2):
        made = build(module, WeightStore(), threads=threads)
        assert made.run({})["y"].sum() == count


def test_one_executable_serves_several_python_threads() -> None:
    made = build(counter(), WeightStore(), threads=2)
    x = np.ones(2, np.float32)

    def work() -> None:
        for _ in range(200):
            made.run({"x": x})

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert made.read("total").tolist() == [810.0, 820.0]


def test_several_executables_share_the_pool_of_a_library() -> None:
    made = [build(chunked_exp(), WeightStore(), threads=2) for _ in range(3)]
    wanted = made[0].run({"x": X})["y"]
    wrong: list[int] = []

    def work(executable: CExecutable, number: int) -> None:
        for _ in range(200):
            if not np.array_equal(executable.run({"x": X})["y"], wanted):
                wrong.append(number)

    workers = [threading.Thread(target=work, args=(e, n)) for n, e in enumerate(made)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_the_thread_pool_survives_a_fork() -> None:
    made = build(chunked_exp(), WeightStore(), threads=2)
    wanted = made.run({"x": X})["y"]
    child = os.fork()
    if child == 0:
        good = all(np.array_equal(made.run({"x": X})["y"], wanted) for _ in range(50))
        os._exit(0 if good else 1)
    ended: list[int] = []
    waiting = threading.Thread(target=lambda: ended.append(os.waitpid(child, 0)[1]))
    waiting.start()
    waiting.join(30)
    if not ended:
        os.kill(child, signal.SIGKILL)
        waiting.join()
        pytest.fail("the forked child hangs")
    assert os.waitstatus_to_exitcode(ended[0]) == 0
    np.testing.assert_array_equal(made.run({"x": X})["y"], wanted)


def test_constants_in_any_order_of_memory() -> None:
    """Constants may be views of files: unaligned, strided, read-only."""
    memory = MemRefType(f32, [2000])
    raw = np.zeros(8001, np.uint8)
    odd = raw[1:].view(np.float32)
    odd[:] = np.arange(2000)
    weights = WeightStore()
    literal = weights.defer("odd", (2000,), odd.dtype, lambda: odd[::-1])

    def copy(_: SSAValue, a: SSAValue, y: SSAValue) -> None:
        kernels.loop(2000, 1, lambda i: memref.StoreOp.get(memref.LoadOp.get(a, [i]), y, [i]))

    op = kernels.function("copy", [memory] * 2, copy)
    program = ProgramOp("main", 0, 0, 0)
    with ImplicitBuilder(program.body.block):
        constant = BufferOp("constant", memory, literal=literal).memory
        CallOp(
            "copy", [constant, BufferOp("output", memory, label="y").memory], IntegerAttr(1, i64)
        )
    found = build(ModuleOp([op, program]), weights).run({})["y"]
    np.testing.assert_array_equal(found, np.arange(2000, dtype=np.float32)[::-1])


@pytest.mark.skipif(not can_fork(), reason="this system cannot fork")
@pytest.mark.skipif(sys.platform != "linux", reason="other systems copy pages at a fork")
def test_a_forked_child_shares_no_scratch_memory() -> None:
    memory = scratch(LARGE_PAGE)
    memory[:] = 1

    def work() -> None:
        assert not memory.any()
        memory[:] = 2

    assert Child(work, Lock()).outcome() == ""
    assert (memory == 1).all()
