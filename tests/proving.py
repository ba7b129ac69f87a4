"""A prover of laws: a solver for wide types, reals and indices, and all inputs of narrow types."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from functools import reduce
from typing import Any

import ml_dtypes
import numpy as np
import z3
from xdsl.builder import ImplicitBuilder
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import SSAValue

from popgraph.backends.reference import evaluate
from popgraph.dialects import element_types
from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand
from popgraph.dialects.program import ConstantOp, GraphOp, ReturnOp
from popgraph.passes.base import Compilation
from popgraph.passes.graphcore.canonicalize.by_law import CAST, applied, halves
from popgraph.support.arrays import Array
from popgraph.support.dtypes import BY_NAME
from popgraph.support.errors import PopgraphError
from popgraph.support.laws import (
    FALSE,
    GREATEST,
    LEAST,
    TRUE,
    Law,
    Over,
    Term,
    element_of,
    function,
)

Expression = Any
"""An expression of the solver, whose module has no types."""
SECONDS = 200
"""Time limit of one query."""
FORMATS = {"f16": (5, 11), "bf16": (8, 8), "f32": (8, 24), "f64": (11, 53)}
"""Bits of the exponent and of the significand."""
ROUND = z3.RNE()


@dataclass(frozen=True)
class Finding:
    """The result of a proof: values for which both sides differ, or a reason for no answer."""

    law: Law
    element: str = ""
    counterexample: Mapping[Term, Array] | None = None
    unknown: str = ""

    @property
    def is_proven(self) -> bool:
        return self.counterexample is None and not self.unknown

    def __str__(self) -> str:
        head = f"{self.law}{f', in {self.element}' if self.element else ''}"
        if self.counterexample is None:
            return f"{head}: {self.unknown or 'proven'}"
        return f"// {head}\n{failing_module(self.law, self.counterexample)}"


def proven(law: Law, element: str = "") -> Finding:
    """Proves a law; a law of elements for one element type."""
    if law.over is Over.ELEMENTS and law.is_exhaustive(element):
        return _all_inputs(law, element)
    return _solved(law, element)


def types_of(law: Law) -> Iterator[str]:
    """The element types for which a law of elements has a meaning."""
    for name in BY_NAME:
        if law.types and name not in law.types:
            continue
        try:
            module_of(law, {leaf: np.zeros(1, dtype_of(law, leaf, name)) for leaf in law.leaves})
        except (PopgraphError, KeyError, OverflowError):
            continue
        yield name


def dtype_of(law: Law, leaf: Term, element: str) -> np.dtype[Any]:
    return BY_NAME[element_of(leaf, law.before, element)].numpy


# Modules

OTHER_OPERATIONS: Mapping[str, Callable[..., Operand]] = {"or": gc.OrOp, "abs": gc.AbsOp}
"""Operations that the pass does not build from terms."""


def constant_of(term: Term, element: str) -> Array:
    """The array of a number."""
    dtype = BY_NAME[element].numpy
    if term in (LEAST, GREATEST):
        ends = ml_dtypes.iinfo(dtype)
        return np.array(ends.min if term == LEAST else ends.max, dtype)
    if term in (TRUE, FALSE):
        return np.array(term == TRUE)
    return np.array(float(term.text)).astype(dtype)


@dataclass
class Drawn:
    """Draws terms as operations; each leaf has a value."""

    compilation: Compilation
    element: str
    values: dict[Term, SSAValue] = field(default_factory=dict)

    def literal(self, array: Array) -> SSAValue:
        return ConstantOp(self.compilation.weights.attribute(array)).result

    def built(self, term: Term, within: Term | None = None) -> SSAValue:
        if term in self.values:
            return self.values[term]
        if term.head == "number":
            is_bool = within is not None and element_of(term, within, "") == "bool"
            return self.literal(constant_of(term, "bool" if is_bool else self.element))
        operands = [self.built(operand, term) for operand in term.operands]
        made: Operand
        if term.head in ("floordiv", "mod"):
            rest = gc.RemOp(*operands)
            zero = self.literal(np.zeros((), BY_NAME[self.element].numpy))
            rest = gc.WhereOp(gc.CompareOp(rest, zero, "lt"), gc.AddOp(rest, operands[1]), rest)
            whole = gc.DivOp(gc.SubOp(operands[0], rest), operands[1])
            made = rest if term.head == "mod" else whole
        elif term.head in OTHER_OPERATIONS:
            made = OTHER_OPERATIONS[term.head](*operands)
        else:
            made = applied(term, operands)
        return SSAValue.get(made)


def module_of(
    law: Law,
    arrays: Mapping[Term, Array],
    sides: Sequence[str] = ("before", "after"),
    *,
    known: Callable[[Term], bool] = lambda _: False,
) -> tuple[Compilation, ModuleOp]:
    """A module that computes the sides of a law; leaves are inputs, or literals if `known`."""
    compilation = Compilation()
    element = _element(law, arrays)
    inputs = [leaf for leaf in arrays if not known(leaf)]
    types = [
        TensorType(element_types.to_ir(_row(arrays[leaf])), arrays[leaf].shape) for leaf in inputs
    ]
    graph = GraphOp("main", [leaf.text for leaf in inputs], types)
    drawn = Drawn(compilation, element)
    with ImplicitBuilder(graph.block):
        drawn.values |= dict(zip(inputs, graph.block.args, strict=True))
        drawn.values |= {
            leaf: drawn.literal(array) for leaf, array in arrays.items() if known(leaf)
        }
        terms = {"before": law.before, "after": law.after}
        ReturnOp([drawn.built(terms[side]) for side in sides], list(sides))
    return compilation, ModuleOp([graph])


def _row(array: Array) -> Any:
    return next(row for row in BY_NAME.values() if row.numpy == array.dtype)


def _element(law: Law, arrays: Mapping[Term, Array]) -> str:
    """The element type of a law's numbers."""
    names = [
        _row(array).name
        for leaf, array in arrays.items()
        if element_of(leaf, law.before, "other") == "other"
    ]
    return names[0] if names else "bool"


