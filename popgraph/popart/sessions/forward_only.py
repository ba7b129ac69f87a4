"""The handle of the forward-only program of a session that trains."""

from __future__ import annotations

from popgraph.popart.api.options import SessionOptions
from popgraph.popart.exceptions import popart_exception

FORWARD_ONLY = "implicitPipeliningFwdOnly"
"""PopART's handle of the program that runs only the stages before the loss, and that of it."""


def is_forward_only(handle: object, options: SessionOptions) -> bool:
    """Whether a handle is that of the forward-only program; other names are refused."""
    if not isinstance(handle, str):
        return False  # numbers are handles of the one program that every session has
    if handle == FORWARD_ONLY and options.createImplicitPipeliningFwdOnlyProgram:
        return True
    raise popart_exception(f"[Devicex::run] Program {handle} not found.", "Session.run")
