"""What `printtensor` prints: tensors and their gradients, behind every micro-batch."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from xdsl.ir import SSAValue

from popgraph.builder.popart.names import GRADIENT
from popgraph.dialects.onnx import Graph, OnnxOp, value_name
from popgraph.dialects.program import WeightStore
from popgraph.support.arrays import Array

AUTO, FIXED, SCIENTIFIC, NONE = 0, 1, 2, 3
"""PopART's numbers of these ways to write floats."""
SMALLEST = 1e-4
"""`AUTO` writes tensors with smaller numbers than this with exponents."""


@dataclass(frozen=True)
class Printed:
    """A tensor that is printed, by its name as an anchor, and how."""

    id: str
    title: str
    settings: Mapping[str, Any]

    def text(self, value: Array) -> str:
        """As PopART's settings of the node say; 0 is no limit of elements, or of a line."""
        given = self.settings
        digits, form = given.get("digits", 8), given.get("floatFormat", AUTO)
        is_float = np.issubdtype(value.dtype, np.floating)
        written = _float_format(value, digits, form) if is_float else ""
        text = np.array2string(
            value,
            max_line_width=given.get("maxLineWidth", 75) or sys.maxsize,
            separator=_character(given.get("separator"), " "),
            threshold=given.get("summariseThreshold", 1000) or sys.maxsize,
            edgeitems=given.get("edgeItems", 3),
            formatter={"float_kind": lambda one: format(float(one), written)} if written else None,
        )
        brackets = str.maketrans(
            {
                "[": _character(given.get("openBracket"), "["),
                "]": _character(given.get("closeBracket"), "]"),
            }
        )
        return f"{self.title}: {text.translate(brackets)}"


def _float_format(value: Array, digits: int, form: int) -> str:
    """
    How all numbers of a tensor are written: aligned, with so many digits but for the exponent.

    With 0 digits, or where no form is asked for, each is as short as it can be.
    """
    if digits == 0 or form == NONE:
        return "g"
    sizes = np.abs(value[np.isfinite(value) & (value != 0)]).astype(np.float64)
    most, least = float(sizes.max(initial=0)), float(sizes.min(initial=np.inf))
    whole = max(1, 1 + math.floor(math.log10(most))) if most else 1
    exponents = form == SCIENTIFIC or (form == AUTO and (whole > digits or least < SMALLEST))
    pattern = f".{digits - 1}e" if exponents else f".{max(digits - whole, 0)}f"
    ends = (float(value.min()), float(value.max())) if value.size else ()
    return f"{max((len(format(end, pattern)) for end in ends), default=0)}{pattern}"


def _character(given: object, usual: str) -> str:
    """A character, which a file may keep as its number."""
    if given is None:
        return usual
    return chr(given) if isinstance(given, int) else str(getattr(given, "decode", lambda: given)())


def printed_tensors(graph: Graph, store: WeightStore, loss: str | None) -> Iterator[Printed]:
    """What the nodes of a graph print; gradients where there is a loss that they are of."""
    for node in graph.nodes:
        if node.op_type != "PrintTensor":
            continue
        settings = node.attribute_values(store)
        title = _character(settings.get("title"), "")
        source, output = node.input_values()[0], node.output_names[0]
        assert source is not None, "PrintTensor has one input"
        yield Printed(output, title or value_name(source), settings)
        if loss and settings.get("print_gradient", 1) and _reaches(node.results[0], loss):
            said = f"{title}_gradient" if title else GRADIENT + value_name(source)
            yield Printed(GRADIENT + output, said, settings)


def _reaches(value: SSAValue, loss: str) -> bool:
    """Whether a loss is computed from a value."""
    seen, waiting = set[SSAValue](), [value]
    while waiting:
        one = waiting.pop()
        if value_name(one) == loss:
            return True
        if one not in seen:
            seen.add(one)
            readers = [use.operation for use in one.uses]
            waiting += [made for op in readers if isinstance(op, OnnxOp) for made in op.results]
    return False


def show(printed: Mapping[str, Printed], results: Mapping[str, Array]) -> None:
    """Writes them to the error stream, as PopART does."""
    for id, one in printed.items():
        if id in results:
            print(one.text(results[id]), file=sys.stderr)
