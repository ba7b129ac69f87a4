"""A kind of package that exported C can be written as."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from popgraph.backends.c.export.interface import Form, Interface
from popgraph.backends.c.export.targets import HERE
from popgraph.backends.tools import Files, Vector
from popgraph.support.errors import BackendError


@dataclass(frozen=True)
class Sources:
    """The exported C that a package is written from."""

    interface: Interface
    files: Files
    """The files of an export without a package."""
    vectors: Sequence[Vector]
    """The test vectors of the main function."""
    others: Sequence[Vector]
    """A test vector per other function of the interface."""

    def text(self, name: str) -> str:
        """The text of a file."""
        return b"".join(self.files[name]).decode()


@dataclass(frozen=True)
class Package:
    """A kind of package; by default, plain C."""

    name: str = ""
    write: Callable[[Sources], Files] = lambda sources: sources.files
    """Computes the package's files, by path in the output folder."""
    targets: tuple[str, ...] = ()
    """The targets that it is for, the default first; empty: any target."""
    weights: tuple[str, ...] = ()
    """The places of constants that it supports, the default first; empty: any."""
    adds_run: bool = False
    """Whether a training step comes with inference, by the weights that it has reached."""
    check: Callable[[Form], None] = lambda form: None
    """Raises BackendError if an option does not fit the package."""
    target: str = HERE
    """The default target of a package for any target."""

    def choose(self, option: str, given: str, own: Sequence[str]) -> str:
        """The value of an option, if necessary the default; BackendError if it does not fit."""
        if own and given and given not in own:
            raise BackendError(
                f"a package for {self.name} cannot have {option} {given}",
                option,
                f"leave it out, or use {' or '.join(own)}",
            )
        return given or next(iter(own), "")
