"""Parallelization: cuts the loops of every kernel into chunks for threads, by a cost model."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from popgraph.dialects.tile.attributes import moved_to_start
from popgraph.dialects.tile.cut import NAME, CutAttr, Part
from popgraph.passes.analysis.structural_hash import StructuralHasher
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.properties import BOUND, UNCUT
from popgraph.passes.structured.analysis.parallel_loops import Loop, MemoryAccess, ParallelLoops
from popgraph.passes.structured.to_loops import kernels_of, parallel_loops_of
from popgraph.support.tuning import Target

Parts = tuple[Part, ...]

WrittenSpans = Mapping[SSAValue, int | None]
"""The values that earlier kernels wrote, with the span of the loop that threads split, if any."""


@dataclass(frozen=True)
class ParallelizeLoops(Pass):
    """
    Cut the loops of operations into chunks for threads, as `cut` attributes.

    Chunks write disjoint memory, so any number of threads may run them in any order, with the same
    bits. Chunks are sized for `threads`: even work, and values that the same thread wrote.
    """

    name = "parallelize-loops"
    NEEDS = (BOUND,)
    LOSES = (UNCUT,)
    threads: int = 1
    target: Target = Target()

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        if self.threads < 2:
            return
        written_spans: dict[SSAValue, int | None] = {}
        structures = StructuralHasher(moved_to_start)
        known: dict[Hashable, tuple[Part, ...]] = {}
        for op in kernels_of(module):
            kernel = parallel_loops_of(op, self.target)
            if kernel is None:
                continue
            # Most layers of a network repeat a structure: each is estimated once.
            key = structures.of(op), tuple(written_spans.get(value, 0) for value in op.operands)
            parts = known.get(key)
            if parts is None:
                parts = known[key] = best_parts(kernel, written_spans, self.threads, self.target)
            if parts:
                op.attributes[NAME] = CutAttr.of(parts)
            _note_written(kernel, parts, written_spans)


def _note_written(
    kernel: ParallelLoops, parts: tuple[Part, ...], written_spans: dict[SSAValue, int | None]
) -> None:
    """Records the span of the loop by which threads wrote each result."""
    for each in kernel.touched:
        if each.written:
            written_spans[each.value] = each.spans[parts[0].loop] if parts else None


# The cost model


def best_parts(
    kernel: ParallelLoops, written_spans: WrittenSpans, threads: int, target: Target
) -> Parts:
    """The cheapest partition of loops into chunks; () if one thread is as fast."""
    tuning = target.tuning
    if kernel.work < 2 * tuning.least_chunk_work:
        return ()
    costs = _Costs(kernel, written_spans, threads, target)
    most = min(tuning.chunks_per_thread * threads, kernel.work // tuning.least_chunk_work)
    single: list[Parts] = [
        (part,) for at, loop in enumerate(kernel.loops) for part in _parts(loop, at, most)
    ]
    best = min(single, key=costs.of, default=())
    # Three panels for two threads would be 2 to 1 (case three-panels-for-two-threads.mlir).
    if kernel.together > 1 and (not best or costs.imbalance(best) > tuning.uneven_work):
        best = min(
            [*([best] if best else []), *_pairs(kernel.loops, most)], key=costs.of, default=()
        )
    return best if best and costs.of(best) < costs.single_thread else ()


def _parts(loop: Loop, number: int, most: int) -> Iterator[Part]:
    """Yields the partitions of one loop, each size once."""
    # 5 to 9 parts of 10 units all have the size 2.
    units = -(-loop.extent // loop.step)
    sizes = {-(-units // count) for count in range(2, min(units, most) + 1)}
    for size in sorted(sizes, reverse=True):
        if size >= loop.least and not (loop.even and units % size):
            yield Part(number, -(-units // size), size * loop.step)


def _pairs(loops: Sequence[Loop], most: int) -> Iterator[Parts]:
    """Yields pairs: each step of a short outer loop, times a few parts of an inner loop."""
    for outer, inner in product(range(len(loops)), repeat=2):
        units = -(-loops[outer].extent // loops[outer].step)
        if outer < inner and 2 <= units <= most:
            whole = Part(outer, units, loops[outer].step)
            for part in _parts(loops[inner], inner, max(2, most // units)):
                yield whole, part


@dataclass(frozen=True)
class _Costs:
    """
    Cycles of the slowest thread.

    Each thread owns a contiguous range of chunks. A value is local if the same thread wrote it,
    else remote.
    """

    # Decision 0005, two cores with 2 MB of L2: local data are read at 58 to 136 GB/s, remote data
    # at 17 to 25 GB/s, and in short runs at 5 GB/s. With local values, SqueezeNet takes 0.77 of
    # the time on two threads, ResNet-50 0.92 (b98db731).

    kernel: ParallelLoops
    written_spans: WrittenSpans
    threads: int
    target: Target

    @property
    def cycles(self) -> float:
        """Cycles of all work: elements touched / elements_per_cycle."""
        return self.kernel.work / self.target.machine.elements_per_cycle

    @property
    def single_thread(self) -> float:
        """Cycles if one thread does all work."""
        moved = sum(each.size * self._per_byte(each, (), 0) for each in self.kernel.touched)
        return self.cycles + moved

    def of(self, parts: Parts) -> float:
        return max(
            self._thread(parts, number, chunks) for number, chunks in enumerate(self._ranges(parts))
        )

    def imbalance(self, parts: Parts) -> float:
        """Work of the slowest thread, over the mean."""
        slowest = max(
            sum(self._share(parts, at) for at in chunks) for chunks in self._ranges(parts)
        )
        return self.threads * slowest

    def _thread(self, parts: Parts, number: int, chunks: range) -> float:
        """
        Cycles of one thread.

        Its share of the work + last_chunk_wait of the largest chunk + bytes / their bandwidth +
        reread bytes / remote_bpc + chunk_start_cycles for each chunk.
        """
        machine = self.target.machine
        shares = [self._share(parts, at) for at in chunks]
        moved = sum(
            each.size
            * self._per_byte(each, parts, number)
            * self._touched_share(parts, chunks, each)
            for each in self.kernel.touched
        )
        waiting = self.target.tuning.last_chunk_wait * max(shares, default=0.0)
        again = self._reread_bytes(parts, chunks) / machine.remote_bpc
        started = machine.chunk_start_cycles * len(chunks)
        return self.cycles * (sum(shares) + waiting) + moved + again + started

    def _reread_bytes(self, parts: Parts, chunks: range) -> float:
        """
        Bytes that every chunk reads again and the whole loop would read once.

        These values depend only on loops outside of a cut one (loops are outermost first). They are
        hits if all data of a chunk fit in `chunk_reread_l2`.
        """
        # ResNet-50, 1024 to 256 channels, chunks of rows: each chunk reads 1 MB of weights again,
        # 14 times in all (decision 0005).
        touched, inner = self.kernel.touched, max(part.loop for part in parts)
        one = sum(each.size * self._touched_share(parts, chunks[:1], each) for each in touched)
        if one <= self.target.l2(self.target.tuning.chunk_reread_l2):
            return 0.0
        return sum(
            each.size
            * (
                sum(self._touched_share(parts, [chunk], each) for chunk in chunks)
                - self._touched_share(parts, chunks, each)
            )
            for each in touched
            if each.along and max(each.along) < inner
        )

    def _per_byte(self, each: MemoryAccess, parts: Parts, number: int) -> float:
        """Cycles to move a byte of a value to a thread: 1 / (local, remote or strided bpc)."""
        machine = self.target.machine
        outer = parts[0].loop if parts else -1
        strided = outer in each.short(self.target)
        far = 1 / (machine.remote_strided_bpc if strided else machine.remote_bpc)
        near = 1 / machine.local_bpc
        if each.written:
            return far if strided else near
        if each.value not in self.written_spans:  # An input or a constant.
            return 1 / machine.remote_bpc
        span = self.written_spans[each.value]
        if span is None:  # Thread 0 wrote all of it.
            return near if number == 0 else far
        if parts and each.spans[outer] == span:
            return near
        return near / self.threads + far * (1 - 1 / self.threads)

    def _ranges(self, parts: Parts) -> list[range]:
        """The range of chunks that the pool assigns to each thread."""
        count, threads = prod(part.count for part in parts), self.threads
        return [range(at * count // threads, (at + 1) * count // threads) for at in range(threads)]

    def _share(self, parts: Parts, chunk: int) -> float:
        """The share of the work in one chunk."""
        return self._volume(parts, _numbers(parts, chunk))

    def _touched_share(self, parts: Parts, chunks: Sequence[int], each: MemoryAccess) -> float:
        """The share of a value that some chunks touch."""
        inside = [at for at, part in enumerate(parts) if part.loop in each.along]
        distinct = {tuple(_numbers(parts, chunk)[at] for at in inside) for chunk in chunks}
        some = tuple(parts[at] for at in inside)
        return sum(self._volume(some, numbers) for numbers in distinct)

    def _volume(self, parts: Parts, numbers: Sequence[int]) -> float:
        return prod(
            part.share(number, self.kernel.loops[part.loop].extent)
            for part, number in zip(parts, numbers, strict=True)
        )


def _numbers(parts: Parts, chunk: int) -> list[int]:
    """The number of a chunk's part in each loop."""
    numbers = []
    for part in reversed(parts):
        chunk, number = divmod(chunk, part.count)
        numbers.append(number)
    return numbers[::-1]
