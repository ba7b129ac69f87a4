"""Facts about the memory accesses of one kernel, proven for all iterations and chunks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field, replace

import numpy as np
from xdsl.dialects import func
from xdsl.ir import Operation

from popgraph.passes.validation.forms import Form, Loop, Numbers
from popgraph.passes.validation.runs import NOTHING, Runs, united
from popgraph.passes.validation.sites import Instances, Memory, Setting, Site, Sites, elements_of

NEVER = np.iinfo(np.int64).max


class Violation(Exception):
    """A broken promise of a kernel: an element of a memory and the mistake."""

    def __init__(self, mistake: str, argument: int, element: int, op: Operation) -> None:
        super().__init__(mistake)
        self.mistake = mistake
        self.argument = argument
        """The number of the kernel's memory; -1 for a local array."""
        self.element = element
        self.op = op


@dataclass
class Accesses:
    """The elements that all chunks of a kernel read and write, by number of the argument."""

    reads: dict[int, Runs] = field(default_factory=dict)
    """Elements read before the kernel itself writes them."""
    writes: dict[int, Runs] = field(default_factory=dict)
    """Elements written whatever the data are."""
    may_write: dict[int, Runs] = field(default_factory=dict)
    """All elements that data may choose to write, and those in `writes`."""
    assumed: set[str] = field(default_factory=set)
    listed: int = 0
    """The operations whose iterations were listed, as their indices are not linear."""
    sites: int = 0
    """The operations that access memory."""
    ordered: int = 0
    """The memories for which the order of reads and writes counts."""

    def is_within(self, other: Accesses) -> bool:
        """Whether the other one accesses all elements that this one does."""
        return not any(
            elements - more.get(number, NOTHING)
            for own, more in ((self.reads, other.reads), (self.may_write, other.may_write))
            for number, elements in own.items()
        )


def accesses_of(kernel: func.FuncOp, setting: Setting) -> Accesses:
    """The accesses of a kernel; Violation if it breaks a promise by itself."""
    return _Proof(kernel, setting).accesses()


