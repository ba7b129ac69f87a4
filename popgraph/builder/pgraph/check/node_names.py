"""Naming rules: generates the names of unnamed nodes, and finds the rule that fits a model."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

_PARTS = ("{output}", "{operator}", "{number}")


class Named(NamedTuple):
    """A node: name, operator, name of its first result."""

    name: str
    operator: str
    output: str


@dataclass
class NodeNames:
    """
    Names the nodes of a graph by the rule of `@names(rule)`.

    `@names("_output_0")`: the first result without this suffix. `@names("{operator}_{number}")`:
    the operator, and the index of the node; `{output}` is the first result.
    """

    rule: str | None = None
    count: int = 0

    def next(self, operator: str, output: str) -> str:
        number = self.count
        self.count += 1
        return "" if self.rule is None else derived(self.rule, operator, number, output)


def derived(rule: str, operator: str, number: int, output: str) -> str:
    """The name that a rule gives to a node."""
    if not any(part in rule for part in _PARTS):
        return output.removesuffix(rule)
    values = dict(zip(_PARTS, (output, operator, str(number)), strict=True))
    return re.sub("|".join(map(re.escape, _PARTS)), lambda match: values[match[0]], rule)


def rule_of(nodes: Sequence[Named]) -> str | None:
    """The rule that names most of these nodes correctly; None if it is not worth a line."""
    named = sum(1 for node in nodes if node.name)
    found = Counter(rule for index, node in enumerate(nodes) for rule in _rules(node, index))
    best, least = None, named
    for rule, _ in found.most_common(4):
        wrong = sum(
            derived(rule, node.operator, index, node.output) != node.name
            for index, node in enumerate(nodes)
        )
        if wrong + 1 < max(least, 2):
            best, least = rule, wrong
    return best


def _rules(node: Named, index: int) -> list[str]:
    """The rules that would generate the name of a node."""
    rules = []
    if node.name and node.output.startswith(node.name):
        rules.append(node.output.removeprefix(node.name))
    if node.name and node.output and node.output in node.name and node.output != node.name:
        rules.append(node.name.replace(node.output, "{output}"))
    if node.name.endswith(str(index)):
        rules.append(node.name.removesuffix(str(index)).replace(node.operator, "{operator}", 1))
        rules[-1] += "{number}"
    return [rule for rule in rules if derived(rule, node.operator, index, node.output) == node.name]
