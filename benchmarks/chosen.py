"""Names of networks and cases on the command line."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable

from popgraph.support.names import Names


def one_of(kind: str, names: Iterable[str]) -> Callable[[str], str]:
    """The type of an argument that is one of these names; the error for another one lists them."""
    known = Names(kind, dict.fromkeys(names, ""))

    def checked(given: str) -> str:
        if given not in known.names:
            raise ArgumentTypeError("; ".join(known.unknown(given)))
        return given

    return checked