def failing_module(law: Law, values: Mapping[Term, Array]) -> str:
    """A module whose outputs `before` and `after` differ; `popgraph run` prints both."""
    _, module = module_of(law, values, known=lambda _: True)
    return str(module)


def sides_of(law: Law, arrays: Mapping[Term, Array]) -> tuple[Array, Array]:
    """Both sides of a law, as the reference backend computes them."""
    compilation, module = module_of(law, arrays)
    inputs = {leaf.text: array for leaf, array in arrays.items()}
    results, _ = evaluate(module, inputs, compilation.weights)
    return results["before"], results["after"]


def differ(one: Array, other: Array) -> Array:
    """For each element, whether two arrays differ; all NaN are equal, and zeros have signs."""
    one, other = np.broadcast_arrays(one, other)
    if one.dtype.kind == "c":
        return differ(one.real, other.real) | differ(one.imag, other.imag)
    bits = np.dtype(f"u{one.dtype.itemsize}")
    with np.errstate(all="ignore"):
        both_nan = (one != one) & (other != other)
    same = np.ascontiguousarray(one).view(bits) == np.ascontiguousarray(other).view(bits)
    return np.asarray(~(both_nan | same))


# All inputs


def all_values(element: str) -> Array:
    """Every value of an element type of at most 16 bits."""
    row = BY_NAME[element]
    if element == "bool":
        return np.array([False, True])
    if row.is_integer:
        ends = ml_dtypes.iinfo(row.numpy)
        return np.arange(int(ends.min), int(ends.max) + 1).astype(row.numpy)
    return np.arange(1 << row.bits).astype(np.uint16 if row.bits > 8 else np.uint8).view(row.numpy)


def _holds(term: Term, arrays: Mapping[Term, Array], element: str) -> Array:
    """A precondition for each row of values."""
    if term in arrays:
        return arrays[term]
    if term.is_leaf:
        return constant_of(term, element)
    operands = [_holds(operand, arrays, element) for operand in term.operands]
    if term.head == "halves":
        return halves(operands[0])
    if term.head == "unsigned":
        return ~np.signbit(operands[0])
    if term.head.startswith("fits "):
        wide = operands[0].astype(np.float64)
        ends = ml_dtypes.iinfo(BY_NAME[term.head.removeprefix("fits ")].numpy)
        with np.errstate(all="ignore"):
            whole = (np.rint(wide) == wide) & ~((wide == 0) & np.signbit(wide))
            return np.asarray(whole & (wide >= float(ends.min)) & (wide < float(ends.max) + 1))
    functions: Mapping[str, Any] = {
        "and": np.logical_and,
        "or": np.logical_or,
        "eq": np.equal,
        "ne": np.not_equal,
        "lt": np.less,
        "le": np.less_equal,
        "gt": np.greater,
        "ge": np.greater_equal,
    }
    return np.asarray(functions[term.head](*operands))


