"""The table of what PopART asks of each operator, by domain and name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from popgraph.builder.opset.checks import (
    collecting,
    elementwise,
    graphcore,
    recurrent,
    rewritten,
    shaped,
    windowed,
)
from popgraph.builder.opset.checks.node import Node
from popgraph.builder.opset.checks.rules import Rule, in_place
from popgraph.builder.opset.graphcore_operator import DOMAIN

CHECKS: Mapping[tuple[str, str], Sequence[Rule]] = {
    **{
        ("", op_type): rules
        for module in (collecting, elementwise, recurrent, rewritten, shaped, windowed)
        for op_type, rules in module.ROWS.items()
    },
    **{(DOMAIN, op_type): rules for op_type, rules in graphcore.ROWS.items()},
}


EVERY: Sequence[Rule] = (in_place,)
"""What PopART asks of all operators."""

AT_ONCE: Mapping[tuple[str, str], Sequence[Rule]] = {
    ("", "Pad"): (windowed.padded,),
    ("", "Split"): (shaped.split,),
    ("", "Tile"): (shaped.tiled,),
    (DOMAIN, "Subsample"): (graphcore.strides,),
}
"""What the builder itself asks, most of it as it infers the shapes of results."""


def complaint(node: Node) -> str | None:
    """The first thing that PopART would not take, in its words."""
    return _first(EVERY, node) or _first(CHECKS.get((node.domain, node.op_type), ()), node)


def complaint_at_once(node: Node) -> str | None:
    """The first thing that PopART's builder would not take."""
    return _first(AT_ONCE.get((node.domain, node.op_type), ()), node)


def _first(rules: Sequence[Rule], node: Node) -> str | None:
    return next((said for rule in rules for said in rule(node)), None)
