"""
Printing: types, expressions, statements, kernels and whole programs as C.

What prints kernels is imported when one is printed: programs whose kernels are all known need none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xdsl.dialects import func

    from popgraph.backends.c.print.unit import Kernel


def print_kernel(function: func.FuncOp, *, shared: bool = False) -> Kernel:
    """One kernel as C, see `kernels.print_kernel`."""
    from popgraph.backends.c.print import kernels

    return kernels.print_kernel(function, shared=shared)
