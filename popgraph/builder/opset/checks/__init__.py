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
from popgraph.builder.opset.checks.rules import AT_ONCE, CHECKS, complaint, complaint_at_once

__all__ = [
    "AT_ONCE",
    "CHECKS",
    "Node",
    "complaint",
    "complaint_at_once",
    "elementwise",
    "graphcore",
    "recurrent",
    "rewritten",
    "shaped",
    "windowed",
]
