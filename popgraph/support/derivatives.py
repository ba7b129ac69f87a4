"""Names of derivatives in graphs, exported models and exported C."""

from __future__ import annotations

GRADIENT = "Gradient___"
"""Prefix of the gradient with respect to a value."""
TANGENT = "Tangent___"
"""Prefix of the tangent of a value."""


def jacobian_name(output: str, wrt: str) -> str:
    """The name of dy/dx."""
    return f"Jacobian___{output}___{wrt}"
