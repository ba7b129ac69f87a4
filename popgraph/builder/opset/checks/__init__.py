"""PopART's checks of attributes and operands of its operators, with its messages."""

from __future__ import annotations

from popgraph.builder.opset.checks import (
    elementwise,
    graphcore,
    recurrent,
    rewritten,
    shaped,
    windowed,
)
from popgraph.builder.opset.checks.node import Node
from popgraph.builder.opset.checks.rules import (
    CHECKS,
    IMMEDIATE_CHECKS,
    complaint,
    immediate_complaint,
)

__all__ = [
    "IMMEDIATE_CHECKS",
    "CHECKS",
    "Node",
    "complaint",
    "immediate_complaint",
    "elementwise",
    "graphcore",
    "recurrent",
    "rewritten",
    "shaped",
    "windowed",
]