class _Proof:
    """The proof for one kernel."""

    def __init__(self, kernel: func.FuncOp, setting: Setting) -> None:
        self._sites = Sites(kernel, setting)
        self._setting = setting
        self._numbers: dict[Memory, int] = {
            memory: at for at, memory in enumerate(self._sites.arguments)
        }
        self._found = Accesses(assumed=self._sites.assumed)

    def accesses(self) -> Accesses:
        """All facts."""
        for memory, sites in self._sites.memories().items():
            for site in sites:
                self._check_bounds(site)
            self._memory(memory, sites)
        for operand, result in sorted(self._setting.shared):
            self._check_in_place(operand, result)
        return self._found

    def _violation(self, mistake: str, memory: Memory, element: int, op: Operation) -> Violation:
        return Violation(mistake, self._numbers.get(memory, -1), element, op)

    def _check_bounds(self, site: Site) -> None:
        """Every index is inside its memory, whatever the data are if bounds show it."""
        low, high = site.index.bounds
        size = site.size
        if low >= 0 and high + site.width <= size:
            return
        if not site.is_located:
            return
        elements = site.instances(set()).elements
        for wrong in (elements.within(-(1 << 62), 0), elements - Runs.of(0, size)):
            if wrong:
                verb = "written" if site.writes else "read"
                raise self._violation(
                    f"{verb} outside the {size} elements of its memory", site.memory,
                    wrong.first, site.op,
                )  # fmt: skip

    def _memory(self, memory: Memory, sites: Sequence[Site]) -> None:
        """Proves all promises about one memory, and notes its elements that are accessed."""
        reads = [site for site in sites if not site.writes]
        certain = [site for site in sites if site.writes and site.certain]
        others = [site for site in sites if site.writes and not site.certain]
        spread = [site.instances(set()) for site in certain]
        written = united(one.elements for one in spread)
        possible = united([written, *map(_region, others)])
        early = read = united(map(_region, reads))
        is_local = memory not in self._numbers
        self._found.sites += len(sites)
        self._found.listed += sum(bool(one.counters) for one in spread)
        if not is_local and possible:
            only_written = not reads and not others
            once = only_written and sum(one.count for one in spread) == written.count
            if self._setting.chunks > 1 and not once:
                self._check_chunks(memory, [*certain, *others], reads)
            if only_written and not once:
                self._check_once(memory, spread)
        if read and possible:
            self._found.ordered += 1
            located = [site for site in reads if site.is_located]
            early = self._early(memory, [*located, *certain])
            # Elements that data choose, to read or to write, are known in a run only.
            if others or len(located) < len(reads):
                self._found.assumed.add("writes")
                early = (early - (possible - written)) | (read - possible)
        if is_local:
            if early:
                mistake = "read before anything is written"
                raise self._violation(mistake, memory, early.first, _reader(reads, early))
            return
        number = self._numbers[memory]
        for held, elements in (
            (self._found.reads, early),
            (self._found.writes, written),
            (self._found.may_write, possible),
        ):
            if elements:
                held[number] = elements

    def _check_once(self, memory: Memory, spread: Sequence[Instances]) -> None:
        """
        No element is written twice, as nothing reads it in between.

        A kernel may fill memory with a literal first, as halos and padding are zeroed. Vectors of
        equal width may overlap: 20 channels are 0..16 and 4..20.
        """
        values = [one for one in spread if not one.site.fills]
        fills = [one.site for one in spread if one.site.fills]
        written = united(one.elements for one in values)
        if sum(one.count for one in values) != written.count:
            self._check_overlaps(memory, values)
        if not fills or not written:
            return
        timed = _loops(fills) & _loops(one.site for one in values)
        last_fill = self._times(memory, fills, timed, last=True)
        first_value = self._times(memory, [one.site for one in values], timed)
        late = _as_runs(last_fill > first_value)
        if late:
            mistake = "filled with a literal after its value is written"
            raise self._violation(mistake, memory, late.first, _reader(fills, late))

    def _check_overlaps(self, memory: Memory, values: Sequence[Instances]) -> None:
        """Elements that are written twice belong to different vectors of equal width."""
        widths = dict[int, list[Instances]]()
        for one in values:
            widths.setdefault(one.site.width, []).append(one)
        seen = NOTHING
        for same in widths.values():
            listed = [one.site.instances({*one.site.loops}) for one in same]
            bases = np.sort(np.concatenate([one.bases for one in listed]))
            again = bases[1:][bases[1:] == bases[:-1]]
            elements = united(one.elements for one in same)
            again = np.concatenate([again, (seen & elements).elements()])
            if len(again):
                first = int(again[0])
                op = _reader([one.site for one in same], Runs.of(first, first + 1))
                raise self._violation("written twice", memory, first, op)
            seen = seen | elements

    def _check_chunks(self, memory: Memory, writes: Sequence[Site], reads: Sequence[Site]) -> None:
        """Chunks write different elements, and none reads an element that another one writes."""
        if not all(site.is_located for site in (*writes, *reads)):
            self._found.assumed.add("rows")
        chunk = self._sites.chunk
        own = [_of_chunks(site, chunk) for site in writes if site.is_located]
        others = [_of_chunks(site, chunk) for site in reads if site.is_located]
        written = united(map(_region, (site for site in writes if site.is_located)))
        seen = NOTHING
        for number in range(self._setting.chunks):
            mine = united(one[number] for one in own)
            if twice := seen & mine:
                op = _reader(writes, twice)
                raise self._violation("written by two chunks", memory, twice.first, op)
            seen = seen | mine
            if foreign := united(one[number] for one in others) & (written - mine):
                mistake = "written by one chunk and read by another"
                raise self._violation(mistake, memory, foreign.first, _reader(reads, foreign))

    def _early(self, memory: Memory, sites: Sequence[Site]) -> Runs:
        """The elements that are read before they are written."""
        reads = [site for site in sites if not site.writes]
        writes = [site for site in sites if site.writes]
        timed = _loops(reads) & _loops(writes)
        # Iterations that access what the first one accesses need no proof of their own.
        idle = {loop for loop in timed if _is_idle(loop, sites)}
        first_write = self._times(memory, writes, timed, idle)
        first_read = self._times(memory, reads, timed, idle)
        early = _as_runs((first_read <= first_write) & (first_read != NEVER))
        if memory in self._numbers or not early:
            return early
        return Runs.of(early.first % elements_of(memory), early.first % elements_of(memory) + 1)

    def _times(
        self,
        memory: Memory,
        sites: Iterable[Site],
        timed: Set[Loop],
        idle: Set[Loop] = frozenset(),
        *,
        last: bool = False,
    ) -> Numbers:
        """
        The time of the first or last access to each element, of loops that are not `idle`.

        Chunks have local arrays of their own: these are one after the other.
        """
        size, chunk = elements_of(memory), self._sites.chunk
        apart = memory not in self._numbers and chunk in timed and chunk not in idle
        length = size * self._setting.chunks if apart else size
        found = np.full(length, -1 if last else NEVER, np.int64)
        for site in sites:
            located = site if site.is_located else _spread(site)
            one = located.instances(timed - idle)
            times, bases = one.times(timed), one.bases
            if not len(bases):
                continue
            if not site.is_located:  # Always the same elements, so one time is enough.
                chosen = [int(times.argmax() if last else times.argmin())]
                times, bases = times[chosen], bases[chosen]
            elif apart:
                bases = bases + one.counters[chunk] * size
            block = one.block.elements()
            times = np.repeat(times, len(block))
            elements = (bases[:, None] + block).ravel()
            order = np.argsort(times if last else -times, kind="stable")
            own = np.full(length, found.dtype.type(-1 if last else NEVER))
            own[elements[order]] = times[order]  # Of equal elements, the last one stays.
            found = np.maximum(found, own) if last else np.minimum(found, own)
        return found

    def _check_in_place(self, operand: int, result: int) -> None:
        """Every element of the operand is last read before the result's element is written."""
        source, target = self._sites.arguments[operand], self._sites.arguments[result]
        memories = self._sites.memories()
        reads = [site for site in memories.get(source, []) if not site.writes]
        writes = [site for site in memories.get(target, []) if site.writes]
        timed = _loops(reads) & _loops(writes)
        last_read = self._times(source, reads, timed, last=True)
        first_write = self._times(target, writes, timed)
        if early := _as_runs(last_read > first_write):
            mistake = "overwritten by a result before it is read"
            raise self._violation(mistake, source, early.first, _reader(reads, early))
        if self._setting.chunks == 1:
            return
        chunk = self._sites.chunk
        written = united(map(_region, writes))
        own = [_of_chunks(site, chunk) for site in writes if site.is_located]
        for number in range(self._setting.chunks):
            others = written - united(one[number] for one in own)
            for site in reads:
                read = _of_chunks(site, chunk)[number] if site.is_located else _region(site)
                if foreign := read & others:
                    mistake = "overwritten by a result in another chunk"
                    raise self._violation(mistake, source, foreign.first, site.op)