def satisfying(law: Law, arrays: Mapping[Term, Array], element: str) -> Mapping[Term, Array]:
    """The rows of values that satisfy the precondition."""
    if law.given is None:
        return arrays
    with np.errstate(all="ignore"):
        chosen = _holds(law.given, arrays, element)
    chosen = np.broadcast_to(chosen, next(iter(arrays.values())).shape)
    return {leaf: array[chosen] for leaf, array in arrays.items()}


def inputs_of(law: Law, element: str, values: Callable[[str], Array]) -> Mapping[Term, Array]:
    """All combinations of values for the leaves, as long as the precondition holds."""
    leaves = law.leaves
    own = [values(element_of(leaf, law.before, element)) for leaf in leaves]
    places = np.meshgrid(*(np.arange(len(one)) for one in own), indexing="ij")
    grid = {
        leaf: one[place.reshape(-1)] for leaf, one, place in zip(leaves, own, places, strict=True)
    }
    return satisfying(law, grid, element)


def _all_inputs(law: Law, element: str) -> Finding:
    arrays = inputs_of(law, element, all_values)
    if not next(iter(arrays.values())).size:
        return Finding(law, element, unknown="no input satisfies the precondition")
    wrong = np.flatnonzero(differ(*sides_of(law, arrays)))
    if not wrong.size:
        return Finding(law, element)
    return Finding(law, element, {leaf: array[wrong[:1]] for leaf, array in arrays.items()})


# The solver


@dataclass
class Meaning:
    """Translates terms for the solver; `premises` define the values that have no formula."""

    premises: list[Expression] = field(default_factory=list)
    leaves: dict[Term, Expression] = field(default_factory=dict)
    divisors: list[Expression] = field(default_factory=list)
    """The conditions that divisors of integers are positive; the precondition must imply them."""

    def leaf(self, term: Term) -> Expression:
        raise NotImplementedError

    def apply(self, term: Term, operands: list[Expression]) -> Expression:
        raise NotImplementedError

    def of(self, term: Term) -> Expression:
        if term in (TRUE, FALSE):
            return z3.BoolVal(term == TRUE)
        if term.is_leaf:
            if term not in self.leaves:
                self.leaves[term] = self.leaf(term)
            return self.leaves[term]
        operands = [self.of(operand) for operand in term.operands]
        match term.head:
            case "and":
                if z3.is_bool(operands[0]):
                    return z3.And(*operands)
            case "or":
                return z3.Or(*operands)
            case "where":
                condition = operands[0]
                if not z3.is_bool(condition):
                    condition = self.truth(term.operands[0])
                return z3.If(condition, *operands[1:])
        return self.apply(term, operands)

    def truth(self, term: Term) -> Expression:
        return z3.BoolVal(term.text not in ("0", "0.0"))

    def array(self, value: Expression) -> Array:
        """The value of a leaf in a model."""
        raise NotImplementedError


def exact(number: str) -> str:
    """A number as a fraction."""
    return str(Fraction(float(number)))


