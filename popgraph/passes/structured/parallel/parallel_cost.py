"""The cost model of threads: cycles of the slowest one, for each way to cut loops into chunks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from xdsl.ir import SSAValue

from popgraph.dialects.tile.cut import Part
from popgraph.passes.structured.analysis.parallel_loops import Loop, MemoryAccess, ParallelLoops
from popgraph.support.tuning import Target

Parts = tuple[Part, ...]

WrittenSpans = Mapping[SSAValue, int | None]
"""Which values earlier kernels wrote: with the span of the loop that threads split, if any."""


def best_parts(
    what: ParallelLoops, written_spans: WrittenSpans, threads: int, target: Target
) -> Parts:
    """The parts of loops that make chunks; none where one thread is not slower."""
    tuning = target.tuning
    if what.work < 2 * tuning.least_chunk_work:
        return ()
    costs = _Costs(what, written_spans, threads, target)
    most = min(tuning.chunks_per_thread * threads, what.work // tuning.least_chunk_work)
    single: list[Parts] = [
        (part,) for at, loop in enumerate(what.loops) for part in _parts(loop, at, most)
    ]
    best = min(single, key=costs.of, default=())
    if what.together > 1 and (not best or costs.uneven(best) > tuning.uneven_work):
        best = min([*([best] if best else []), *_pairs(what.loops, most)], key=costs.of, default=())
    return best if best and costs.of(best) < costs.alone else ()


def _parts(loop: Loop, number: int, most: int) -> Iterator[Part]:
    """Parts of one loop, each size once."""
    units = -(-loop.extent // loop.step)
    sizes = {-(-units // count) for count in range(2, min(units, most) + 1)}
    for size in sorted(sizes, reverse=True):
        if size >= loop.least and not (loop.even and units % size):
            yield Part(number, -(-units // size), size * loop.step)


def _pairs(loops: Sequence[Loop], most: int) -> Iterator[Parts]:
    """All steps of a short loop, and a few parts of another one in each of them."""
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

    Threads take neighbouring chunks. What these touch comes from where it is: from a thread's own
    cache if the same thread wrote it, else from afar.
    """

    what: ParallelLoops
    written_spans: WrittenSpans
    threads: int
    target: Target

    @property
    def cycles(self) -> float:
        """Cycles of all work: elements touched / elements_per_cycle."""
        return self.what.work / self.target.machine.elements_per_cycle

    @property
    def alone(self) -> float:
        """One thread does it all."""
        moved = sum(each.size * self._per_byte(each, (), 0) for each in self.what.touched)
        return self.cycles + moved

    def of(self, parts: Parts) -> float:
        return max(
            self._thread(parts, number, chunks) for number, chunks in enumerate(self._ranges(parts))
        )

    def uneven(self, parts: Parts) -> float:
        """How much longer than its share the work of the slowest thread takes."""
        slowest = max(
            sum(self._share(parts, at) for at in chunks) for chunks in self._ranges(parts)
        )
        return self.threads * slowest

    def _thread(self, parts: Parts, number: int, chunks: range) -> float:
        """
        Cycles of one thread.

        Its share of the work, a part of the largest chunk for which others wait, the bytes that it
        moves / their bandwidth, the bytes that it reads again / remote_bpc, and the start of each
        chunk.
        """
        machine = self.target.machine
        shares = [self._share(parts, at) for at in chunks]
        moved = sum(
            each.size * self._per_byte(each, parts, number) * self._part_of(parts, chunks, each)
            for each in self.what.touched
        )
        waiting = self.target.tuning.last_chunk_wait * max(shares, default=0.0)
        again = self._again(parts, chunks) / machine.remote_bpc
        started = machine.chunk_start_cycles * len(chunks)
        return self.cycles * (sum(shares) + waiting) + moved + again + started

    def _again(self, parts: Parts, chunks: range) -> float:
        """
        Bytes that every chunk reads again, though the whole loop would read them once.

        That is what only loops outside of a cut one go over (loops are outermost first). It stays
        near if half of the second cache holds all that a chunk touches.
        """
        touched, inner = self.what.touched, max(part.loop for part in parts)
        one = sum(each.size * self._part_of(parts, chunks[:1], each) for each in touched)
        if one <= self.target.l2(self.target.tuning.chunk_reread_l2):
            return 0.0
        return sum(
            each.size
            * (
                sum(self._part_of(parts, [chunk], each) for chunk in chunks)
                - self._part_of(parts, chunks, each)
            )
            for each in touched
            if each.along and max(each.along) < inner
        )

    def _per_byte(self, each: MemoryAccess, parts: Parts, number: int) -> float:
        """Cycles in which a byte of a value comes to a thread: 1 / (local, remote, strided bpc)."""
        machine = self.target.machine
        outer = parts[0].loop if parts else -1
        strided = outer in each.short(self.target)
        far = 1 / (machine.remote_strided_bpc if strided else machine.remote_bpc)
        near = 1 / machine.local_bpc
        if each.written:
            return far if strided else near
        if each.value not in self.written_spans:
            return 1 / machine.remote_bpc
        span = self.written_spans[each.value]
        if span is None:
            return near if number == 0 else far
        if parts and each.spans[outer] == span:
            return near
        return near / self.threads + far * (1 - 1 / self.threads)

    def _ranges(self, parts: Parts) -> list[range]:
        """The chunks of each thread, as the pool hands them out."""
        count, threads = prod(part.count for part in parts), self.threads
        return [range(at * count // threads, (at + 1) * count // threads) for at in range(threads)]

    def _share(self, parts: Parts, chunk: int) -> float:
        """How much of the work a chunk is."""
        return self._volume(parts, _numbers(parts, chunk))

    def _part_of(self, parts: Parts, chunks: Sequence[int], each: MemoryAccess) -> float:
        """How much of a value these chunks touch."""
        inside = [at for at, part in enumerate(parts) if part.loop in each.along]
        distinct = {tuple(_numbers(parts, chunk)[at] for at in inside) for chunk in chunks}
        some = tuple(parts[at] for at in inside)
        return sum(self._volume(some, numbers) for numbers in distinct)

    def _volume(self, parts: Parts, numbers: Sequence[int]) -> float:
        return prod(
            part.share(number, self.what.loops[part.loop].extent)
            for part, number in zip(parts, numbers, strict=True)
        )


def _numbers(parts: Parts, chunk: int) -> list[int]:
    """Which part of each loop a chunk has."""
    numbers = []
    for part in reversed(parts):
        chunk, number = divmod(chunk, part.count)
        numbers.append(number)
    return numbers[::-1]
