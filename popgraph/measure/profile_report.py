"""The report of a profile: time, work and memory of every call, as rows and sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count

from popgraph.support.figures import csv_text
from popgraph.support.tables import table

ROUNDS = 20

RATES = ("us", "share", "GFLOP/s", "GB/s")
NAMES = ("kernel", "from")
CSV_COLUMNS = (
    "kind",
    "kernel",
    "source",
    "count",
    "microseconds",
    "share",
    "own",
    "flops",
    "moved",
    "in_use",
    "chunks",
)
"""Fields of `Call`."""


@dataclass(frozen=True)
class Body:
    """The calls of one branch, or of all iterations of a loop."""

    name: str
    count: int
    """Number of executions per step."""
    calls: list[Call]


@dataclass(frozen=True)
class Call:
    """
    One call of a step, in program order: of a kernel, a branch or a loop.

    A call that runs repeatedly has the totals over all executions.
    """

    kernel: str
    """The name of the kernel, or a description of the branch or loop."""
    source: str
    """Source location of the node."""
    microseconds: float
    share: float
    """Fraction of the sum of all calls."""
    flops: int
    moved: int
    """Bytes of all operands and results."""
    in_use: int
    """Bytes of the arena in use during the call."""
    kind: str = "kernel"
    """Or "branch", "loop", "segment" (of a model with host steps), or "host" (such a step)."""
    count: int = 1
    """Number of executions per step."""
    own: float = 0.0
    """Microseconds of a branch or loop outside the kernels of its bodies."""
    bodies: list[Body] = field(default_factory=list)
    """The bodies of a branch or loop."""
    chunks: int = 1
    """Chunks of work, distributed to threads."""

    def rate(self, amount: int) -> float:
        """`amount` per nanosecond: GFLOP/s for operations, GB/s for bytes."""
        return amount / self.microseconds / 1e3 if self.microseconds else 0.0


@dataclass(frozen=True)
class PassTime:
    """The time of a pass, or of the C compiler, during compilation."""

    name: str
    microseconds: float


@dataclass(frozen=True)
class Report:
    """A profile, ready to be shown."""

    model: str
    threads: int
    microseconds: float
    """Time of the whole program, measured at once."""
    arena: int
    largest_live_set: int
    """Lower bound of the arena."""
    persistent: int
    calls: list[Call]
    passes: list[PassTime] = field(default_factory=list)
    """Passes in execution order; for a model with host steps, of all its segments."""

    def longest(self) -> list[Call]:
        return longest(self.calls)

    def leaves(self) -> list[Call]:
        """All kernels, also in bodies, and the overhead of branches and loops."""
        return [leaf for call in self.calls for leaf in _leaves(call)]

    @property
    def has_bodies(self) -> bool:
        return any(call.bodies for call in self.calls)


def longest(calls: Iterable[Call]) -> list[Call]:
    return sorted(calls, key=lambda call: -call.microseconds)


def _leaves(call: Call) -> Iterator[Call]:
    for body in call.bodies:
        for inner in body.calls:
            yield from _leaves(inner)
    if call.kind != "segment":
        yield own_time(call) if call.bodies else call


def own_time(call: Call) -> Call:
    """The overhead of a branch or loop without its kernels."""
    share = call.share * call.own / call.microseconds if call.microseconds else 0.0
    return replace(
        call,
        kernel=f"the {call.kind} itself",
        microseconds=call.own,
        share=share,
        flops=0,
        moved=0,
        bodies=[],
    )


INDENT = "  "


@dataclass(frozen=True)
class Line:
    """A line of the table: a call, or the heading of a branch's body."""

    depth: int
    call: Call | None
    heading: str = ""

    def cells(self, *, counted: bool) -> tuple[str, ...]:
        """The cells under `columns`."""
        indent = INDENT * self.depth
        call = self.call
        if call is None:
            return (*[""] * (5 if counted else 4), f"{indent}{self.heading}", "")
        rates = call.flops or call.moved
        return (
            f"{call.microseconds:.1f}",
            f"{call.share:.1%}",
            f"{call.rate(call.flops):.1f}" if rates else "",
            f"{call.rate(call.moved):.1f}" if rates else "",
            *([str(call.count)] if counted else []),
            f"{indent}{call.kernel}",
            call.source,
        )


def columns(found: Report) -> tuple[str, ...]:
    """The column headings of the table."""
    return (*RATES, *(["calls"] if found.has_bodies else []), *NAMES)


def lines(calls: Iterable[Call], most: int, depth: int = 0, *, sort: bool = True) -> Iterator[Line]:
    """The calls as lines, at most `most` of each level; calls of bodies are indented."""
    every = longest(calls) if sort else list(calls)
    for call in every[:most]:
        yield Line(depth, call)
        for body in call.bodies:
            inside = depth + 1
            if call.kind == "branch":
                yield Line(inside, None, f"{body.name}: taken {times(body.count)}")
                inside += 1
            yield from lines(body.calls, most, inside, sort=sort)
        if call.kind in ("branch", "loop"):
            yield Line(depth + 1, replace(own_time(call), source=""))
    if len(every) > most:
        yield Line(depth, None, f"... and {len(every) - most} more calls")


def times(count: int) -> str:
    return {0: "never", 1: "once"}.get(count, f"{count} times")


def summary(found: Report) -> str:
    threads = "1 thread" if found.threads == 1 else f"{found.threads} threads"
    return (
        f"{found.microseconds:.1f} us a step, {len(found.calls)} calls, "
        f"{sum(call.flops for call in found.calls) / 1e9:.3f} GFLOP, {threads}"
    )


def memory_summary(found: Report) -> str:
    return (
        f"arena {megabytes(found.arena)}, of which {megabytes(found.largest_live_set)} are in use "
        f"at once at most; prepared weights {megabytes(found.persistent)}"
    )


def megabytes(count: int) -> str:
    return f"{count / 1e6:.2f} MB" if count >= 10_000 else f"{count} B"


def text(found: Report, rows: int) -> str:
    """The longest calls, then the memory, for a terminal or a log."""
    counted = found.has_bodies
    shown = [line.cells(counted=counted) for line in lines(found.calls, rows)]
    numbers = len(columns(found)) - len(NAMES)
    narrow = [
        tuple(cell.rjust(8) for cell in line[:numbers]) + line[numbers:]
        for line in (columns(found), *shown)
    ]
    return "\n".join(
        [
            f"{found.model}: {summary(found)}",
            "",
            table(narrow),
            "",
            memory_summary(found),
        ]
    )


def csv_of(found: Report) -> str:
    """CSV rows of calls, then passes; `in` is the number of the enclosing call."""
    numbers = count(1)

    def rows(calls: Iterable[Call], above: int | str) -> Iterator[list[object]]:
        for call in calls:
            number = next(numbers)
            yield [number, above, *(getattr(call, name) for name in CSV_COLUMNS)]
            for body in call.bodies:
                yield from rows(body.calls, number)

    calls = list(rows(found.calls, ""))
    passes = [[next(numbers), "", *_pass_cells(one)] for one in found.passes]
    return csv_text([["number", "in", *CSV_COLUMNS], *calls, *passes])


def _pass_cells(one: PassTime) -> list[object]:
    told = {"kind": "pass", "kernel": one.name, "count": 1, "microseconds": one.microseconds}
    return [told.get(column, "") for column in CSV_COLUMNS]
