"""Profiles a program: times every call separately, in order, on the real memory; traces calls."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from popgraph.backends.c.build.compiling import library
from popgraph.backends.c.print import module as printer
from popgraph.backends.c.print.layout import Layout
from popgraph.backends.c.print.program import print_program, print_traced
from popgraph.backends.c.print.trace import (
    CALIBRATIONS,
    INNER,
    OUTER,
    Place,
    Site,
    counters_name,
    site_of,
)
from popgraph.backends.c.print.unit import kernel_unit
from popgraph.backends.c.run.executable import CExecutable
from popgraph.backends.c.run.library import Code, Entry, load, numbers
from popgraph.backends.tools import UNKNOWN, Traced, TracedBody
from popgraph.dialects.program import WeightStore
from popgraph.dialects.tile import BufferOp, CallOp, ProgramOp, RunsPrograms
from popgraph.dialects.tile.program.lifetimes import calls
from popgraph.dialects.tile.program.ops import find_program
from popgraph.support.arrays import Array


@dataclass
class Timing:
    """The fastest time of an entry point, in nanoseconds."""

    entry: Entry
    clock: Callable[[], int]
    best: int = UNKNOWN

    def measure(self, memory: int) -> None:
        start = self.clock()
        self.entry(memory)
        self.best = min(self.best, self.clock() - start)


class Profile:
    """
    A program whose calls can be run one by one, each on the memory that the last one left.

    Each call is a function of its own in a second library, so that other programs contain no
    timing code. The clock is CPU time with one thread, else wall time. Calls in loops and branches
    are counted and timed by a third variant of the program (see `Trace`), in wall time.
    """

    def __init__(
        self, module: ModuleOp, weights: WeightStore, threads: int = 1, name: str = "main"
    ) -> None:
        program = find_program(module, name)
        layout = Layout(program)
        clock = time.thread_time_ns if threads == 1 else time.perf_counter_ns
        self.calls = calls(program)
        singles = [_only(program, call, number) for number, call in enumerate(self.calls)]
        singles.append(_only(program, None, len(singles)))
        kernels = printer.print_kernels(module, shared=True)
        unit = printer.program_unit(program, layout, kernels)
        text = unit.text + "".join(printer.visible(single.sym_name.data) for single in singles)
        text += "".join(print_program(single, layout, kernels) for single in singles)
        site = site_of(layout, f"{program.sym_name.data}_traced")
        has_control = any(isinstance(call, RunsPrograms) for call in self.calls)
        if has_control:
            text += printer.visible(site.symbol) + print_traced(site, kernels)
        path = library([replace(unit, text=text), kernel_unit(kernels)])
        self._code = [load(path, one.sym_name.data, alone=True) for one in (program, *singles)]
        self._whole, *self._timings, self._empty = [Timing(code.run, clock) for code in self._code]
        self._trace = Trace(site, load(path, site.symbol, alone=True)) if has_control else None
        self._now = self._parts(call_by_call=True)
        code = Code(self._code[0].prepare, self._run)
        self.executable = CExecutable(layout.table, code, weights, threads)

    def _run(self, memory: int) -> None:
        for one in self._now:
            one.measure(memory)

    def _parts(self, call_by_call: bool) -> list[Timing | Trace]:
        """The parts of a measured step, in order."""
        parts: list[Timing | Trace] = [self._whole, self._empty]
        if call_by_call:
            parts += self._timings
            parts += [self._trace] if self._trace else []
        return parts

    def measure(
        self, inputs: Mapping[str, Array], rounds: int, *, call_by_call: bool = True
    ) -> None:
        """Runs the program `rounds` times as a whole and, if `call_by_call`, in single calls."""
        self._now = self._parts(call_by_call)
        for _ in range(rounds):
            self.executable.run(inputs)

    @property
    def total(self) -> int:
        """The fastest time of the whole program, in nanoseconds."""
        return self._less(self._whole)

    @property
    def times(self) -> list[int]:
        """The fastest time of each call, in nanoseconds."""
        return [self._less(timing) for timing in self._timings]

    @property
    def traced(self) -> list[Traced]:
        """The time of each call and of the calls inside, scaled to the call's separate time."""
        if self._trace is None:
            pairs = zip(self.calls, self.times, strict=True)
            return [Traced(call, 1, time, ()) for call, time in pairs]
        traced = zip(self._trace.calls(), self.times, strict=True)
        return [
            replace(call.scaled(time / (call.nanoseconds or 1)), nanoseconds=time)
            for call, time in traced
        ]

    def _less(self, timing: Timing) -> int:
        """The time without the overhead of an empty call and of the clock."""
        return max(0, timing.best - self._empty.best)


def _only(program: ProgramOp, call: CallOp | RunsPrograms | None, number: int) -> ProgramOp:
    """A program with only this call, on the memory of the whole program."""
    sizes = (program.arena, program.persistent, program.lower_bound)
    name = f"{program.sym_name.data}_call_{number}"
    arena, persistent, bound = (attribute.value.data for attribute in sizes)
    single = ProgramOp(name, arena, persistent, bound)
    if call is None:
        return single
    copies: dict[SSAValue, SSAValue] = {}
    for argument in dict.fromkeys(call.arguments):
        assert isinstance(argument.owner, BufferOp)
        buffer = argument.owner.clone()
        single.body.block.add_op(buffer)
        copies[argument] = buffer.memory
    single.body.block.add_op(call.clone(copies))
    single.location = program.location
    return single


# Traces: counts and times of all calls, including loops and branches

COUNT, TIME = 0, 1


class Trace:
    """The counters of a traced program, kept from the fastest run of each call."""

    def __init__(self, site: Site, code: Code) -> None:
        self._places, self._code = site.places, code
        self._now = numbers(code, counters_name(site), 2 * site.counters()).reshape(-1, 2)
        self._best: dict[int, Array] = {}
        self._inner = self._outer = 2**62
        """The fastest times of the calibration probes."""

    def measure(self, memory: int) -> None:
        """Runs a step."""
        self._now[...] = 0
        self._code.run(memory)
        self._inner = min(self._inner, int(self._now[INNER, TIME]))
        self._outer = min(self._outer, int(self._now[OUTER, TIME]))
        for place in self._places:
            best = self._best.get(place.counter)
            if best is None or self._now[place.counter, TIME] < best[place.counter, TIME]:
                self._best[place.counter] = self._now.copy()

    def calls(self) -> list[Traced]:
        """The time of each call of a step, in order, without the cost of probes."""
        return [self._traced(place, self._best[place.counter]) for place in self._places]

    def _traced(self, place: Place, found: Array) -> Traced:
        count, time = (int(one) for one in found[place.counter])
        bodies = tuple(self._body(site, found) for site in place.bodies)
        inside = sum(_probes(body) for body in bodies)
        probes = count * self._inner + inside * max(0, self._outer - self._inner)
        least = sum(call.nanoseconds for body in bodies for call in body.calls)
        return Traced(place.op, count, max(least, time - probes // CALIBRATIONS), bodies)

    def _body(self, site: Site, found: Array) -> TracedBody:
        calls = tuple(self._traced(place, found) for place in site.places)
        return TracedBody(site.name, int(found[site.counter, COUNT]), calls)


def _probes(body: TracedBody) -> int:
    """The number of probes (pairs of clock reads) in all runs of a body."""
    return sum(call.count + sum(map(_probes, call.bodies)) for call in body.calls)