class Numbers(Meaning):
    """Integers without a bound, or real numbers."""

    def __init__(self, *, whole: bool) -> None:
        super().__init__()
        self.whole = whole

    def leaf(self, term: Term) -> Expression:
        if term.head == "number":
            make = z3.IntVal if self.whole else z3.RealVal
            return make(exact(term.text))
        return (z3.Int if self.whole else z3.Real)(term.text)

    def fresh(self) -> Expression:
        return z3.FreshReal("f")

    def apply(self, term: Term, operands: list[Expression]) -> Expression:
        x, *rest = operands
        y = rest[0] if rest else x
        match term.head:
            case "floordiv" | "mod":
                quotient, rest = self.divided(x, y)
                return quotient if term.head == "floordiv" else rest
            case "div" | "reciprocal":
                numerator, divisor = (x, y) if rest else (z3.RealVal(1), x)
                self.premises.append(divisor != 0)
                return numerator / divisor
            case "sqrt":
                return self._power(x, 1, 2)
            case "pow":
                quarters = float(term.operands[1].text) * 4
                return self._power(x, int(quarters), 4)
            case "max":
                return z3.If(x >= y, x, y)
            case "min":
                return z3.If(x <= y, x, y)
            case "neg":
                return -x
            case "unsigned":
                return x >= 0
        return INFIX_MEANING[term.head](x, y)

    def divided(self, x: Expression, y: Expression) -> tuple[Expression, Expression]:
        """
        The quotient and the remainder by a positive divisor, by their definition.

        The solver's own division takes longer, and no answer for `(b * q + r) % b`.
        """
        quotient, rest = z3.FreshInt("quotient"), z3.FreshInt("rest")
        self.divisors.append(y > 0)
        self.premises.append(z3.And(x == y * quotient + rest, rest >= 0, rest < y))
        return quotient, rest

    def _power(self, x: Expression, numerator: int, denominator: int) -> Expression:
        """x ^ (numerator / denominator): a value defined by a polynomial."""
        while numerator % 2 == 0 and denominator > 1:
            numerator, denominator = numerator // 2, denominator // 2
        positive = reduce(lambda a, b: a * b, [x] * abs(numerator))
        if denominator == 1 and numerator > 0:
            return positive
        found = self.fresh()
        raised = reduce(lambda a, b: a * b, [found] * denominator)
        self.premises.append(raised == positive if numerator > 0 else raised * positive == 1)
        if denominator > 1:
            self.premises += [found >= 0, x >= 0]
        return found

    def array(self, value: Expression) -> Array:
        if self.whole:
            return np.array([value.as_long()], np.int64)
        if z3.is_algebraic_value(value):
            value = value.approx(20)
        return np.array([float(value.as_fraction())], np.float64)


INFIX_MEANING: Mapping[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
}


class Zeros(Enum):
    """The results of max and min for zeros of different signs, which machines choose from."""

    FIRST = "the first operand"
    SECOND = "the second operand"
    SIGNED = "0 is greater than -0"


class Elements(Meaning):
    """Elements of one type: bit vectors, IEEE floats, or bits that are only moved."""

    def __init__(self, law: Law, element: str, zeros: Zeros = Zeros.FIRST) -> None:
        super().__init__()
        self.zeros = zeros
        self.law, self.element = law, element
        self.bits: dict[Term, Expression] = {}

    def leaf(self, term: Term) -> Expression:
        element = element_of(term, self.law.before, self.element)
        if term.head == "number":
            return self._number(term, element)
        if element == "bool":
            return z3.Bool(term.text)
        if element not in FORMATS:
            return z3.BitVec(term.text, BY_NAME[element].bits)
        sort = z3.FPSort(*FORMATS[element])
        if self.law.given == function("halves", term):
            # The solver needs seconds instead of minutes if the significand is known to be 0.
            exponent, significand = FORMATS[element]
            high = self.bits[term] = z3.BitVec(term.text, 1 + exponent)
            return z3.fpBVToFP(z3.Concat(high, z3.BitVecVal(0, significand - 1)), sort)
        return z3.FP(term.text, sort)

    def _number(self, term: Term, element: str) -> Expression:
        if element == "bool":
            return z3.BoolVal(bool(float(term.text)))
        value = constant_of(term, self.element)
        if self.element in FORMATS:
            sort = z3.FPSort(*FORMATS[self.element])
            number = float(value)
            return (
                z3.fpMinusZero(sort)
                if number == 0 and np.signbit(number)
                else z3.FPVal(number, sort)
            )
        return z3.BitVecVal(int(value), BY_NAME[self.element].bits)

    def apply(self, term: Term, operands: list[Expression]) -> Expression:
        if term.head.startswith(CAST):
            target, source = term.head.removeprefix(CAST), self.type_of(term.operands[0])
            return _cast(operands[0], source, target)
        if term.head.startswith("fits "):
            return _fits(operands[0], self.element, term.head.removeprefix("fits "))
        if term.head == "small":
            wide = _signed(operands[0], self.element, 128)
            if term.operands[0].head == "mul":  # The product without wraparound.
                wide = reduce(
                    lambda a, b: a * b,
                    [_signed(self.of(one), self.element, 128) for one in term.operands[0].operands],
                )
            return z3.And(wide <= 1 << 24, wide >= -(1 << 24))
        if term.head == "halves":
            return self._halves(self.bits[term.operands[0]])
        if z3.is_fp(operands[0]):
            return _of_floats(term, operands, self.zeros)
        return _of_integers(term, operands, signed=not BY_NAME[self.element].is_unsigned)

    def type_of(self, term: Term) -> str:
        """The element type of a term."""
        if term.head.startswith(CAST):
            return term.head.removeprefix(CAST)
        if term.is_leaf:
            return self.element
        return self.type_of(term.operands[0])

    def _halves(self, bits: Expression) -> Expression:
        exponent, _ = FORMATS[self.element]
        biased, bias = z3.Extract(exponent - 1, 0, bits), (1 << (exponent - 1)) - 1
        return z3.And(z3.UGT(biased, 2), z3.ULT(biased, 2 * bias - 4))

    def array(self, value: Expression) -> Array:
        if z3.is_bool(value):
            return np.array([z3.is_true(value)])
        row = BY_NAME[self.element]
        size = row.numpy.itemsize
        if z3.is_fp(value):
            if value.isNaN():
                return np.array([np.nan]).astype(row.numpy)
            value = z3.simplify(z3.fpToIEEEBV(value))
        return np.frombuffer(value.as_long().to_bytes(size, "little"), row.numpy)


