"""Sets of integers as sorted, disjoint runs, with sums of sets for linear accesses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from popgraph.passes.validation.forms import Numbers


@dataclass(frozen=True, eq=False)
class Runs:
    """A set of integers: run `i` is `starts[i] .. ends[i] - 1`; sorted, with gaps between runs."""

    starts: Numbers
    ends: Numbers

    @staticmethod
    def of(start: int, end: int) -> Runs:
        """The integers from `start` to `end - 1`."""
        if start >= end:
            return NOTHING
        return Runs(np.array([start], np.int64), np.array([end], np.int64))

    @property
    def count(self) -> int:
        """The number of elements."""
        return int((self.ends - self.starts).sum())

    @property
    def first(self) -> int:
        """The smallest element."""
        return int(self.starts[0])

    @property
    def last(self) -> int:
        """The largest element."""
        return int(self.ends[-1]) - 1

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Runs):
            return NotImplemented
        return np.array_equal(self.starts, other.starts) and np.array_equal(self.ends, other.ends)

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        return len(self.starts) > 0

    def __or__(self, other: Runs) -> Runs:
        return united([self, other])

    def __and__(self, other: Runs) -> Runs:
        return self - (self - other)

    def __sub__(self, other: Runs) -> Runs:
        if not self or not other:
            return self
        # Sweep over all ends: inside where this set covers, and the other one does not.
        size, cut = len(self.starts), len(other.starts)
        at = np.concatenate([self.starts, self.ends, other.starts, other.ends])
        own = np.repeat([1, -1, 0, 0], [size, size, cut, cut])
        removed = np.repeat([0, 0, 1, -1], [size, size, cut, cut])
        order = np.argsort(at, kind="stable")
        at = at[order]
        inside = (np.cumsum(own[order]) > 0) & (np.cumsum(removed[order]) == 0)
        final = np.append(at[1:] != at[:-1], True)  # The state after all events of one position.
        at, inside = at[final], inside[final]
        kept = np.flatnonzero(inside[:-1])
        return merged(at[kept], at[kept + 1])

    def shifted(self, by: int) -> Runs:
        """All elements plus `by`."""
        return Runs(self.starts + by, self.ends + by)

    def scaled(self, by: int) -> Runs:
        """The bytes of elements of `by` bytes."""
        return Runs(self.starts * by, self.ends * by)

    def within(self, start: int, end: int) -> Runs:
        """The elements from `start` to `end - 1`."""
        starts, ends = np.maximum(self.starts, start), np.minimum(self.ends, end)
        kept = starts < ends
        return Runs(starts[kept], ends[kept])

    def elements(self) -> Numbers:
        """All elements."""
        lengths = self.ends - self.starts
        before = np.cumsum(lengths) - lengths
        return np.repeat(self.starts - before, lengths) + np.arange(lengths.sum())

    def repeated(self, stride: int, times: int) -> Runs:
        """The union of the set shifted by `0, stride, ... (times - 1) * stride`."""
        if times <= 1 or not stride or not self:
            return self if times > 0 else NOTHING
        base = self if stride > 0 else self.shifted(stride * (times - 1))
        stride = abs(stride)
        if int((base.ends - base.starts).min()) >= stride:
            return merged(base.starts, base.ends + stride * (times - 1))
        shifts = stride * np.arange(times)
        return merged(
            (base.starts[:, None] + shifts).ravel(), (base.ends[:, None] + shifts).ravel()
        )

    def at_each(self, bases: Numbers) -> Runs:
        """The union of the set shifted by each of `bases`."""
        bases = np.unique(bases)
        return merged((bases[:, None] + self.starts).ravel(), (bases[:, None] + self.ends).ravel())


def merged(starts: Numbers, ends: Numbers) -> Runs:
    """The union of runs in any order, all of them with elements."""
    if not len(starts):
        return NOTHING
    if np.any(starts[1:] < starts[:-1]):
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], ends[order]
    reach = np.maximum.accumulate(ends)
    new = np.append(True, starts[1:] > reach[:-1])
    last = np.append(np.flatnonzero(new)[1:] - 1, len(starts) - 1)
    return Runs(starts[new], reach[last])


def united(sets: Iterable[Runs]) -> Runs:
    """The union of several sets."""
    found = [one for one in sets if one]
    if len(found) < 2:
        return found[0] if found else NOTHING
    return merged(
        np.concatenate([one.starts for one in found]), np.concatenate([one.ends for one in found])
    )


_NONE = np.zeros(0, np.int64)
NOTHING = Runs(_NONE, _NONE)
