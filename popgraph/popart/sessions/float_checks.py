"""The check of `enableFloatingPointChecks`: results and variables that are no finite numbers."""

from __future__ import annotations

from collections.abc import Mapping

from popgraph.backends.base import Executable
from popgraph.popart.exceptions import poplar_application_runtime_error
from popgraph.support.arrays import Array
from popgraph.training.diagnosis import not_finite


def check_floats(executable: Executable, results: Mapping[str, Array]) -> None:
    """
    Raises what an IPU raises that stops at such a number, behind the micro-batch that made it.

    An IPU stops at the operation. Here a number that is not finite must reach a result or a
    variable; one that only goes into a comparison, say, is not seen.
    """
    variables = {name: executable.read(name) for name in executable.variables}
    for what, arrays in (("result", results), ("variable", variables)):
        for name in not_finite(arrays):
            raise poplar_application_runtime_error(
                f"floating-point exception: {what} {name!r} holds infinities or NaN",
                "SessionOptions.enableFloatingPointChecks",
                "look at what the node computes: printtensor shows its inputs",
            )
