"""
Prints types, expressions, statements, kernels and whole programs as C.

The printer of kernels is imported at the first kernel, as a program of known kernels needs none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xdsl.dialects import func

    from popgraph.backends.c.print.unit import Kernel


def print_kernel(function: func.FuncOp, *, shared: bool = False, index: str = "i64") -> Kernel:
    """Prints a kernel as C, see `kernels.print_kernel`."""
    from popgraph.backends.c.print import kernels

    return kernels.print_kernel(function, shared=shared, index=index)
