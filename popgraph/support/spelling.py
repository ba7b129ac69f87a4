"""Settings in the user's syntax: keyword arguments in Python, options on the command line."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_AS_OPTIONS = ContextVar("as_options", default=False)


@contextmanager
def as_options() -> Iterator[None]:
    """Makes hints in the block name command-line options."""
    token = _AS_OPTIONS.set(True)
    try:
        yield
    finally:
        _AS_OPTIONS.reset(token)


def setting(name: str, value: str | bool = True, *, option: str = "") -> str:
    """
    `optimizer="Adam(0.001)"`, `--optimizer 'Adam(0.001)'`, `--resume` or `--no-dropout`.

    `option` is the name of the option if it is not that of the argument.
    """
    if not _AS_OPTIONS.get():
        return f"{name}={value if isinstance(value, bool) else repr(value)}"
    option = option or name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{option}" if value else f"--no-{option}"
    return f"--{option} {shlex.quote(value)}"
