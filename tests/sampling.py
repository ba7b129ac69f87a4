"""Shares of long sweeps: a run takes today's, `make test-all` takes all of them."""

from __future__ import annotations

import os
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from typing import TypeAlias, TypeVar

import pytest

T = TypeVar("T")

PROFILE = os.environ.get("POPGRAPH_PROFILE", "check")
"""`check` takes shares, `all` everything, `fuzz` everything and draws many more examples."""
WHOLE = PROFILE in ("all", "fuzz")
DAY = int(os.environ.setdefault("POPGRAPH_DAY", str(date.today().toordinal())))
"""Shares take turns by the day. Processes of one run have the same one, at midnight, too."""

Sweep: TypeAlias = tuple[tuple[str, ...], int]
"""The names of the cases that are taken, and how many there are."""
TAKEN: dict[str, Sweep] = {}
"""What this process takes of the sweeps that it has met, for the report."""
MOST_NAMED = 40
"""Longer shares are counted only."""


def share(name: str, cases: Sequence[T], of: int, named: Callable[[T], str] = str) -> Sequence[T]:
    """Today's one of so many shares, which are alike where neighbours are."""
    taken = [case for number, case in enumerate(cases) if is_turn(number, of)]
    TAKEN[name] = tuple(map(named, taken)), len(cases)
    return taken


def is_turn(number: int, of: int) -> bool:
    """Whether it is the turn of this one of many today; the first has it on days 0, `of`, ..."""
    return WHOLE or (number - DAY) % of == 0


def is_asked_for(config: pytest.Config) -> bool:
    """Whether somebody names tests, who is to get them on every day."""
    return bool(config.option.keyword) or any("::" in argument for argument in config.args)


def left_out(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Tests marked `share(N)` whose turn is another day: each function's cases take turns."""
    sweeps: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("share"):
            sweeps[item.nodeid.split("[")[0]].append(item)
    found: list[pytest.Item] = []
    for name, cases in sweeps.items():
        marker = cases[0].get_closest_marker("share")
        assert marker is not None
        (parts,) = marker.args
        taken = set(share(name, cases, parts, named=label))
        found += [item for item in cases if item not in taken]
    return found


def label(item: pytest.Item) -> str:
    """What is in the brackets of its name."""
    return item.name.partition("[")[2].removesuffix("]")


def lines(taken: Mapping[str, Sweep]) -> Iterator[str]:
    """What a run says of its shares."""
    short = {name: sweep for name, sweep in taken.items() if len(sweep[0]) < sweep[1]}
    if short:
        yield f"today's shares (POPGRAPH_DAY={DAY} repeats them, `make test-all` runs all):"
    for name, (cases, total) in sorted(short.items()):
        yield f"  {name}: {len(cases)} of {total}, {total - len(cases)} left out"
        listed = "; ".join(cases) if len(cases) <= MOST_NAMED else ""
        yield from textwrap.wrap(listed, 100, initial_indent="    ", subsequent_indent="    ")
