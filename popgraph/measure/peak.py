"""Measures the roofline of the machine: peak floating-point rate and memory bandwidth."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from popgraph import compiler
from popgraph.backends.registry import DEFAULT, backend_named
from popgraph.measure.timing import Contestant, race
from popgraph.passes.base import Compilation

ITERATIONS = 50_000

KERNEL = """
func.func private @multiply_add(%chunk: index, %factors: {factors}, %sums: {sums}) {{
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %iterations = arith.constant {iterations} : index
  %lanes = arith.constant {lanes} : index
  %factor = vector.load %factors[%zero] : {factors}, {vector}
  %addend = vector.load %factors[%lanes] : {factors}, {vector}
  {starts}
  {results} = scf.for %counter = %zero to %iterations step %one iter_args({carried}) -> ({types}) {{
    {multiply_adds}
    scf.yield {following} : {types}
  }}
  {total}
  %place = arith.muli %chunk, %lanes : index
  vector.store {last}, %sums[%place] : {sums}, {vector}
  func.return
}}
tile.program @main arena 0 : i64 persistent 0 : i64 lower_bound 0 : i64 prepare {{
^bb0:
}} body {{
  %factors = tile.buffer "input" at 0 : i64 named <"factors"> : {factors}
  %sums = tile.buffer "output" at 0 : i64 named <"sums"> : {sums}
  tile.call @multiply_add chunks {chunks} : i64(%factors, %sums) : {factors}, {sums}
}}
"""
"""
One kernel that carries `sums` vectors through a loop. The factors are inputs, so that the compiler
cannot fold the loop.
"""


def peak(threads: int) -> tuple[Callable[[], object], int]:
    """A function that runs the loop, and the f32 operations of one call."""
    backend = backend_named(DEFAULT)
    machine = backend.machine()
    assert machine is not None, "the default backend compiles for a machine"
    lanes = machine.vector_bytes // 4
    # Enough accumulators to hide the latency of FMAs, few enough to stay in registers.
    sums = 3 * machine.registers // 4
    compilation = Compilation()
    module = compiler.parse_ir(program(lanes, sums, threads), compilation, "peak")
    executable = backend.build(module, compilation.weights, threads=threads)
    factors = np.full(2 * lanes, 0.5, np.float32)
    return lambda: executable.run({"factors": factors}), 2 * lanes * sums * ITERATIONS * threads


def program(lanes: int, sums: int, chunks: int) -> str:
    """The program's text for vectors of `lanes` elements; each chunk runs the whole loop."""
    numbers, vector = range(sums), f"vector<{lanes}xf32>"

    def each(form: str, separator: str = ", ", first: int = 0) -> str:
        return separator.join(form.replace("#", str(i)) for i in numbers[first:])

    starts = "\n".join(
        f"%start{i} = arith.constant {i / 8} : f32\n"
        f"%first{i} = vector.broadcast %start{i} : f32 to {vector}"
        for i in numbers
    )
    totals = [f"%total{i} = arith.addf %total{i - 1}, %last{i} : {vector}" for i in numbers[1:]]
    return KERNEL.format(
        factors=f"memref<{2 * lanes}xf32>",
        sums=f"memref<{chunks * lanes}xf32>",
        vector=vector,
        iterations=ITERATIONS,
        lanes=lanes,
        chunks=chunks,
        starts=starts,
        results=each("%last#"),
        carried=each("%sum# = %first#"),
        types=each(vector),
        multiply_adds=each(f"%next# = vector.fma %sum#, %factor, %addend : {vector}", "\n"),
        following=each("%next#"),
        total="\n".join([f"%total0 = arith.addf %last0, %last0 : {vector}", *totals]),
        last=f"%total{sums - 1}",
    )


ROUNDS = 5
COPIED = 1 << 26
"""Bytes copied at once, more than caches hold."""


@dataclass(frozen=True)
class Roof:
    """The upper bounds of a kernel's rates."""

    gflops: float
    """Peak f32 rate in GFLOP/s."""
    gigabytes: float
    """Main-memory bandwidth in GB/s, reads plus writes."""


def roof(threads: int) -> Roof:
    """Measures the roofline: the fastest of a few interleaved rounds."""
    loop, flops = peak(threads)
    pairs = [
        (np.empty(COPIED // threads, np.uint8), np.ones(COPIED // threads, np.uint8))
        for _ in range(threads)
    ]
    with ThreadPoolExecutor(threads) as pool:
        # With one thread, the copy runs in the calling thread, whose clock is read.
        each = map if threads == 1 else pool.map
        contestants = [
            Contestant("peak", loop),
            Contestant("copy", lambda: [*each(lambda pair: np.copyto(*pair), pairs)]),
        ]
        race(contestants, threads=threads, seconds=0, rounds=ROUNDS)
    fastest, copied = contestants
    return Roof(flops / fastest.best / 1e9, 2 * COPIED / copied.best / 1e9)