def _region(site: Site) -> Runs:
    """The elements that a site may access."""
    return (site if site.is_located else _spread(site)).instances(set()).elements


def _spread(site: Site) -> Site:
    """A site whose index depends on data, as one that accesses every possible element."""
    low, high = site.index.bounds
    start, end = int(max(low, 0)), int(min(high + site.width, site.size))
    return replace(site, index=Form(start), width=max(end - start, 0))


def _of_chunks(site: Site, chunk: Loop) -> dict[int, Runs]:
    """The elements that each chunk accesses."""
    found = site.instances({chunk})
    if chunk not in found.counters:
        return dict.fromkeys(range(chunk.most), found.elements)
    numbers = found.counters[chunk]
    each = ((number, found.bases[numbers == number]) for number in range(chunk.most))
    return {number: found.block.at_each(bases) if len(bases) else NOTHING for number, bases in each}


def _loops(sites: Iterable[Site]) -> set[Loop]:
    """The loops around any of these accesses."""
    return {loop for site in sites for loop in site.loops}


def _is_idle(loop: Loop, sites: Sequence[Site]) -> bool:
    """Whether no access depends on the iteration of a loop."""
    forms = [site.index for site in sites if loop in site.loops]
    forms += [form for site in sites for form, _ in site.conditions]
    forms += [inner.trips for site in sites for inner in site.loops]
    return not any(loop in form.loops for form in forms)


def _as_runs(chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Runs:
    edges = np.diff(np.concatenate([[0], chosen.astype(np.int8), [0]]))
    return Runs(np.flatnonzero(edges == 1), np.flatnonzero(edges == -1))


def _reader(sites: Sequence[Site], elements: Runs) -> Operation:
    """The operation that accesses the first of these elements."""
    for site in sites:
        if site.is_located and site.instances(set()).elements.within(
            elements.first, elements.first + 1
        ):
            return site.op
    return sites[0].op
