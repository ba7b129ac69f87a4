"""The registry of NumPy functions that evaluate operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from popgraph.dialects.onnx.evaluation.contents import PAGES
from popgraph.support.pages import Page, enter

Function: TypeAlias = Callable[..., Any]
"""From a `Given` and the operands to the result: a tuple if there are several."""

FUNCTIONS: dict[tuple[str, str], Function] = dict(PAGES)
"""
By domain ("" is ai.onnx) and name; the module is imported when the operator is first met.

Most of these never lower: strings, sequences, dictionaries, images and sizes that data decide. The
others read no elements, or take strings as well as numbers. Every other operator has one meaning
only: that of the graphcore operations it lowers to.
"""

TEXTS = Page("popgraph.dialects.onnx.evaluation.texts")
"""Evaluates a node with operands of strings whose operator has no function of its own."""

LOWERED = Page("popgraph.passes.onnx.evaluate_lowered")
"""
Evaluates a node by the graphcore operations that it lowers to; None if it has no lowering.

The room of passes, which is above this one, fills it in.
"""


def computes(*names: str, domain: str = "") -> Callable[[Function], Function]:
    """Enters a function into the table, for operators in all their versions."""

    def register(function: Function) -> Function:
        for name in names:
            enter(FUNCTIONS, (domain, name), function)
        return function

    return register
