"""`printtensor`: prints tensors and their gradients after each micro-batch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects.onnx import Graph, OnnxOp, value_name
from popgraph.dialects.program import WeightStore
from popgraph.passes.options import GRADIENT
from popgraph.support.arrays import Array

AUTO, FIXED, SCIENTIFIC, PLAIN = 0, 1, 2, 3
"""PopART's values of `floatFormat`; PLAIN formats each element independently."""


@dataclass(frozen=True)
class Printed:
    """A printed tensor: its anchor, title and format."""

    id: str
    title: str
    settings: Mapping[str, Any]

    def text(self, value: Array) -> str:
        """
        The array in NumPy's layout, with the node's settings.

        A threshold of 0 disables summarization, a width of 0 line breaks.
        """
        given = self.settings
        if value.dtype.kind == "V":  # half precision of other libraries
            value = value.astype(np.float32)
        write = _writer(value, given.get("digits", 8), given.get("floatFormat", AUTO))
        text = np.array2string(
            value,
            max_line_width=given.get("maxLineWidth", 75) or sys.maxsize,
            separator=_character(given.get("separator"), " "),
            threshold=given.get("summariseThreshold", 1000) or sys.maxsize,
            edgeitems=given.get("edgeItems", 3),
            formatter={"all": write},
        )
        brackets = str.maketrans(
            {
                "[": _character(given.get("openBracket"), "["),
                "]": _character(given.get("closeBracket"), "]"),
            }
        )
        return f"{self.title}: {text.translate(brackets)}"


def _writer(value: Array, digits: int, form: int) -> Callable[[Any], str]:
    """
    The formatter of elements: all have the same number of decimals and the width of the widest.

    `digits` includes those before the decimal point: 8 give 1.0000000 and 100.00000. PopART
    documents no rule for AUTO; here it is fixed-point, unless that would show an element as 0.
    """
    if not digits or form == PLAIN:
        return lambda one: f"{one:g}" if value.dtype.kind == "f" else str(one)
    write: Callable[[Any], str] = str
    if value.dtype.kind == "f":
        sizes = np.abs(value[np.isfinite(value) & (value != 0)], dtype=np.float64)
        most, least = (sizes.max(), sizes.min()) if sizes.size else (1.0, 1.0)
        decimals = digits - len(str(int(most)))
        fits = decimals >= 0 and least >= 10.0**-decimals
        if form == SCIENTIFIC or (form == AUTO and not fits):
            write = f"{{:.{digits - 1}e}}".format
        else:
            write = f"{{:.{max(decimals, 0)}f}}".format
    finite = np.isfinite(value)
    widest = [*np.unique(value[~finite])]
    if finite.any():
        widest += [value[finite].max(), value[finite].min()]
    width = max((len(write(one)) for one in widest), default=0)
    return lambda one: write(one).rjust(width)


def _character(given: object, usual: str) -> str:
    """A character, which files may store as its code."""
    if given is None:
        return usual
    return chr(given) if isinstance(given, int) else str(getattr(given, "decode", lambda: given)())


def printed_tensors(graph: Graph, store: WeightStore, loss: str | None) -> Iterator[Printed]:
    """
    The tensors that the nodes of a graph print, and their gradients if the loss depends on them.
    """
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
    """Whether a loss depends on a value."""
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
    """Prints to stderr, as PopART does."""
    for id, one in printed.items():
        if id in results:
            print(one.text(results[id]), file=sys.stderr)
