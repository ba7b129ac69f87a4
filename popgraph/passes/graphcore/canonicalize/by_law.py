"""Elementwise rules whose matching and replacement follow from their laws."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
from xdsl.ir import Operation, SSAValue

from popgraph.dialects import element_types
from popgraph.dialects.graphcore import (
    AddOp,
    AndOp,
    BroadcastOp,
    CastOp,
    CompareOp,
    DivOp,
    Elementwise,
    MaxOp,
    MinOp,
    MulOp,
    NegOp,
    NotOp,
    PowOp,
    ReciprocalOp,
    ReluOp,
    SqrtOp,
    SubOp,
    WhereOp,
)
from popgraph.dialects.graphcore.base import Operand, dtype_of, shape_of
from popgraph.dialects.graphcore.logic import PREDICATES
from popgraph.dialects.program import ConstantOp
from popgraph.passes.graphcore.canonicalize.rewriting import AnyRule, Rule
from popgraph.support import shapes
from popgraph.support.arrays import Array
from popgraph.support.laws import FIRED, GREATEST, LEAST, Law, Term

OPERATIONS: Mapping[str, Callable[..., Elementwise]] = {
    "add": AddOp,
    "sub": SubOp,
    "mul": MulOp,
    "div": DivOp,
    "pow": PowOp,
    "neg": NegOp,
    "not": NotOp,
    "and": AndOp,
    "relu": ReluOp,
    "max": MaxOp,
    "min": MinOp,
    "sqrt": SqrtOp,
    "reciprocal": ReciprocalOp,
    "where": WhereOp,
}
"""The operation of each function of a law; comparisons and casts have properties."""
CAST = "cast "
"""Begins the name of a function that casts to an element type."""


def halves(array: Array) -> Array:
    """For each element, whether it is a power of two, and neither it nor 1 / it is subnormal."""
    mantissa, exponent = np.frexp(array)
    limit = -int(np.finfo(array.dtype).minexp) - 2
    return np.asarray((np.abs(mantissa) == 0.5) & (np.abs(exponent) < limit))


KNOWN: Mapping[str, Callable[..., Any]] = {
    **PREDICATES,
    "max": np.maximum,
    "min": np.minimum,
    "div": np.divide,
    "halves": halves,
}
"""The functions of literals that laws compute at compile time."""


def ends_of(value: SSAValue) -> Mapping[Term, Array] | None:
    """The smallest and the largest number of an integer type; None for other types."""
    dtype = dtype_of(value)
    if not dtype.is_integer:
        return None
    ends = ml_dtypes.iinfo(dtype.numpy)
    found = {LEAST: ends.min, GREATEST: ends.max}
    return {term: np.array(end, dtype.numpy) for term, end in found.items()}


def in_shape_of(value: Operand, op: Elementwise) -> Operand:
    """`value`, broadcast to the shape of the result of `op`."""
    shape = shape_of(op.result)
    return value if shape_of(value) == shape else BroadcastOp(value, shape=shape)


def applied(term: Term, operands: Sequence[Operand]) -> Elementwise:
    """The operation that computes the function of a term."""
    if term.head in PREDICATES:
        return CompareOp(operands[0], operands[1], term.head)
    if term.head.startswith(CAST):
        return CastOp(operands[0], to=element_types.BY_NAME[term.head.removeprefix(CAST)])
    return OPERATIONS[term.head](*operands)


def kind_of(term: Term) -> type[Elementwise]:
    """The class of operations that computes the function of a term."""
    found = CompareOp if term.head in PREDICATES else OPERATIONS[term.head]
    assert isinstance(found, type)
    return found


def roots(laws: Iterable[Law]) -> tuple[type[Elementwise], ...]:
    """The classes of operations at which laws apply."""
    return tuple(dict.fromkeys(kind_of(law.before) for law in laws))


@dataclass
class Match:
    """A law's left side, matched with the operation that computes a value."""

    rule: AnyRule[Any]
    values: dict[Term, SSAValue] = field(default_factory=dict)
    """The value of each subterm."""

    def binds(self, term: Term, value: SSAValue) -> bool:
        """Whether a term is equal to a value, with the values of its subterms so far."""
        if term.is_leaf:
            return self.values.setdefault(term, value) is value and self._is_leaf(term, value)
        op = value.owner
        if not isinstance(op, Elementwise) or type(op) is not kind_of(term):
            return False
        if isinstance(op, CompareOp) and op.predicate.data != term.head:
            return False
        self.values[term] = value
        return all(map(self.binds, term.operands, op.operands))

    def _is_leaf(self, term: Term, value: SSAValue) -> bool:
        if term.head == "variable":
            return True
        if term.head == "literal":
            array = self.rule.array(value)
            return array is not None and array.size > 0
        if term in (LEAST, GREATEST):
            ends, array = ends_of(value), self.rule.array(value)
            return ends is not None and array is not None and bool(np.all(array == ends[term]))
        return self.rule.is_all(value, float(term.text))

    def array(self, term: Term, like: SSAValue) -> Array | None:
        """The elements of a term that consists of literals; `like` has their type."""
        if term in self.values:
            return self.rule.array(self.values[term])
        if term in (LEAST, GREATEST):
            ends = ends_of(like)
            return None if ends is None else ends[term]
        if term.head == "number":
            return np.array(float(term.text)).astype(dtype_of(like).numpy)
        operands = [self.array(operand, like) for operand in term.operands]
        if term.is_leaf or any(operand is None for operand in operands):
            return None
        return np.asarray(KNOWN[term.head](*operands))

    def shape(self, term: Term) -> shapes.Shape:
        """The shape of a term's value."""
        known = (shape_of(self.values[leaf]) for leaf in term.leaves() if leaf in self.values)
        return shapes.broadcast(*known)

    def built(self, term: Term, like: SSAValue) -> Operand:
        """A value equal to a term: one that is known, a literal, or a new operation."""
        if term in self.values:
            return self.values[term]
        array = self.array(term, like)
        if array is not None:
            made = self.rule.literal(array)
        else:
            made = applied(term, [self.built(operand, like) for operand in term.operands])
        self.values[term] = SSAValue.get(made)  # A repeated term is one value.
        return made