def _signed(x: Expression, element: str, bits: int) -> Expression:
    """An integer, extended to more bits."""
    extend = z3.ZeroExt if BY_NAME[element].is_unsigned else z3.SignExt
    return extend(bits - x.size(), x)


def _fits(x: Expression, source: str, target: str) -> Expression:
    """Whether an integer type holds a number: an integer that is not -0."""
    ends = ml_dtypes.iinfo(BY_NAME[target].numpy)
    low, high = int(ends.min), int(ends.max)
    if source not in FORMATS:
        wide = _signed(x, source, 80)
        return z3.And(wide >= low, wide <= high)
    sort = z3.FPSort(*FORMATS[source])
    return z3.And(
        z3.fpEQ(z3.fpRoundToIntegral(z3.RTZ(), x), x),
        z3.Not(z3.And(z3.fpIsZero(x), z3.fpIsNegative(x))),
        z3.Not(z3.fpIsInf(x)),
        z3.fpGEQ(x, z3.FPVal(low, sort)),
        z3.fpLT(x, z3.FPVal(high + 1, sort)),
    )


def _cast(x: Expression, source: str, target: str) -> Expression:
    if source == target:
        return x
    if target == "bf16" and source != "f32":  # The reference casts by way of f32.
        return _cast(_cast(x, source, "f32"), "f32", target)
    if target in FORMATS:
        sort = z3.FPSort(*FORMATS[target])
        if source in FORMATS:
            return z3.fpFPToFP(ROUND, x, sort)
        unsigned = BY_NAME[source].is_unsigned
        return (z3.fpUnsignedToFP if unsigned else z3.fpSignedToFP)(ROUND, x, sort)
    bits = BY_NAME[target].bits
    if source in FORMATS:
        wide, down = z3.BitVecSort(64), z3.RTZ()
        negative = z3.fpLT(x, z3.FPVal(0, x.sort()))
        x = z3.If(negative, z3.fpToSBV(down, x, wide), z3.fpToUBV(down, x, wide))
        return z3.Extract(bits - 1, 0, x)
    if bits <= x.size():
        return z3.Extract(bits - 1, 0, x)
    return _signed(x, source, bits)


