"""Einstein summation equations: labels of operand and result axes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from popgraph.support.shapes import Shape

ELLIPSIS = "..."
LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")

Term: TypeAlias = tuple[str, ...]
"""The label of each axis: a letter, or the number of an ellipsis axis from the right."""


class EquationError(ValueError):
    """An invalid equation, with a hint."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.what, self.hint = what, hint


@dataclass(frozen=True)
class Equation:
    """The axis labels of each operand and of the result."""

    terms: tuple[Term, ...]
    result: Term

    def sizes(self, shapes: Sequence[Shape]) -> dict[str, int]:
        """{label: size}; an axis of size 1 broadcasts."""
        found: dict[str, int] = {}
        for term, shape in zip(self.terms, shapes, strict=True):
            for label, size in zip(term, shape, strict=True):
                known = found.setdefault(label, size)
                found[label] = size if known == 1 else known
                if size not in (1, found[label]):
                    raise EquationError(
                        f"axis {label!r} has sizes {known} and {size}",
                        "axes with the same letter must have equal sizes, or size 1",
                    )
        return found


def parse(text: str, ranks: Sequence[int]) -> Equation:
    """Parses an equation for operands of these ranks."""
    left, arrow, right = text.replace(" ", "").partition("->")
    written = left.split(",")
    if len(written) != len(ranks):
        raise EquationError(
            f"the equation has {len(written)} terms for {len(ranks)} operands",
            "write one term for each operand, separated by commas",
        )
    terms = tuple(_term(one, rank) for one, rank in zip(written, ranks, strict=True))
    result = _result(right, terms) if arrow else _implied(terms)
    known = {label for term in terms for label in term}
    for label in result:
        if label not in known or result.count(label) > 1:
            raise EquationError(
                f"the result's letter {label!r} is in no operand, or is repeated",
                "use letters of the operands in the result, each at most once",
            )
    return Equation(terms, result)


def _term(text: str, rank: int) -> Term:
    """The axis labels of an operand."""
    before, ellipsis_, behind = text.partition(ELLIPSIS)
    _check_letters(text, before + behind)
    more = rank - len(before + behind)
    if more < 0 or (more and not ellipsis_):
        raise EquationError(
            f"the term {text!r} does not fit an operand of rank {rank}",
            "write one letter for each axis; an ellipsis covers any number of axes",
        )
    return (*before, *_numbered(more), *behind)


def _numbered(count: int) -> Term:
    """Labels of `count` ellipsis axes, which align from the right across operands."""
    return tuple(str(number) for number in reversed(range(count)))


def _check_letters(text: str, letters: str) -> None:
    if not LETTERS.issuperset(letters):
        raise EquationError(
            f"the term {text!r} must consist of letters and at most one ellipsis",
            "write an equation such as 'bij,bjk->bik' or '...ij->...ji'",
        )


def _result(text: str, terms: Sequence[Term]) -> Term:
    before, ellipsis_, behind = text.partition(ELLIPSIS)
    _check_letters(text, before + behind)
    return (*before, *(_longest(terms) if ellipsis_ else ()), *behind)


def _implied(terms: Sequence[Term]) -> Term:
    """The ellipsis axes, then the letters that occur once."""
    counted: Mapping[str, int] = Counter(label for term in terms for label in term)
    once = sorted(label for label, count in counted.items() if count == 1 and label in LETTERS)
    return (*_longest(terms), *once)


def _longest(terms: Sequence[Term]) -> Term:
    count = max((sum(label not in LETTERS for label in term) for term in terms), default=0)
    return _numbered(count)
