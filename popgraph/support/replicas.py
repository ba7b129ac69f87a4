"""Groups of replicas: which of them stand together."""

from __future__ import annotations

ALL, CONSECUTIVE, ORTHOGONAL, UNGROUPED = range(4)
"""The kinds of groups, as PopART numbers them."""

Grouping = tuple[int, int]
"""How far apart the members of a group are, and how many there are."""


def grouping(kind: int, size: int, replicas: int) -> Grouping:
    """All replicas, neighbours, replicas as far apart as possible, or each on its own."""
    if kind == ALL:
        return 1, replicas
    if kind == CONSECUTIVE:
        return 1, size
    if kind == ORTHOGONAL:
        return max(replicas // size, 1), size
    return 1, 1


def grouped(replicas: int, stride: int, size: int) -> list[list[int]]:
    """The replicas of each group; stride times size divides their number."""
    span = stride * size
    starts = [base + at for base in range(0, replicas, span) for at in range(stride)]
    return [list(range(start, start + span, stride)) for start in starts]
