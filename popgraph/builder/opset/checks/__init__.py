"""What PopART asks of its operators' attributes and operands: a row of rules for each operator."""

from __future__ import annotations

from popgraph.builder.opset.checks.node import Node
from popgraph.builder.opset.checks.table import AT_ONCE, CHECKS, complaint, complaint_at_once

__all__ = ["AT_ONCE", "CHECKS", "Node", "complaint", "complaint_at_once"]
