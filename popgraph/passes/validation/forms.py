"""Linear forms over loop counters: the indices, bounds and conditions of kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

Numbers: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]
Bounds: TypeAlias = tuple[float, float]
"""Lowest and highest value, both included; infinite if unknown."""

ANYTHING: Bounds = (-math.inf, math.inf)


@dataclass(eq=False)
class Loop:
    """A loop, and the number of its iteration, which counts from 0."""

    trips: Form
    ticks: int = 0
    """The operations of one iteration: the unit of time in `Site.times`."""

    @property
    def most(self) -> int:
        """The largest trip count."""
        return int(self.trips.bounds[1])


@dataclass(frozen=True, eq=False)
class Unknown:
    """A value that depends on data."""

    bounds: Bounds = ANYTHING


@dataclass(frozen=True)
class Apply:
    """A function of forms that is not linear: a quotient, a minimum, a comparison."""

    name: str
    operands: tuple[Form, ...]

    @property
    def bounds(self) -> Bounds:
        return FUNCTIONS[self.name].bounds(*(one.bounds for one in self.operands))


Atom: TypeAlias = Loop | Unknown | Apply


@dataclass(frozen=True)
class Form:
    """`constant + factor * atom + ...`, with each atom once and no factor 0."""

    constant: int
    terms: tuple[tuple[Atom, int], ...] = ()
    bounds: Bounds = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        low: float = self.constant
        high: float = self.constant
        for atom, factor in self.terms:
            least, most = (0, atom.most - 1) if isinstance(atom, Loop) else atom.bounds
            if factor < 0:
                least, most = most, least
            low += factor * least
            high += factor * most
        object.__setattr__(self, "bounds", (low, high))

    @property
    def number(self) -> int | None:
        """The value of a constant form."""
        return None if self.terms else self.constant

    def __add__(self, other: Form) -> Form:
        return combined(self.constant + other.constant, (*self.terms, *other.terms))

    def __sub__(self, other: Form) -> Form:
        return self + other.scaled(-1)

    def scaled(self, by: int) -> Form:
        """The form times a constant."""
        terms = tuple((atom, factor * by) for atom, factor in self.terms) if by else ()
        return Form(self.constant * by, terms)

    @property
    def is_unknown(self) -> bool:
        """Whether the value depends on data."""
        return any(_is_unknown(atom) for atom, _ in self.terms)

    @property
    def loops(self) -> set[Loop]:
        """All loops whose counters the value depends on."""
        return {loop for atom, _ in self.terms for loop in _loops_of(atom)}

    @property
    def entangled(self) -> set[Loop]:
        """The loops inside functions that are not linear."""
        nested = (atom for atom, _ in self.terms if isinstance(atom, Apply))
        return {loop for atom in nested for loop in _loops_of(atom)}

    def at(self, counters: Mapping[Loop, Numbers], size: int) -> Numbers:
        """The values for arrays of `size` counters; loops without counters are at 0."""
        found = np.full(size, self.constant, np.int64)
        for atom, factor in self.terms:
            if isinstance(atom, Loop):
                if atom in counters:
                    found += factor * counters[atom]
                continue
            assert isinstance(atom, Apply), "values that depend on data are not computed"
            operands = [one.at(counters, size) for one in atom.operands]
            found += factor * FUNCTIONS[atom.name].numpy(*operands)
        return found


def _is_unknown(atom: Atom) -> bool:
    if isinstance(atom, Apply):
        return any(one.is_unknown for one in atom.operands)
    return isinstance(atom, Unknown)


def _loops_of(atom: Atom) -> set[Loop]:
    if isinstance(atom, Apply):
        return {loop for one in atom.operands for loop in one.loops}
    return {atom} if isinstance(atom, Loop) else set()


def combined(constant: int, terms: Iterable[tuple[Atom, int]]) -> Form:
    """The form with equal atoms added up."""
    found = dict[Atom, int]()
    for atom, factor in terms:
        found[atom] = found.get(atom, 0) + factor
    return Form(constant, tuple(one for one in found.items() if one[1]))


def unknown(bounds: Bounds = ANYTHING) -> Form:
    """A value that depends on data."""
    return Form(0, ((Unknown(bounds), 1),))


def counter(loop: Loop) -> Form:
    """The number of a loop's iteration."""
    return Form(0) if loop.trips.number == 1 else Form(0, ((loop, 1),))


# Functions that are not linear


@dataclass(frozen=True)
class _Function:
    numpy: Callable[..., Numbers]
    bounds: Callable[..., Bounds] = lambda *_: ANYTHING


def _quotient(dividend: Numbers, divisor: Numbers) -> Numbers:
    """The quotient rounded towards 0, as in C."""
    divisor = np.where(divisor == 0, 1, divisor)
    quotient: Numbers = np.abs(dividend) // np.abs(divisor)
    signed: Numbers = quotient * np.sign(dividend) * np.sign(divisor)
    return signed


def _remainder(dividend: Numbers, divisor: Numbers) -> Numbers:
    remainder: Numbers = dividend - divisor * _quotient(dividend, divisor)
    return remainder


def _selected(condition: Numbers, lhs: Numbers, rhs: Numbers) -> Numbers:
    chosen: Numbers = lhs * (condition != 0) + rhs * (condition == 0)
    return chosen


