"""Limits on expansion: steps and elements that one text may cost."""

from __future__ import annotations

import math
import os
from collections import Counter
from dataclasses import dataclass, field

from popgraph.support.errors import ModelError, ParseError, PopgraphError

TEXTS = "POPGRAPH_TEXT_BUDGET"
"""The environment variable that says how many times as much texts may unfold into."""

MODELS = "POPGRAPH_MODEL_BUDGET"
"""The environment variable that says how many times as much ONNX models may unfold into."""

STEPS = 2_000_000
STEPS_PER_CHARACTER = 100
"""So many steps a text may take, and so many more for each of its characters."""

ELEMENTS = 1 << 29
"""So many elements initialisers may fill; what is drawn at random counts more than once."""

FUNCTION_NODES = 100_000
"""Nodes that the calls of a model may unfold into, as functions call others again and again."""

NODE, ITERATION, PART, LEAF = 100, 20, 2, 10
"""
The steps of a node; of a call, a statement or an iteration of a loop; of a part of an expression
that is computed or put in place; of an element of a literal that becomes a tensor.
"""

Line = tuple[str, int]
"""A file and the number of a line in it."""


class BudgetExceeded(Exception):
    """The budget of a text is spent: `Source` knows where, and nothing more is made of the text."""


def factor(variable: str = TEXTS, error: type[PopgraphError] = ParseError) -> float:
    """How many times the usual budget an environment variable grants."""
    given = os.environ.get(variable) or "1"
    try:
        found = float(given)
    except ValueError:
        found = math.nan
    if not 0 < found < math.inf:
        raise error(f"{variable} is {given!r}, not a number above 0", hint=f"`{variable}=10`")
    return found


def most_function_nodes() -> int:
    """How many nodes the calls of an ONNX model may unfold into."""
    return int(factor(MODELS, ModelError) * FUNCTION_NODES)


@dataclass
class Budget:
    """What a text and those that it imports may take, and which lines took it."""

    factor: float = field(default_factory=factor)
    steps: int = 0
    elements: int = 0
    characters: int = 0
    by_line: Counter[Line] = field(default_factory=Counter)

    @property
    def most_steps(self) -> int:
        return int(self.factor * STEPS) + STEPS_PER_CHARACTER * self.characters

    @property
    def most_elements(self) -> int:
        return int(self.factor * ELEMENTS)

    def take_steps(self, line: Line, count: int) -> bool:
        """Whether there were so many steps left."""
        self.steps += count
        self.by_line[line] += count
        return self.steps <= self.most_steps

    def take_elements(self, count: int) -> bool:
        """Whether so many elements were left."""
        self.elements += count
        return self.elements <= self.most_elements
