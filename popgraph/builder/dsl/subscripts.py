"""Which operators take the parts of a tensor that `x[0, 1:-1, ..., _]` names?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from popgraph.builder.dsl.scope import Failed
from popgraph.builder.dsl.source import Source
from popgraph.builder.dsl.tree import (
    Everything,
    Expression,
    Index,
    Missing,
    Number,
    Slice,
)

END = (1 << 63) - 1
"""As ONNX says it: until the end of the axis."""

Fold = Callable[[Expression], Expression]


@dataclass
class Parts:
    """
    What to do with a tensor, in this order; axes are those of the tensor before.

    `picked` are axes of which one place stays: a number, or a value of the graph, for Gather.
    Axes after `...` are counted from the end.
    """

    slices: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Axis, start, stop, step."""
    picked: list[tuple[int, Expression]] = field(default_factory=list)
    new_axes: list[int] = field(default_factory=list)
    """Where axes of one stand in the result."""


def parts_of(source: Source, index: Index, rank: int | None, fold: Fold) -> Parts:
    """The parts that the words between the brackets name; fails where they make no sense."""
    words = [one if isinstance(one, _WHOLE) else fold(one) for one in index.subscripts]
    whole = [place for place, one in enumerate(words) if isinstance(one, Everything)]
    if len(whole) > 1:
        source.parse_error(words[whole[1]].span, "`...` may stand once")
        raise Failed
    axes = sum(not isinstance(one, Missing | Everything) for one in words)
    if rank is not None and axes > rank:
        source.mismatch(index.span, f"{axes} axes are named here, the tensor has {rank}")
        raise Failed
    parts = Parts()
    cut = whole[0] if whole else len(words)
    _walk(source, parts, words[:cut], fold, start=0)
    if whole:
        after = words[cut + 1 :]
        _walk(source, parts, after, fold, start=-sum(not isinstance(o, Missing) for o in after))
    return parts


_WHOLE = (Slice, Everything, Missing)


def _walk(
    source: Source,
    parts: Parts,
    words: Sequence[Expression | Slice | Everything | Missing],
    fold: Fold,
    start: int,
) -> None:
    """Counts axes from `start` on; those of the result from its beginning, or from its end."""
    axis, kept = start, 0
    new: list[int] = []
    for word in words:
        match word:
            case Missing():
                new.append(kept)
                kept += 1
                continue
            case Slice():
                bounds = _bounds(source, word, fold)
                if bounds != (0, END, 1):
                    parts.slices.append((axis, *bounds))
                kept += 1
            case _:
                assert not isinstance(word, Everything)
                parts.picked.append((axis, word))
        axis += 1
    parts.new_axes += new if start == 0 else [place - kept for place in new]


def _bounds(source: Source, word: Slice, fold: Fold) -> tuple[int, int, int]:
    step = _number(source, word.step, 1, fold)
    if step == 0:
        source.parse_error(word.span, "the step of a slice is not 0")
        raise Failed
    start = _number(source, word.start, 0 if step > 0 else END, fold)
    stop = _number(source, word.stop, END if step > 0 else -END, fold)
    return start, stop, step


def _number(source: Source, word: Expression | None, default: int, fold: Fold) -> int:
    if word is None:
        return default
    found = fold(word)
    if isinstance(found, Number) and isinstance(found.value, int):
        return found.value
    source.parse_error(
        word.span,
        "the ends of a slice are whole numbers that are known now",
        "`Slice(x, starts, ends, axes)` takes values of the graph",
    )
    raise Failed
