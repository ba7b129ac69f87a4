"""Einsum, as diagonals, sums, and products of two operands in the cheapest order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from operator import itemgetter
from typing import TypeAlias

from xdsl.ir import SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, shape_of
from popgraph.dialects.onnx.record import Conflicts
from popgraph.dialects.onnx.type_errors import TypeConflict
from popgraph.dialects.onnx.view import NodeView
from popgraph.operators.movement import reshaped, sliced
from popgraph.operators.node import Node
from popgraph.operators.record import Lowered, lowers, requires
from popgraph.support.errors import TypeMismatchError
from popgraph.support.shapes import Shape, prod

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


def parse_equation(text: str, ranks: Sequence[int]) -> Equation:
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


MOST_ORDERS = 8
"""Up to this many operands, all orders are tried (3^n splits); beyond, the order is greedy."""

Sizes = Mapping[str, int]


@dataclass(frozen=True)
class Labelled:
    """A tensor with a letter for each axis."""

    value: SSAValue
    labels: Term

    def along(self, labels: Sequence[str]) -> Labelled:
        """The tensor transposed to this order of letters."""
        perm = [self.labels.index(label) for label in labels]
        if perm == sorted(perm):
            return self
        return Labelled(gc.TransposeOp(self.value, perm=perm).result, tuple(labels))

    def summed(self, keep: frozenset[str]) -> Labelled:
        """The tensor summed over all axes that are not kept."""
        axes = [axis for axis, label in enumerate(self.labels) if label not in keep]
        if not axes:
            return self
        total = gc.ReduceSumOp(self.value, axes=axes, keepdims=False).result
        return Labelled(total, tuple(label for label in self.labels if label in keep))

    @property
    def sizes(self) -> dict[str, int]:
        return dict(zip(self.labels, shape_of(self.value), strict=True))


@requires("Einsum")
def require_einsum(node: NodeView) -> Conflicts:
    shapes = [shape for index in range(len(node)) if (shape := node.shape_of(index)) is not None]
    if len(shapes) < len(node):
        return
    try:
        equation = parse_equation(node.text("equation"), [len(shape) for shape in shapes])
        equation.sizes([tuple(d if isinstance(d, int) else 1 for d in shape) for shape in shapes])
    except EquationError as error:
        yield TypeConflict(f"`equation` is {node.text('equation')!r}: {error.what}", error.hint)


@lowers("Einsum")
def einsum(node: Node) -> Lowered:
    shapes = [shape_of(value) for value in node.inputs]
    try:
        equation = parse_equation(node.text("equation"), [len(shape) for shape in shapes])
        sizes = equation.sizes(shapes)
    except EquationError as error:
        raise TypeMismatchError(error.what, hint=error.hint) from error
    parts = [
        _without_ones(_diagonal(Labelled(value, term)))
        for value, term in zip(node.inputs, equation.terms, strict=True)
    ]
    wanted = tuple(label for label in equation.result if sizes[label] != 1)
    found = _product(parts, frozenset(wanted), sizes).summed(frozenset(wanted)).along(wanted)
    return reshaped(found.value, [sizes[label] for label in equation.result])


# One operand


def _diagonal(part: Labelled) -> Labelled:
    """Replaces axes of the same letter by their diagonal."""
    for label in part.labels:
        if part.labels.count(label) > 1:
            return _diagonal(_first_diagonal(part, label))
    return part


def _first_diagonal(part: Labelled, label: str) -> Labelled:
    """Merges the first two axes of a letter, as the last axis, with stride n + 1."""
    first, second = [axis for axis, one in enumerate(part.labels) if one == label][:2]
    rest = [axis for axis in range(len(part.labels)) if axis not in (first, second)]
    moved = gc.TransposeOp(part.value, perm=[*rest, first, second])
    *before, size, again = shape_of(moved)
    if size != again:
        raise TypeMismatchError(
            f"axis {label!r} has {size} elements, and {again} in the same operand",
            hint="axes of one letter in one operand must have the same size",
        )
    flat = gc.ReshapeOp(moved, shape=[*before, size * size])
    taken = sliced(flat, {len(before): (0, size, size + 1)})
    return Labelled(taken, (*(part.labels[axis] for axis in rest), label))


def _without_ones(part: Labelled) -> Labelled:
    """Drops axes of size 1, which broadcast to any size."""
    kept = {label: size for label, size in part.sizes.items() if size != 1}
    return Labelled(reshaped(part.value, tuple(kept.values())), tuple(kept))


# Several operands


def _product(parts: Sequence[Labelled], wanted: frozenset[str], sizes: Sizes) -> Labelled:
    """The product of all operands; axes are summed as early as possible."""
    if len(parts) > MOST_ORDERS:
        return _greedy(list(parts), wanted, sizes)
    plan = Order([frozenset(part.labels) for part in parts], wanted, sizes)
    return _follow(plan, parts, frozenset(range(len(parts))))


def _greedy(parts: list[Labelled], wanted: frozenset[str], sizes: Sizes) -> Labelled:
    while len(parts) > 1:
        first, second = min(
            combinations(parts, 2), key=lambda pair: _cost(pair[0].labels, pair[1].labels, sizes)
        )
        others = [part for part in parts if part is not first and part is not second]
        needed = wanted.union(*(part.labels for part in others))
        parts = [*others, _pair(first, second, needed)]
    return parts[0]


def _cost(first: Iterable[str], second: Iterable[str], sizes: Sizes) -> int:
    """The number of multiplications."""
    return prod(sizes[label] for label in {*first, *second})


Members = frozenset[int]


class Order:
    """The cheapest contraction order of any subset of operands, by dynamic programming."""

    def __init__(
        self, labels: Sequence[frozenset[str]], wanted: frozenset[str], sizes: Sizes
    ) -> None:
        self.labels, self.wanted, self.sizes = labels, wanted, sizes
        self._best: dict[Members, tuple[int, Members]] = {}

    def needed(self, members: Members) -> frozenset[str]:
        """The letters of the result and of operands outside `members`."""
        others = (self.labels[one] for one in range(len(self.labels)) if one not in members)
        return self.wanted.union(*others)

    def left(self, members: Members) -> frozenset[str]:
        """The letters that the contraction of `members` keeps."""
        inside = frozenset[str]().union(*(self.labels[one] for one in members))
        return inside & self.needed(members)

    def best(self, members: Members) -> tuple[int, Members]:
        """The least cost of contracting `members`, and the subset of the first factor."""
        if len(members) == 1:
            return 0, members
        if members not in self._best:
            prices = ((self._price(members, half), half) for half in _halves(members))
            self._best[members] = min(prices, key=itemgetter(0))
        return self._best[members]

    def _price(self, members: Members, half: Members) -> int:
        other = members - half
        both = _cost(self.left(half), self.left(other), self.sizes)
        return self.best(half)[0] + self.best(other)[0] + both


def _halves(members: Members) -> Iterator[Members]:
    """Every split of a set in two, once."""
    first, *others = sorted(members)
    for count in range(len(others)):
        for more in combinations(others, count):
            yield frozenset((first, *more))


def _follow(plan: Order, parts: Sequence[Labelled], members: Members) -> Labelled:
    """The contraction of some operands, in the planned order."""
    if len(members) == 1:
        (one,) = members
        return parts[one].summed(plan.needed(members))
    _, half = plan.best(members)
    first, second = (_follow(plan, parts, some) for some in (half, members - half))
    return _pair(first, second, plan.needed(members))


def _pair(first: Labelled, second: Labelled, needed: frozenset[str]) -> Labelled:
    """
    Contracts two operands; the result keeps the `needed` letters.

    A batched matmul if letters are summed and one operand has letters of its own, else an
    elementwise product.
    """
    mine, others = frozenset(first.labels), frozenset(second.labels)
    first, second = first.summed(needed | others), second.summed(needed | mine)
    both = [label for label in first.labels if label in second.labels]
    sums = [label for label in both if label not in needed]
    batch = [label for label in both if label in needed]
    rows = [label for label in first.labels if label not in both]
    columns = [label for label in second.labels if label not in both]
    if not sums or not (rows or columns):
        return _elementwise(first, second, (*batch, *rows, *columns, *sums)).summed(needed)
    left = _three(first, batch, rows, sums)
    right = _three(second, batch, sums, columns)
    shape = first.sizes | second.sizes
    labels = (*batch, *rows, *columns)
    product = gc.MatMulOp(left, right)
    return Labelled(reshaped(product, [shape[one] for one in labels]), labels)


def _three(part: Labelled, *groups: Sequence[str]) -> Operand:
    """The tensor as [group 0, group 1, group 2]; without a batch axis if group 0 is empty."""
    moved = part.along([label for group in groups for label in group])
    shape = [prod(part.sizes[label] for label in group) for group in groups]
    return reshaped(moved.value, shape if groups[0] else shape[1:])


def _elementwise(first: Labelled, second: Labelled, labels: Term) -> Labelled:
    """The broadcast product of two tensors."""
    parts = []
    for part in (first, second):
        moved = part.along([label for label in labels if label in part.labels])
        parts.append(reshaped(moved.value, [part.sizes.get(label, 1) for label in labels]))
    return Labelled(gc.MulOp(*parts).result, labels)