class ByLaw(Rule[Elementwise]):
    """A rule that applies the first of its laws that matches: `before` becomes `after`."""

    LAWS: ClassVar[tuple[Law, ...]]

    def pays(self, op: Elementwise) -> bool:
        """Whether the rewrite makes the program faster or smaller."""
        return True

    def holds(self, given: Term, match: Match, like: SSAValue) -> bool:
        """Whether the precondition of a law is known to hold."""
        array = match.array(given, like)
        return array is not None and bool(np.all(array))

    def rewrite(self, op: Elementwise) -> Operand | None:
        makers = [type(operand.owner) for operand in op.operands]
        for law, owners in _laws_at(type(self), type(op)):
            if any(makers[at] is not kind for at, kind in owners):
                continue
            like, match = op.operands[-1], Match(self)
            if law.types and dtype_of(like).name not in law.types:
                continue
            if not match.binds(law.before, op.results[0]) or not self.pays(op):
                continue
            if law.given is not None and not self.holds(law.given, match, like):
                continue
            whole = law.after in match.values or match.array(law.after, like) is not None
            if not whole and match.shape(law.after) != shape_of(op.result):
                continue
            FIRED[f"{type(self).__name__}: {law}"] += 1
            found = match.built(law.after, like)
            return in_shape_of(found, op) if whole else found
        return None


Owners = Sequence[tuple[int, type[Operation]]]
"""The operands that operations of a class must compute: a quick test before a match."""


@cache
def _laws_at(rule: type[ByLaw], kind: type[Elementwise]) -> Sequence[tuple[Law, Owners]]:
    """The laws of a rule for a class of operations."""
    return [(law, _owners(law.before)) for law in rule.LAWS if kind_of(law.before) is kind]


def _owners(term: Term) -> Owners:
    return [
        (at, ConstantOp if operand.is_leaf else kind_of(operand))
        for at, operand in enumerate(term.operands)
        if operand.head != "variable"
    ]
