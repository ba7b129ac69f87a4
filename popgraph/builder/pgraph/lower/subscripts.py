"""Lowers subscripts such as `x[0, 1:-1, ..., _]` to slices, gathers and reshapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from xdsl.ir import SSAValue

from popgraph.builder.pgraph.lower.context import GraphContext
from popgraph.builder.pgraph.lower.expressions import fold, lower_value
from popgraph.builder.pgraph.lower.nodes import add_step, integers, operator_named
from popgraph.builder.pgraph.syntax.source import Failed
from popgraph.builder.pgraph.syntax.tree import (
    Everything,
    Expression,
    Index,
    Missing,
    Number,
    Slice,
    Span,
)
from popgraph.dialects.onnx.types import Dim, describe, dims

END = (1 << 63) - 1
"""ONNX's value for "to the end of the axis"."""

Word: TypeAlias = Expression | Slice | Everything | Missing
PickedIndex: TypeAlias = SSAValue | int
"""An index: an integer, or a value of the graph."""


@dataclass
class Parts:
    """
    The operations of a subscript, in this order; axes refer to the tensor before each.

    Axes after `...` count from the end if the rank is unknown.
    """

    slices: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Axis, start, stop, step."""
    picked: list[tuple[int, PickedIndex]] = field(default_factory=list)
    """Axes indexed by an integer, a list or a tensor: Gather."""
    new_axes: list[int] = field(default_factory=list)
    """Positions of new axes of size 1 in the result."""


def lower_subscripts(context: GraphContext, index: Index, name: str | None) -> SSAValue:
    """Lowers `x[...]`; the last node has the name."""
    value = lower_value(context, index.operand)
    parts = _Reader(context, index, dims(value.type)).parts()
    todo: list[tuple[str, list[PickedIndex | list[int]], dict[str, object]]] = []
    if parts.slices:
        axes, starts, stops, steps = map(list, zip(*parts.slices, strict=True))
        todo.append(_slice(context, index, starts, stops, axes, steps))
    # Indexed axes change later positions: process nonnegative axes from last to first, negative
    # ones from first to last.
    order = sorted(parts.picked, key=lambda one: one[0] if one[0] < 0 else -one[0])
    todo += [("Gather", [place], {"axis": axis}) for axis, place in order]
    if parts.new_axes:
        axes = sorted(parts.new_axes)
        as_input = operator_named(context, "Unsqueeze", index.span).takes("axes")
        todo.append(("Unsqueeze", [axes] if as_input else [], {} if as_input else {"axes": axes}))
    span = index.operand.span
    if not todo:
        return add_step(context, "Identity", [value], name, span)
    for number, (op_type, rest, attributes) in enumerate(todo, 1):
        operands = [value, *(integers(context, one, span) for one in rest)]
        last = name if number == len(todo) else None
        value = add_step(context, op_type, operands, last, span, attributes)
    return value


def _slice(
    context: GraphContext,
    index: Index,
    starts: list[int],
    stops: list[int],
    axes: list[int],
    steps: list[int],
) -> tuple[str, list[PickedIndex | list[int]], dict[str, object]]:
    """A Slice; its older versions have attributes instead of inputs, and no steps."""
    operator = operator_named(context, "Slice", index.span)
    if operator.takes("starts"):
        return "Slice", [starts, stops, axes, steps], {}
    if any(step != 1 for step in steps):
        context.source.parse_error(
            index.span, f"{operator.shown} has no steps", "`opset 10` or a later one has them"
        )
        raise Failed
    return "Slice", [], {"starts": starts, "ends": stops, "axes": axes}


class _Reader:
    """Parses subscripts; fails on invalid ones."""

    def __init__(self, context: GraphContext, index: Index, sizes: Sequence[Dim] | None) -> None:
        self.context = context
        self.source = context.source
        self.index = index
        self.sizes = sizes
        self._found = Parts()
        self._list: Span | None = None

    def parts(self) -> Parts:
        words: list[Word] = [
            one if isinstance(one, Slice | Everything | Missing) else fold(self.context, one)
            for one in self.index.subscripts
        ]
        whole = [place for place, one in enumerate(words) if isinstance(one, Everything)]
        if len(whole) > 1:
            self.source.parse_error(words[whole[1]].span, "`...` may occur only once")
            raise Failed
        axes = _axes(words)
        if self.sizes is not None and axes > len(self.sizes):
            self.source.mismatch(
                self.index.span, f"{axes} axes are indexed, but the tensor has {len(self.sizes)}"
            )
            raise Failed
        cut = whole[0] if whole else len(words)
        kept = self.walk(words[:cut], 0)
        self._found.new_axes = [place for place, new in enumerate(kept) if new]
        if whole:
            self.after(words[cut + 1 :], cut, len(kept))
        return self._found

    def after(self, words: Sequence[Word], cut: int, before: int) -> None:
        """Processes the subscripts after `...`, on the last axes."""
        axes = _axes(words)
        if self.sizes is None:
            kept = self.walk(words, -axes)
            start = -len(kept)
        else:
            kept = self.walk(words, len(self.sizes) - axes)
            first = _axes(self.index.subscripts[:cut])
            start = before + len(self.sizes) - axes - first
        self._found.new_axes += [start + place for place, new in enumerate(kept) if new]

    def walk(self, words: Sequence[Word], axis: int) -> list[bool]:
        """Processes subscripts from an axis on; returns for every result axis whether it is new."""
        kept: list[bool] = []
        for word in words:
            match word:
                case Missing():
                    kept.append(True)
                    continue
                case Slice():
                    bounds = self.bounds(word)
                    if bounds != (0, END, 1):
                        self._found.slices.append((axis, *bounds))
                    kept.append(False)
                case _:
                    assert not isinstance(word, Everything)
                    kept += [False] * self.pick(word, axis)
            axis += 1
        return kept

    def pick(self, word: Expression, axis: int) -> int:
        """Records an index on an axis; returns the number of axes that remain of it."""
        if isinstance(word, Number) and isinstance(word.value, int):
            self._found.picked.append((axis, self.from_front(word.value, word.span, axis)))
            return 0
        value = lower_value(self.context, word)
        self.check_whole(word, value)
        self._found.picked.append((axis, value))
        sizes = dims(value.type)
        if not sizes and sizes is not None:
            return 0
        if self._list is not None:
            self.source.parse_error(
                word.span,
                "only one axis may have several indices",
                "`x[a][:, b]` takes them one after the other, `GatherND(x, indices)` in pairs",
            )
            raise Failed
        self._list = word.span
        return 1 if sizes is None else len(sizes)

    def check_whole(self, word: Expression, value: SSAValue) -> None:
        """Fails unless a value has an index type."""
        found = describe(value.type)
        if found.split("[")[0] in ("i32", "i64", "unknown"):
            return
        masks = found.startswith("bool")
        self.source.mismatch(
            word.span,
            f"an index must be an integer, not {found}",
            "`x if mask else 0.0` keeps the shape, `Compress(x, mask)` does not" if masks else "",
        )
        raise Failed

    def from_front(self, number: int, span: Span, axis: int) -> int:
        """An index on an axis; older versions of Gather reject negative ones."""
        size = self.sizes[axis] if self.sizes is not None and axis >= 0 else None
        if isinstance(size, int) and not -size <= number < size:
            self.source.mismatch(span, f"index {number} is out of range for an axis of size {size}")
            raise Failed
        operator = operator_named(self.context, "Gather", self.index.span)
        if number >= 0 or operator.since >= 11:
            return number
        if not isinstance(size, int):
            self.source.parse_error(
                span,
                f"{operator.shown} does not support negative indices",
                "`opset 11` or a later one does",
            )
            raise Failed
        return number + size

    def bounds(self, word: Slice) -> tuple[int, int, int]:
        step = self.number(word.step, 1)
        if step == 0:
            self.source.parse_error(word.span, "the step of a slice must not be 0")
            raise Failed
        start = self.number(word.start, 0 if step > 0 else END)
        stop = self.number(word.stop, END if step > 0 else -END)
        return start, stop, step

    def number(self, word: Expression | None, default: int) -> int:
        if word is None:
            return default
        found = fold(self.context, word)
        if isinstance(found, Number) and isinstance(found.value, int):
            return max(-END, min(END, found.value))
        self.source.parse_error(
            word.span,
            "the ends of a slice must be integer constants",
            "`Slice(x, starts, ends, axes)` takes values of the graph",
        )
        raise Failed


def _axes(words: Sequence[Word]) -> int:
    """The number of tensor axes that these subscripts consume."""
    return sum(not isinstance(one, Missing | Everything) for one in words)
