"""Symbolic index arithmetic: sums of multiples of loop counters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from xdsl.ir import SSAValue


@dataclass(slots=True)
class Index:
    """
    `constant + sum of factor * counter`, not yet computed.

    Immutable by convention: frozen dataclasses are slower to create, and kernels have thousands.
    """

    constant: int = 0
    terms: Mapping[SSAValue, int] = field(default_factory=dict)

    @staticmethod
    def of(value: SSAValue, factor: int = 1, constant: int = 0) -> Index:
        return Index(constant, {value: factor} if factor else {})

    @staticmethod
    def sum(constant: int, parts: Iterable[tuple[Index, int]]) -> Index:
        """`constant + sum of factor * index` over pairs (index, factor)."""
        # A term of factor 0 would keep the sum in the loop of its counter.
        terms: dict[SSAValue, int] = {}
        for index, times in parts:
            constant += index.constant * times
            for value, factor in index.terms.items():
                terms[value] = terms.get(value, 0) + factor * times
                if terms[value] == 0:
                    del terms[value]
        return Index(constant, terms)

    def __add__(self, other: Index | int) -> Index:
        if isinstance(other, int):
            return Index(self.constant + other, self.terms)
        terms = dict(self.terms)
        for value, factor in other.terms.items():
            terms[value] = terms.get(value, 0) + factor
            if terms[value] == 0:
                del terms[value]
        return Index(self.constant + other.constant, terms)

    def scaled(self, factor: int) -> Index:
        if factor == 0:
            return Index()
        return Index(
            self.constant * factor, {value: old * factor for value, old in self.terms.items()}
        )

    def divided(self, by: int) -> Index:
        """The index divided by `by`, which divides each of its numbers."""
        parts = [self.constant, *self.terms.values()]
        assert all(part % by == 0 for part in parts), f"{parts} are not multiples of {by}"
        return Index(
            self.constant // by, {value: factor // by for value, factor in self.terms.items()}
        )
