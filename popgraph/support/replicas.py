"""Groups of replicas with a common value or collective."""

from __future__ import annotations

ALL, CONSECUTIVE, ORTHOGONAL, UNGROUPED = range(4)
"""PopART's values of `CommGroupType`."""

Grouping = tuple[int, int]
"""(stride, size) of a group."""


def grouping(kind: int, size: int, replicas: int) -> Grouping:
    """(stride, size) of groups of all replicas, consecutive ones, orthogonal ones, or one each."""
    if kind == ALL:
        return 1, replicas
    if kind == CONSECUTIVE:
        return 1, size
    if kind == ORTHOGONAL:
        return max(replicas // size, 1), size
    return 1, 1


def grouped(replicas: int, stride: int, size: int) -> list[list[int]]:
    """The replicas of each group; `stride * size` divides their number."""
    span = stride * size
    starts = [base + at for base in range(0, replicas, span) for at in range(stride)]
    return [list(range(start, start + span, stride)) for start in starts]
