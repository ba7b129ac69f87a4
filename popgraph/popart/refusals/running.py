"""PopART's errors while a step runs."""

from __future__ import annotations

from collections.abc import Mapping

from popgraph.backends.base import Executable
from popgraph.popart.api.options import SessionOptions
from popgraph.popart.exceptions import popart_exception, poplar_application_runtime_error
from popgraph.support.arrays import Array
from popgraph.training.diagnosis import not_finite

FORWARD_ONLY = "implicitPipeliningFwdOnly"
"""PopART's handle of the program that runs only the forward stages."""


def is_forward_only(handle: object, options: SessionOptions) -> bool:
    """Whether a handle is that of the forward-only program; unknown names are refused."""
    if not isinstance(handle, str):
        return False  # numbers are handles of the one program that every session has
    if handle == FORWARD_ONLY and options.createImplicitPipeliningFwdOnlyProgram:
        return True
    raise popart_exception(f"[Devicex::run] Program {handle} not found.", "Session.run")


def check_floats(executable: Executable, results: Mapping[str, Array]) -> None:
    """
    Raises the floating-point exception of an IPU, after the micro-batch.

    An IPU stops at the operation that produces infinity or NaN. Here only values that reach a
    result or a variable are detected, not values that, for example, only feed a comparison.
    """
    variables = {name: executable.read(name) for name in executable.variables}
    for what, arrays in (("result", results), ("variable", variables)):
        for name in not_finite(arrays):
            raise poplar_application_runtime_error(
                f"floating-point exception: {what} {name!r} holds infinities or NaN",
                "SessionOptions.enableFloatingPointChecks",
                "look at what the node computes: printtensor shows its inputs",
            )
