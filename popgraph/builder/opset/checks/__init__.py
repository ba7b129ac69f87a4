"""What PopART asks of its operators' attributes and operands: a row of rules for each operator."""

from __future__ import annotations

from popgraph.builder.opset.checks.node import Node
from popgraph.builder.opset.checks.table import CHECKS, complaint

__all__ = ["CHECKS", "Node", "complaint"]
