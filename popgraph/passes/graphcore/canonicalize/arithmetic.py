"""Canonicalization of arithmetic: identities, inverse pairs, casts, clamps, selects."""

from __future__ import annotations

from xdsl.ir import SSAValue

from popgraph.dialects.graphcore import BroadcastOp, CastOp, Elementwise
from popgraph.dialects.graphcore.base import Operand, dtype_of, shape_of, tensor_of
from popgraph.dialects.graphcore.logic import ORDERS
from popgraph.dialects.program import WeightStore
from popgraph.passes.graphcore.canonicalize.by_law import ByLaw, roots
from popgraph.passes.graphcore.canonicalize.rewriting import Rule, with_operands
from popgraph.passes.graphcore.intervals import Intervals, range_of
from popgraph.support import shapes
from popgraph.support.dtypes import BY_NAME
from popgraph.support.index_laws import BROADCAST
from popgraph.support.laws import (
    EXHAUSTIVE_BITS,
    GREATEST,
    LEAST,
    Law,
    Proof,
    Term,
    function,
    literal,
    variable,
)

X, Y, CONDITION = map(variable, ("x", "y", "c"))
A, B, C = map(literal, ("a", "b", "c"))
INTEGERS = frozenset({"i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"})
FLOATS = frozenset({"f16", "bf16", "f32", "f64"})
LIBRARY = "the solver has no power function; all other types are checked"


class DropNeutral(ByLaw):
    """
    x + -0, x - 0, x * 1, x / 1, x ^ 1  ->  x

    Only when signs of zeros stay. -0.0 + 0.0 is 0.0, so of floats only -0.0 may be added.
    Integers have one zero.
    """

    LAWS = (
        Law(X + -0.0, X),
        Law(-0.0 + X, X),
        Law(X - 0.0, X),
        Law(X * 1, X),
        Law(1 * X, X),
        Law(X / 1, X),
        Law(X**1, X, unproven={"f32": LIBRARY, "f64": LIBRARY}),
    )
    ROOTS = roots(LAWS)
    PROOF = Proof(LAWS)


class DropPair(ByLaw):
    """
    -(-x)  ->  x;  not not x  ->  x;  relu(relu(x))  ->  relu(x)
    """

    LAWS = (
        Law(function("neg", function("neg", X)), X),
        Law(function("not", function("not", X)), X),
        Law(function("relu", function("relu", X)), function("relu", X)),
    )
    ROOTS = roots(LAWS)
    PROOF = Proof(LAWS)


def _round_trip(source: str, narrow: str, wide: str) -> Law:
    """The outer cast reads the same number, if the narrow type holds it."""
    step = function(f"cast {wide}", function(f"cast {narrow}", X))
    given = function(f"fits {narrow}", X)
    if source in FLOATS and wide in INTEGERS:
        given = given & function(f"fits {wide}", X)
    after = X if wide == source else function(f"cast {wide}", X)
    return Law(step, after, given, types=frozenset({source}))


ROUND_TRIPS = tuple(
    _round_trip(source, narrow, wide)
    for source in sorted(INTEGERS | FLOATS)
    for narrow in sorted(INTEGERS)
    for wide in sorted(INTEGERS | FLOATS)
    if source != narrow and (wide == source or BY_NAME[source].bits <= EXHAUSTIVE_BITS)
)
"""
The narrow type holds the same number: casts to the source's type return it.

Other casts depend on the number alone. Sources of at most 16 bits are checked with all of them.
"""


class DropCast(Rule[CastOp]):
    """
    cast x to the type it has  ->  x
    """

    ROOTS = (CastOp,)
    PROOF = Proof(construction="cast returns its operand if it has the type")

    def rewrite(self, op: CastOp) -> Operand | None:
        return op.x if tensor_of(op.x) == tensor_of(op.result) else None


class DropRoundTrip(Rule[CastOp]):
    """
    cast wide (cast narrow x)  ->  cast wide x

    Only when x holds integers in the range of the narrow type and all readers cast to float. If
    one reader computes with integers, the narrow type is the cheapest to store for all of them.
    """

    ROOTS = (CastOp,)
    PROOF = Proof(ROUND_TRIPS)

    def __init__(self, weights: WeightStore) -> None:
        super().__init__(weights)
        self._intervals = Intervals(weights)

    def rewrite(self, op: CastOp) -> Operand | None:
        inner = op.x.owner
        if not isinstance(inner, CastOp) or _is_kept(inner):
            return None
        found, held = self._intervals.of(inner.x), range_of(dtype_of(op.x))
        if found is None or held is None or not found.lies_in(held):
            return None
        ends = range_of(dtype_of(op.result))
        if ends is not None and dtype_of(inner.x).is_float and not found.lies_in(ends):
            return None
        same = tensor_of(inner.x) == tensor_of(op.result)
        return inner.x if same else CastOp(inner.x, to=tensor_of(op.result).element_type)


