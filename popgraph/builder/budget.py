"""Limits on expansion: the steps and elements that one text may cost."""

from __future__ import annotations

import math
import os
from collections import Counter
from dataclasses import dataclass, field

from popgraph.support.errors import ModelError, ParseError, PopgraphError

TEXTS = "POPGRAPH_TEXT_BUDGET"
"""Environment variable that multiplies the budget of texts."""

MODELS = "POPGRAPH_MODEL_BUDGET"
"""Environment variable that multiplies the budget of ONNX models."""

STEPS = 2_000_000
STEPS_PER_CHARACTER = 100
"""Steps of a text, plus steps per character of it."""

ELEMENTS = 1 << 29
"""Elements that initializers may fill; random ones count several times."""

FUNCTION_NODES = 100_000
"""Nodes after inlining all function calls of a model, which may grow exponentially."""

NODE, ITERATION, PART, LEAF = 100, 20, 2, 10
"""
Steps of a node, call or statement; of a loop iteration; of a part of an expression that is
evaluated or substituted; of an element of a literal tensor.
"""

Line = tuple[str, int]
"""File name and line number."""


class BudgetExceeded(Exception):
    """The budget of a text is spent: `Source` has the position, and compilation stops."""


def factor(variable: str = TEXTS, error: type[PopgraphError] = ParseError) -> float:
    """The factor on the budget in an environment variable."""
    given = os.environ.get(variable) or "1"
    try:
        found = float(given)
    except ValueError:
        found = math.nan
    if not 0 < found < math.inf:
        raise error(f"{variable} is {given!r}, not a positive number", hint=f"`{variable}=10`")
    return found


def most_function_nodes() -> int:
    """Most nodes of an ONNX model after inlining its functions."""
    return int(factor(MODELS, ModelError) * FUNCTION_NODES)


@dataclass
class Budget:
    """The budget of a text and its imports, and its use by line."""

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
        """Spends steps; False if they exceed the budget."""
        self.steps += count
        self.by_line[line] += count
        return self.steps <= self.most_steps

    def take_elements(self, count: int) -> bool:
        """Spends elements; False if they exceed the budget."""
        self.elements += count
        return self.elements <= self.most_elements
