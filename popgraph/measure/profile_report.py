"""The report of a profile: time, work and memory of every call, as rows and sentences."""

from __future__ import annotations

from dataclasses import dataclass

from popgraph.support.tables import table

ROUNDS = 20

COLUMNS = ("us", "share", "GFLOP/s", "GB/s", "kernel", "from")


@dataclass(frozen=True)
class Call:
    """What one call of a kernel takes, in the order of the program."""

    kernel: str
    source: str
    """Where the user wrote it."""
    microseconds: float
    share: float
    """Of the sum of all calls."""
    flops: int
    moved: int
    """The bytes of all its operands and results."""
    in_use: int
    """The bytes of the arena that hold something while it runs."""

    def rate(self, amount: int) -> float:
        """So many things in this time, in thousand millions a second."""
        return amount / self.microseconds / 1e3 if self.microseconds else 0.0


@dataclass(frozen=True)
class Report:
    """A profile, ready to be shown."""

    model: str
    threads: int
    microseconds: float
    """The whole program at once."""
    arena: int
    largest_live_set: int
    """No arena could be smaller."""
    persistent: int
    calls: list[Call]

    def longest(self) -> list[Call]:
        return sorted(self.calls, key=lambda call: -call.microseconds)


def cells(call: Call) -> tuple[str, ...]:
    """A row under `COLUMNS`."""
    return (
        f"{call.microseconds:.1f}",
        f"{call.share:.1%}",
        f"{call.rate(call.flops):.1f}",
        f"{call.rate(call.moved):.1f}",
        call.kernel,
        call.source,
    )


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
    shown = found.longest()[:rows]
    lines = [COLUMNS, *map(cells, shown)]
    narrow = [tuple(cell.rjust(8) for cell in line[:4]) + line[4:] for line in lines]
    rest = len(found.calls) - len(shown)
    return "\n".join(
        [
            f"{found.model}: {summary(found)}",
            "",
            table(narrow),
            *([f"... and {rest} more calls"] if rest else []),
            "",
            memory_summary(found),
        ]
    )
