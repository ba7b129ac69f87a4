"""The table of what PopART asks of each operator, by domain and name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from popgraph.builder.opset.checks import elementwise, graphcore, recurrent, shaped, windowed
from popgraph.builder.opset.checks.node import Node
from popgraph.builder.opset.checks.rules import Rule
from popgraph.builder.opset.graphcore_operator import DOMAIN

CHECKS: Mapping[tuple[str, str], Sequence[Rule]] = {
    **{
        ("", op_type): rules
        for module in (elementwise, recurrent, shaped, windowed)
        for op_type, rules in module.ROWS.items()
    },
    **{(DOMAIN, op_type): rules for op_type, rules in graphcore.ROWS.items()},
}


def complaint(node: Node) -> str | None:
    """The first thing that PopART would not take, in its words."""
    rules = CHECKS.get((node.domain, node.op_type), ())
    return next((said for rule in rules for said in rule(node)), None)
