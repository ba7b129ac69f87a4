"""The C backend: a planned program becomes C, a library, and an executable."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from popgraph.backends.c.build.target import Target as Target
    from popgraph.backends.c.build.target import host_target as host_target
    from popgraph.backends.c.build_program import build as build
    from popgraph.backends.c.run.executable import CExecutable as CExecutable
    from popgraph.backends.c.run.executable import build_again as build_again

_HOMES = {
    "CExecutable": "run.executable",
    "Target": "build.target",
    "build": "build_program",
    "build_again": "run.executable",
    "host_target": "build.target",
}
"""The names for others and where they live: what runs a program does not import what prints it."""


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