def _quotient_bounds(dividend: Bounds, divisor: Bounds) -> Bounds:
    if divisor[0] != divisor[1] or divisor[0] <= 0 or dividend[0] < 0:
        return ANYTHING
    high = dividend[1] if math.isinf(dividend[1]) else dividend[1] // divisor[0]
    return dividend[0] // divisor[0], high


def _remainder_bounds(dividend: Bounds, divisor: Bounds) -> Bounds:
    if divisor[0] <= 0 or dividend[0] < 0:
        return ANYTHING
    return 0, min(dividend[1], divisor[1] - 1)


def _product_bounds(lhs: Bounds, rhs: Bounds) -> Bounds:
    corners = [0 if 0 in (a, b) else a * b for a in lhs for b in rhs]
    return min(corners), max(corners)


def _of_condition(*_: Bounds) -> Bounds:
    return 0, 1


def _comparison(function: Callable[[Numbers, Numbers], Numbers]) -> _Function:
    return _Function(function, _of_condition)


FUNCTIONS: Mapping[str, _Function] = {
    "/": _Function(_quotient, _quotient_bounds),
    "%": _Function(_remainder, _remainder_bounds),
    "*": _Function(lambda a, b: a * b, _product_bounds),
    "min": _Function(np.minimum, lambda a, b: (min(a[0], b[0]), min(a[1], b[1]))),
    "max": _Function(np.maximum, lambda a, b: (max(a[0], b[0]), max(a[1], b[1]))),
    "select": _Function(
        _selected,
        lambda _, a, b: (min(a[0], b[0]), max(a[1], b[1])),
    ),
    "and": _comparison(lambda a, b: a & b),
    "or": _comparison(lambda a, b: a | b),
    "==": _comparison(lambda a, b: (a == b).astype(np.int64)),
    "!=": _comparison(lambda a, b: (a != b).astype(np.int64)),
    "<": _comparison(lambda a, b: (a < b).astype(np.int64)),
    "<=": _comparison(lambda a, b: (a <= b).astype(np.int64)),
}
"""Evaluation and bounds of each function."""


def applied(name: str, *operands: Form) -> Form:
    """The function of these forms, simplified where bounds decide it."""
    numbers = [one.number for one in operands]
    if None not in numbers:
        arrays = [np.array([number], np.int64) for number in numbers]
        return Form(int(FUNCTIONS[name].numpy(*arrays)[0]))
    simple = _SIMPLE[name](*operands) if name in _SIMPLE else None
    return simple or Form(0, ((Apply(name, operands), 1),))


def _simple_product(lhs: Form, rhs: Form) -> Form | None:
    for one, other in ((lhs, rhs), (rhs, lhs)):
        if one.number is not None:
            return other.scaled(one.number)
    return None


def _divided(form: Form, by: int) -> tuple[Form, Form] | None:
    """`(q, r)` with `form == by * q + r` and `0 <= r < by`; None if bounds do not show it."""
    whole = tuple((atom, factor // by) for atom, factor in form.terms if factor % by == 0)
    rest = tuple((atom, factor) for atom, factor in form.terms if factor % by)
    quotient, remainder = Form(form.constant // by, whole), Form(form.constant % by, rest)
    if quotient.bounds[0] >= 0 and remainder.bounds[0] >= 0 and remainder.bounds[1] < by:
        return quotient, remainder
    return None


def _simple_quotient(dividend: Form, divisor: Form) -> Form | None:
    by = divisor.number
    found = _divided(dividend, by) if by is not None and by > 0 else None
    return found[0] if found else None


def _simple_remainder(dividend: Form, divisor: Form) -> Form | None:
    by = divisor.number
    found = _divided(dividend, by) if by is not None and by > 0 else None
    return found[1] if found else None


def _smaller(lhs: Form, rhs: Form) -> Form | None:
    """The smaller one, if it always is."""
    low, high = (lhs - rhs).bounds
    return lhs if high <= 0 else rhs if low >= 0 else None


def _larger(lhs: Form, rhs: Form) -> Form | None:
    low, high = (lhs - rhs).bounds
    return lhs if low >= 0 else rhs if high <= 0 else None


def _below(lhs: Form, rhs: Form) -> Form | None:
    low, high = (lhs - rhs).bounds
    return Form(1) if high < 0 else Form(0) if low >= 0 else None


def _at_most(lhs: Form, rhs: Form) -> Form | None:
    low, high = (lhs - rhs).bounds
    return Form(1) if high <= 0 else Form(0) if low > 0 else None


def _chosen(condition: Form, lhs: Form, rhs: Form) -> Form | None:
    number = condition.number
    return None if number is None else lhs if number else rhs


def _both(lhs: Form, rhs: Form) -> Form | None:
    if 0 in (lhs.number, rhs.number):
        return Form(0)
    return rhs if lhs.number == 1 else lhs if rhs.number == 1 else None


_SIMPLE: Mapping[str, Callable[..., Form | None]] = {
    "*": _simple_product,
    "/": _simple_quotient,
    "%": _simple_remainder,
    "min": _smaller,
    "max": _larger,
    "<": _below,
    "<=": _at_most,
    "select": _chosen,
    "and": _both,
}
