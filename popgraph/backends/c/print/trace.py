"""C of a traced program: probes count and time each call, also inside loops and branches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from popgraph.backends.c.print.layout import Layout
from popgraph.dialects.tile import CallOp, RunsPrograms
from popgraph.dialects.tile.program.lifetimes import calls

INNER, OUTER = 0, 1
"""The counters of a probe around nothing, and of a probe around that probe: its own cost."""
FIRST = 2
"""The first counter of a program."""
CALIBRATIONS = 64
"""Runs of these two probes in a step."""


@dataclass(frozen=True)
class Place:
    """A traced step: the call of a kernel, a branch or a loop, with its counter."""

    op: CallOp | RunsPrograms
    counter: int
    bodies: tuple[Site, ...]
    """The programs that it may run."""


@dataclass(frozen=True)
class Site:
    """A program as one step runs it: the body of two loops has counters for each."""

    layout: Layout
    symbol: str
    """The prefix of its functions in C."""
    counter: int
    places: tuple[Place, ...]

    @property
    def name(self) -> str:
        """The name of the program in the IR."""
        name: str = self.layout.program.sym_name.data
        return name

    def callees(self) -> Iterator[Site]:
        """The callees, each after its own callees."""
        for place in self.places:
            for body in place.bodies:
                yield from body.callees()
                yield body

    def counters(self) -> int:
        """The number of counters in all."""
        sites = (self, *self.callees())
        return FIRST + sum(1 + len(site.places) for site in sites)


def site_of(layout: Layout, symbol: str) -> Site:
    """A program and its callees, with counters."""
    return _site(layout, symbol, count(FIRST))


def _site(layout: Layout, symbol: str, numbers: Iterator[int]) -> Site:
    number = next(numbers)
    places = [
        _place(layout, op, f"{symbol}_{at}", numbers) for at, op in enumerate(calls(layout.program))
    ]
    return Site(layout, symbol, number, tuple(places))


def _place(layout: Layout, op: CallOp | RunsPrograms, symbol: str, numbers: Iterator[int]) -> Place:
    number = next(numbers)
    programs = op.programs if isinstance(op, RunsPrograms) else ()
    bodies = [
        _site(layout.callees[name], f"{symbol}_{name}", numbers) for name in dict.fromkeys(programs)
    ]
    return Place(op, number, tuple(bodies))


def counters_name(site: Site) -> str:
    """The name of the array of pairs (count, nanoseconds)."""
    return f"{site.symbol}_counters"


def probes(site: Site) -> str:
    """The counters, and the functions that read the clock."""
    counters = counters_name(site)
    return f"""
POPGRAPH_EXPORT i64 {counters}[{site.counters()}][2];
static void trace_end(i64 counter, i64 start) {{
    {counters}[counter][1] += popgraph_now() - start;
    {counters}[counter][0]++;
}}
static void trace_began(i64 counter) {{ {counters}[counter][0]++; }}
static void trace_calibrate(void) {{
    for (int k = 0; k < {CALIBRATIONS}; k++) {{ {probed(OUTER, probed(INNER, ""))} }}
}}
"""


def probed(counter: int, statement: str) -> str:
    """A statement between two readings of the clock."""
    return f"{{ const i64 start = popgraph_now(); {statement} trace_end({counter}, start); }}"