def _of_floats(term: Term, operands: list[Expression], zeros: Zeros) -> Expression:
    x, *rest = operands
    zero, one = z3.FPVal(0, x.sort()), z3.FPVal(1, x.sort())
    match term.head, rest:
        case "neg", []:
            return z3.fpNeg(x)
        case "relu", []:
            return z3.If(z3.fpLT(x, zero), zero, x)
        case "reciprocal", []:
            return z3.fpDiv(ROUND, one, x)
        case ("max" | "min") as end, [y]:
            wins = z3.fpGT(x, y) if end == "max" else z3.fpLT(x, y)
            first = {
                Zeros.FIRST: z3.fpEQ(x, y),
                Zeros.SECOND: z3.BoolVal(False),
                Zeros.SIGNED: z3.And(z3.fpEQ(x, y), z3.fpIsNegative(x if end == "min" else y)),
            }[zeros]
            return z3.If(z3.Or(z3.fpIsNaN(x), wins, first), x, y)
        case "add", [y]:
            return z3.fpAdd(ROUND, x, y)
        case "sub", [y]:
            return z3.fpSub(ROUND, x, y)
        case "mul", [y]:
            return z3.fpMul(ROUND, x, y)
        case "div", [y]:
            return z3.fpDiv(ROUND, x, y)
        case "eq", [y]:
            return z3.fpEQ(x, y)
        case "ne", [y]:
            return z3.Not(z3.fpEQ(x, y))
        case "gt", [y]:
            return z3.fpGT(x, y)
        case "lt", [y]:
            return z3.fpLT(x, y)
        case "le", [y]:
            return z3.fpLEQ(x, y)
    raise NotImplementedError(f"{term.head} of floats")


def _of_integers(term: Term, operands: list[Expression], *, signed: bool) -> Expression:
    x, *rest = operands
    orders = {
        "lt": z3.ULT,
        "le": z3.ULE,
        "gt": z3.UGT,
        "ge": z3.UGE,
    }
    if z3.is_bool(x):
        return {"not": lambda: z3.Not(x), "eq": lambda: x == rest[0]}[term.head]()
    match term.head, rest:
        case "neg", []:
            return -x
        case "not", []:
            return ~x
        case "relu", []:
            return z3.If(x < 0, z3.BitVecVal(0, x.size()), x) if signed else x
        case "max", [y]:
            return z3.If(x >= y if signed else z3.UGE(x, y), x, y)
        case "min", [y]:
            return z3.If(x <= y if signed else z3.ULE(x, y), x, y)
        case "div", [y]:
            return z3.If(y == 0, z3.BitVecVal(0, x.size()), x / y if signed else z3.UDiv(x, y))
        case "pow", [_]:
            exponent = int(float(term.operands[1].text))
            return reduce(lambda a, b: a * b, [x] * exponent)
        case head, [y]:
            if not signed and head in orders:
                return orders[head](x, y)
            return INFIX_MEANING[head](x, y)
    raise NotImplementedError(f"{term.head} of integers")


def meanings_of(law: Law, element: str) -> list[Meaning]:
    """The meaning of a law's functions; several if machines differ."""
    if law.over is not Over.ELEMENTS:
        return [Numbers(whole=law.over is Over.INDICES)]
    differs = element in FORMATS and bool({"max", "min"} & set(heads(law.before)))
    return [Elements(law, element, zeros) for zeros in (Zeros if differs else [Zeros.FIRST])]


def heads(term: Term) -> Iterator[str]:
    """The functions of a term."""
    yield term.head
    for operand in term.operands:
        yield from heads(operand)


def _solved(law: Law, element: str) -> Finding:
    for meaning in meanings_of(law, element):
        found = _solved_with(law, element, meaning)
        if not found.is_proven:
            break
    return found


def _solved_with(law: Law, element: str, meaning: Meaning) -> Finding:
    before, after = meaning.of(law.before), meaning.of(law.after)
    given = [] if law.given is None else [meaning.of(law.given)]
    # The precondition alone must exclude divisors of indices that are not positive.
    divisors = z3.Not(z3.And(*meaning.divisors))
    if meaning.divisors and _asked(*given, divisors)[0] != z3.unsat:
        return Finding(law, element, unknown="a divisor may be 0 or negative")
    premises = [*given, *meaning.premises]
    if premises and _asked(*premises)[0] == z3.unsat:
        return Finding(law, element, unknown="no value satisfies the precondition")
    answer, solver = _asked(*premises, z3.Not(before == after))
    if answer == z3.unsat:
        return Finding(law, element)
    if answer == z3.unknown:
        return Finding(law, element, unknown=f"no answer: {solver.reason_unknown()}")
    model = solver.model()
    found = {}
    for leaf in law.leaves:
        found[leaf] = meaning.array(model.eval(meaning.leaves[leaf], model_completion=True))
    return Finding(law, element, found)


def _asked(*assumptions: Expression) -> tuple[Expression, Expression]:
    """The answer of a new solver, which is faster than one that was asked before, and it."""
    solver = z3.Solver()
    solver.set("timeout", SECONDS * 1000)
    solver.add(*assumptions)
    return solver.check(), solver