def _is_kept(narrow: CastOp) -> bool:
    """Whether a reader of a cast from floats computes with integers."""
    readers = [use.operation for use in narrow.result.uses]
    return dtype_of(narrow.x).is_float and any(
        not isinstance(reader, CastOp) or not dtype_of(reader.result).is_float for reader in readers
    )


class MultiplyByReciprocal(ByLaw):
    """
    x / c  ->  x * (1 / c)

    Only when c holds powers of two with normal reciprocals: 1 / c and the product are then exact.
    """

    LAWS = (
        Law(
            X / C,
            X * (1 / C),
            given=function("halves", C),
            types=frozenset({"f16", "f32", "f64"}),
        ),
    )
    ROOTS = roots(LAWS)
    PROOF = Proof(LAWS)


class MergeClamps(ByLaw):
    """
    max(max(x, a), b)  ->  max(x, max(a, b)), and the same for min

    Only when a and b are constant and the inner result has no other use.
    """

    LAWS = tuple(
        Law(function(end, function(end, X, A), B), function(end, X, function(end, A, B)))
        for end in ("max", "min")
    )
    ROOTS = roots(LAWS)
    PROOF = Proof(LAWS)

    def pays(self, op: Elementwise) -> bool:
        return op.operands[0].has_one_use()


class DropClamp(ByLaw):
    """
    max(x, least) -> x, max(x, greatest) -> greatest, and the same for min

    Only of integers, where least and greatest are the ends of the type.
    """

    LAWS = tuple(
        Law(function(end, *operands), found, types=INTEGERS)
        for end, loses, wins in (("max", LEAST, GREATEST), ("min", GREATEST, LEAST))
        for operands, found in (
            ((loses, X), X),
            ((wins, X), wins),
            ((X, loses), X),
            ((X, wins), wins),
        )
    )
    ROOTS = roots(LAWS)
    PROOF = Proof(LAWS)


def _beyond(order: str, *, known_last: bool) -> Law:
    """A comparison with a constant has the result of the least integer."""

    def of(x: Term) -> Term:
        return function(order, *((x, C) if known_last else (C, x)))

    return Law(of(X), of(LEAST), given=of(LEAST).equals(of(GREATEST)), types=INTEGERS)


class CompareBeyondEnds(ByLaw):
    """
    x < c  ->  false, x >= c  ->  true, and the like

    Only when c is constant and the result is the same for every integer of the type of x.
    """

    LAWS = tuple(
        _beyond(order, known_last=last) for last in (True, False) for order in sorted(ORDERS)
    )
    ROOTS = roots(LAWS)
    PROOF = Proof(LAWS)


class ChooseKnown(ByLaw):
    """
    where(c, x, y)  ->  x or y;  where(c, x, x)  ->  x

    Only when all elements of the constant c are equal, or both values are the same.
    """

    LAWS = (
        Law(function("where", CONDITION, X, X), X),
        Law(function("where", 1, X, Y), X),
        Law(function("where", 0, X, Y), Y),
    )
    ROOTS = roots(LAWS)
    PROOF = Proof(LAWS)


class DropOperandBroadcast(Rule[Elementwise]):
    """
    f(broadcast x, y)  ->  f(x, y)

    Only when the result keeps its shape: elementwise operations broadcast their operands.
    """

    ROOTS = (Elementwise,)
    PROOF = Proof(BROADCAST)

    def rewrite(self, op: Elementwise) -> Operand | None:
        for index, operand in enumerate(op.operands):
            if not isinstance(operand.owner, BroadcastOp):
                continue
            operands: list[SSAValue] = list(op.operands)
            operands[index] = operand.owner.x
            if shapes.broadcast(*map(shape_of, operands)) == shape_of(op.result):
                return with_operands(op, operands)
        return None


RULES = (
    DropNeutral,
    DropPair,
    DropCast,
    DropRoundTrip,
    MultiplyByReciprocal,
    MergeClamps,
    DropClamp,
    CompareBeyondEnds,
    ChooseKnown,
    DropOperandBroadcast,
)
