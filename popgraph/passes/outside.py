"""The registry of passes of extensions, and their positions in the pipeline."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from popgraph.passes.base import Pass
from popgraph.support import extensions
from popgraph.support.errors import ExtensionError, PassError

PassT = TypeVar("PassT", bound=Pass)


@dataclass(frozen=True)
class Place:
    """A position in the pipeline: before the first run of a pass, or after its last one."""

    name: str
    is_before: bool = False

    def __str__(self) -> str:
        return f"{'before' if self.is_before else 'after'} {self.name}"

    @staticmethod
    def of(before: str | None, after: str | None) -> Place | None:
        """The place given by the two keywords; None if both are None."""
        if before is not None and after is not None:
            raise ExtensionError(
                f"a pass cannot run both before {before} and after {after}", hint="give one of them"
            )
        if before is None and after is None:
            return None
        return Place(before or after or "", before is not None)


@dataclass(frozen=True)
class Placed:
    """A pass to run, and its position; without one, the position of its registration."""

    step: Pass | str
    """The pass, or its text form, as `popgraph opt -p` takes it: `my-pass{limit=3}`."""
    before: str | None = None
    after: str | None = None

    @property
    def place(self) -> Place | None:
        return Place.of(self.before, self.after)


OUTSIDE: dict[str, tuple[type[Pass], Place]] = {}
"""Registered passes with their default positions, by name."""


def add_pass(
    *, before: str | None = None, after: str | None = None
) -> Callable[[type[PassT]], type[PassT]]:
    """
    Registers a pass under its name; it runs if requested: `Options(passes=["name"])`.

    It runs before the first run of the pass `before`, or after the last run of the pass `after`,
    at the level that the module has there.
    """
    place = Place.of(before, after)
    if place is None:
        raise ExtensionError(
            "a pass requires a position", "add_pass", 'add_pass(after="canonicalize")'
        )

    def register(pass_class: type[PassT]) -> type[PassT]:
        known = OUTSIDE.get(pass_class.name)
        if known is not None and known[0] is not pass_class:
            raise ExtensionError(
                f"duplicate pass {pass_class.name!r}",
                f"{known[0].__module__} and {pass_class.__module__}",
                "rename one of them",
            )
        extensions.note(pass_class.__module__)
        OUTSIDE[pass_class.name] = pass_class, place
        return pass_class

    return register


def outside_pass(name: str) -> type[Pass] | None:
    """The pass with a name, imported if an installed distribution provides it."""
    if name not in OUTSIDE:
        extensions.load(extensions.PASSES, name)
    return OUTSIDE[name][0] if name in OUTSIDE else None


_TEXT = re.compile(
    r"\s*(?P<step>[^{}\s]+(?:\{[^{}]*\})?)(?:\s+(?P<word>before|after)\s+(?P<at>\S+))?\s*"
)


def placed(wanted: object) -> Placed:
    """An entry of `Options.passes` (a pass, a `Placed` or a text) as a `Placed`."""
    if isinstance(wanted, Placed):
        return wanted
    if isinstance(wanted, Pass):
        return Placed(wanted)
    found = _TEXT.fullmatch(wanted) if isinstance(wanted, str) else None
    if found is None:
        raise PassError(
            f"{wanted!r} is not a pass",
            "Options.passes",
            "a pass, its name, `name{argument=1} after canonicalize`, or Placed(pass, before=...)",
        )
    return Placed(found["step"], **({found["word"]: found["at"]} if found["word"] else {}))
