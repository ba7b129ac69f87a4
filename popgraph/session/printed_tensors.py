"""What `printtensor` prints: tensors and their gradients, behind every micro-batch."""

from __future__ import annotations

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

AUTO, FIXED, SCIENTIFIC = 0, 1, 2
"""PopART's numbers of these ways to write floats."""


@dataclass(frozen=True)
class Printed:
    """A tensor that is printed, by its name as an anchor, and how."""

    id: str
    title: str
    settings: Mapping[str, Any]

    def text(self, value: Array) -> str:
        """As NumPy writes it, with the settings of the node."""
        given = self.settings
        digits, form = given.get("digits", 8), given.get("floatFormat", AUTO)
        kinds: Mapping[int, Any] = {
            FIXED: lambda one: f"{one:.{digits}f}",
            SCIENTIFIC: lambda one: f"{one:.{digits}e}",
        }
        is_float = np.issubdtype(value.dtype, np.floating)
        text = np.array2string(
            value,
            max_line_width=given.get("maxLineWidth", 75),
            precision=digits,
            separator=_character(given.get("separator"), " "),
            threshold=given.get("summariseThreshold", 1000),
            edgeitems=given.get("edgeItems", 3),
            formatter={"float_kind": kinds[form]} if is_float and form in kinds else None,
        )
        brackets = str.maketrans(
            {
                "[": _character(given.get("openBracket"), "["),
                "]": _character(given.get("closeBracket"), "]"),
            }
        )
        return f"{self.title}: {text.translate(brackets)}"


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
