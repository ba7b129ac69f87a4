"""Names: closest match of a misspelt one, aliases, and spelling in IR text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from inspect import Parameter, Signature
from typing import Any, TypeVar

from popgraph.support.errors import ArgumentError

_Function = TypeVar("_Function", bound=Callable[..., Any])


def closest(name: str, known: Iterable[str], least: float = 0.6) -> str:
    """
    The closest known name, ignoring case; "" if none is similar.

    `least` is the required similarity, from 0 to 1.
    """
    folded: dict[str, str] = {}
    for one in known:
        folded.setdefault(one.casefold(), str(one))  # a member of an enum as its text
    return next((folded[one] for one in get_close_matches(name.casefold(), folded, 1, least)), "")


def hint(name: str) -> str | None:
    """The closest valid IR name."""
    plain = re.sub(r"\W", "_", name, flags=re.ASCII).strip("_")
    if not plain:
        return None
    return f"v{plain}" if plain[0].isdigit() else plain


def normalized(name: str) -> str:
    """The name without case, underscores and hyphens: `CrossEntropy` is `cross_entropy`."""
    return re.sub(r"[_-]", "", name).casefold()


class Names:
    """
    The names of one kind of object, such as losses, with aliases.

    Case, underscores and hyphens are ignored.
    """

    def __init__(self, kind: str, aliases: Mapping[str, str], plural: str = "") -> None:
        """`aliases` maps each name to its aliases, separated by blanks."""
        self.kind, self.plural = kind, plural or f"{kind}s"
        self.names = tuple(aliases)
        self._spelled = {one: name for name in aliases for one in (name, *aliases[name].split())}
        self._meant = {normalized(one): name for one, name in self._spelled.items()}

    def find(self, given: str) -> str | None:
        """The canonical name; None if it is unknown."""
        return self._meant.get(normalized(given))

    def aliases(self, name: str) -> tuple[str, ...]:
        """The aliases of a name."""
        return tuple(one for one, meant in self._spelled.items() if meant == name != one)

    def closest(self, given: str) -> str:
        """The closest name or alias; "" if none is similar."""
        return closest(given, self._spelled)

    def hint(self, given: str) -> str:
        """The closest name, and all names."""
        close = self.closest(given)
        return (f"did you mean {close!r}? " if close else "") + self.listed

    @property
    def listed(self) -> str:
        """All names, as part of a hint."""
        return f"the {self.plural} are {', '.join(self.names)}"

    def unknown(self, given: str) -> tuple[str, str]:
        """The error and the hint for an unknown name."""
        return f"there is no {self.kind} {given!r}", self.hint(given)


def check_keywords(
    function: Callable[..., Any], taken: Signature, named: Iterable[str], rest: Iterable[str] = ()
) -> None:
    """
    ArgumentError unless all keywords are parameters of the function.

    `rest` are the names that its `**keywords` accept; any, if it is empty.
    """
    rest = tuple(rest)
    kinds = {parameter.kind for parameter in taken.parameters.values()}
    unknown = [name for name in named if name not in taken.parameters and name not in rest]
    if not unknown or (Parameter.VAR_KEYWORD in kinds and not rest):
        return
    known = [
        name
        for name, parameter in taken.parameters.items()
        if name != "self" and parameter.kind is not Parameter.VAR_KEYWORD
    ]
    known += rest
    called = function.__qualname__.removesuffix(".__init__")
    meant = closest(unknown[0], known)
    raise ArgumentError(
        f"{called} has no argument {unknown[0]!r}",
        hint=(f"did you mean {meant!r}? " if meant else "") + f"it has {', '.join(known)}",
    )
