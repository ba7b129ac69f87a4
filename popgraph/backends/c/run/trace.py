"""Traces of a program: counts and times of all calls, including loops and branches."""

from __future__ import annotations

from popgraph.backends.c.print.trace import CALIBRATIONS, INNER, OUTER, Place, Site, counters_name
from popgraph.backends.c.run.library import Code, numbers
from popgraph.backends.tools import Traced, TracedBody
from popgraph.support.arrays import Array

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
