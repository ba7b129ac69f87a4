"""Forward-only runs of a program that trains: what gradients have changed is put back."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from popgraph.backends.base import Executable
from popgraph.builder.opset.exceptions import popart_exception
from popgraph.session.options import SessionOptions
from popgraph.support.arrays import Array

FORWARD_ONLY = "implicitPipeliningFwdOnly"
"""PopART's handle of the program that runs only the stages before the loss, and that of it."""


def is_forward_only(handle: object, options: SessionOptions) -> bool:
    """Whether a handle is that of the forward-only program; other names are refused."""
    if not isinstance(handle, str):
        return False  # numbers are handles of the one program that every session has
    if handle == FORWARD_ONLY and options.createImplicitPipeliningFwdOnlyProgram:
        return True
    raise popart_exception(f"[Devicex::run] Program {handle} not found.", "Session.run")


def run_forward_only(
    executable: Executable, inputs: Mapping[str, Array], updated: Collection[str]
) -> Mapping[str, Array]:
    """
    The results of a micro-batch after which variables in `updated` are as before.

    The backward pass runs as well: such steps cost as much as those that train.
    """
    before = {name: executable.read(name) for name in updated}
    results = executable.run(inputs)
    for name, value in before.items():
        executable.write(name, value)
    return results
